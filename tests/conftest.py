"""What tests share: one Spark session, started only for tests that ask for it; and what ``make quick`` leaves out."""

from __future__ import annotations

import gc
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from subreplay.engine.interface import Engine
    from tests.support.quick_session import RunSession

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
    requested = config.getoption("markexpr")
    if collection_path.suffix != ".py" or "spark and" not in requested:
        return None
    text = collection_path.read_bytes()
    if "not spark and" in requested:
        return True if b"\npytestmark = pytest.mark.spark\n" in text else None
    return None if b"mark.spark" in text or b"engine: Engine" in text else True  # the latter is given each engine


def pytest_collection() -> None:
    """What is imported and collected stays to the end: the garbage collector need not look at it again and again."""
    gc.disable()


def pytest_collection_finish() -> None:
    """From here on it looks at what tests leave, and not often."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    gc.enable()


@pytest.fixture(scope="session")
def of_the_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunSession]:
    """Hands out the session of the whole test run."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from tests.support.quick_session import RunSession, hide_from_commands, remember_names

    remember_names()
    session = RunSession(str(tmp_path_factory.mktemp("warehouse")))
    with pytest.MonkeyPatch.context() as patch:
        hide_from_commands(patch)
        yield session
    session.stop()


@pytest.fixture(autouse=True)
def only_marked_tests_start_spark(request: pytest.FixtureRequest) -> Iterator[None]:
    """After it has been started, commands would take its session for theirs, which costs seconds each."""
    before = _has_spark()
    yield
    if _has_spark() and not before:
        assert request.node.get_closest_marker("spark"), "this test started Spark; mark it, and ask for fixture spark"


def _has_spark() -> bool:
    pyspark = sys.modules.get("pyspark")
    return pyspark is not None and pyspark.SparkContext._active_spark_context is not None


@pytest.fixture(scope="module")
def spark(of_the_run: RunSession) -> SparkSession:
    """The session of the whole test run, for frames that the tests of a file share: if it dies, these tests fail."""
    return of_the_run()


@pytest.fixture(params=["local", pytest.param("spark", marks=pytest.mark.spark)])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """Each engine in turn, opened for one test."""
    if request.param == "local":
        from subreplay.engine.local.engine import LocalEngine

        made: Engine = LocalEngine(cores=2)
    else:
        from subreplay.engine.spark.engine import SparkEngine

        made = SparkEngine(request.getfixturevalue("of_the_run")())
    with made as opened:
        yield opened


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
