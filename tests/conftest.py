"""What tests share: one Spark session, started only for tests that ask for it; and what ``make quick`` leaves out."""

from __future__ import annotations

import gc
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from subreplay.engine.interface import Engine

# Of a few thousand rows, to compile code well costs Java more than to run it, and to read its classes most of all: so
# for every Java that tests start
_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"
_HUGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
if _HUGE.exists() and "[never]" not in _HUGE.read_text():  # else Java would say that there are none
    _JAVA += " -XX:+UseTransparentHugePages"
if (spark_found := find_spec("pyspark")) and spark_found.origin:
    _CLASSES = Path(spark_found.origin).with_name("jars") / "spark-classes.jsa"
    _JAVA += f' "-XX:SharedArchiveFile={_CLASSES}" -Xlog:cds*=off'
os.environ.setdefault("SPARK_SUBMIT_OPTS", _JAVA)

settings.register_profile("few", settings.get_profile("ci"), max_examples=10)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--few", type=int, metavar="N", help="of each test at most N of its cases, evenly spread")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what ``--few`` does not ask for."""
    few = config.getoption("--few")
    if few is None:
        return
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        cases[item.nodeid.partition("[")[0]].append(item)
    some = {item for mine in cases.values() for item in mine[:: -(-len(mine) // few)]}
    config.hook.pytest_deselected(items=[item for item in items if item not in some])
    items[:] = [item for item in items if item in some]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Of the two halves of ``make test`` each reads only files with tests of its own: to import all takes a while."""
    asked = config.getoption("markexpr")
    if collection_path.suffix != ".py" or "spark and" not in asked:
        return None
    text = collection_path.read_bytes()
    not_mine = b"\npytestmark = pytest.mark.spark\n" in text if "not spark and" in asked else b"mark.spark" not in text
    return True if not_mine else None


def pytest_collection() -> None:
    """What is imported and collected stays to the end: the garbage collector need not look at it again and again."""
    gc.disable()


def pytest_collection_finish() -> None:
    """From here on it looks at what tests leave, and not often."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    gc.enable()


@pytest.fixture(scope="session")
def of_the_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], SparkSession]]:
    """Hands out the session of the whole test run: small, local, with Delta. One that has died is made anew."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from subreplay.config.run import Spark
    from subreplay.engine.spark.session import open_session
    from tests.support.quick_session import QUICK, remember_names

    remember_names()
    conf = QUICK | {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    sessions: list[SparkSession] = []

    def session() -> SparkSession:
        if not sessions or not is_alive(sessions[-1]):
            sessions.append(open_session(Spark(master="local[2]", shuffle_partitions=2, conf=conf)))
        return sessions[-1]

    yield session
    if sessions:
        sessions[-1].stop()


@pytest.fixture(scope="module")
def spark(of_the_run: Callable[[], SparkSession]) -> SparkSession:
    """The session of the whole test run; where it dies, the tests of one file fail."""
    return of_the_run()


def is_alive(session: SparkSession) -> bool:
    """Whether a session answers; one that does not is cleared away, so that another can be opened."""
    try:
        return session.range(1).count() == 1
    except Exception:  # whatever py4j raises of a process that is gone
        from pyspark import SparkContext

        with suppress(Exception):
            session.stop()
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
        type(session)._instantiatedSession = type(session)._activeSession = None
        return False


@pytest.fixture(params=["local", pytest.param("spark", marks=pytest.mark.spark)])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """Each engine in turn, opened for one test."""
    if request.param == "local":
        from subreplay.engine.local.engine import LocalEngine

        made: Engine = LocalEngine(cores=2)
    else:
        from subreplay.engine.spark.engine import SparkEngine

        made = SparkEngine(request.getfixturevalue("spark"))
    with made as opened:
        yield opened


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
