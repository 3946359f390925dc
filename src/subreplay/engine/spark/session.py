"""A Spark session that fits where the program runs: the active one, a Connect server's, or a small local one with
Delta."""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, cast
from weakref import WeakSet

import pyspark
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.utils import is_remote

from subreplay import __version__
from subreplay.config.run import Spark
from subreplay.errors import EnvironmentFailed
from subreplay.failures import EXTRA

__all__ = [
    "DataFrame",
    "KeptRows",
    "SparkSession",
    "active",
    "as_it_was",
    "fit_batches",
    "open_session",
    "partitions",
]

_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_DELTA_UP_TO = (4, 1)  # of pyspark: delta-spark names a package for later ones, too, which is not there
# For small machines: as few tasks as cores, no user interface, no compaction of tiny logs
_SMALL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.python.sql.dataFrameDebugging.enabled": "false",  # where Python called a column function costs a call
    "spark.log.level": "ERROR",
}

# In a small run Java spends most of its processor time compiling code that it soon stops running; rows bypass Java. The
# driver of a cluster only plans and commits, so this holds there, too. With this setting Java has room for 48 MiB of
# compiled code, which a notebook fills in a minute: then it compiles no more, and may end, so it gets more room.
# No collector: the caller may have chosen one, and Java takes only one
_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"

CLASSES = "spark-classes.jsa"
"""Among Spark's jars, where it is there: their classes as Java has them in memory (``.ci/fetch_jars.py`` makes it)."""
DEFAULT_PARTITIONS = 200  # Spark's own
READ = 128  # rows of Parquet that a task reads at a time, whose keys may have megabytes
BATCH = 1024  # rows that go to Python at a time
_TO_PYTHON = "spark.sql.execution.arrow.maxRecordsPerBatch"
_TO_READ = "spark.sql.parquet.columnarReaderBatchSize"


def open_session(options: Spark) -> SparkSession:
    """The active session where there is one (notebooks, spark-submit), else one made from ``options``."""
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(f"subreplay {__version__}")
    if {"PYSPARK_GATEWAY_PORT", "DATABRICKS_RUNTIME_VERSION"} & set(os.environ):
        # spark-submit, or the platform, started the driver and has decided where it runs
        session = builder.getOrCreate()
    elif options.remote:
        session = builder.remote(options.remote).getOrCreate()
    else:
        session = _local(builder, options)
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.conf.set("spark.sql.pyspark.jvmStacktrace.enabled", "true")  # an error tells what caused it in Java
    shuffles, master = options.shuffle_partitions, str(session.conf.get("spark.master", ""))
    if shuffles is None and master.startswith("local") and partitions(session) == DEFAULT_PARTITIONS:
        shuffles = 2 * cores(master)  # of one machine, which nobody has told otherwise
    if shuffles is not None:
        session.conf.set("spark.sql.shuffle.partitions", str(shuffles))
    # times in ns, as pandas writes them, are then numbers; else Spark refuses to read them
    session.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
    fit_batches(session)
    # the number of rows sees to it; to look after the bytes of each row costs more than all rules
    session.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(2**31 - 1))
    return session


_CHECKED: Final[WeakSet[Any]] = WeakSet()
_PACKAGE: Final = "subreplay.pipeline.story"  # imports all that a task needs


def require_package(session: SparkSession) -> None:
    """Check once per session that executors of a cluster have this package; without it each task fails, and Spark
    retries tasks for half a minute. Raises ``EnvironmentFailed`` where they lack it or have another version."""
    local = not is_remote() and str(session.conf.get("spark.master", "")).startswith("local")
    if local or session in _CHECKED:
        return
    (found,) = session.range(0, 1, 1, 1).mapInArrow(_report_version(_PACKAGE), "version string, lacks string").collect()
    remedy = (
        "Install it on each node (pip install), or ship an environment that contains it (spark.archives with a packed "
        "environment, and PYSPARK_PYTHON inside it)."
    )
    if found["lacks"] is not None:
        raise EnvironmentFailed(f"Spark's executors cannot import Python package {found['lacks']}. {remedy}")
    if found["version"] != __version__:
        raise EnvironmentFailed(
            f"Spark's executors have subreplay {found['version']}, and this program is {__version__}. {remedy}"
        )
    _CHECKED.add(session)


def _report_version(module: str) -> Any:
    """The function of a task that reports the version of this package there, or which package it lacks. It is local, so
    that it is sent whole: a worker without the package could not look it up."""

    def report(batches: Any) -> Any:
        from importlib import import_module

        import pyarrow

        version = lacks = None
        try:
            import_module(module)
            version = import_module(module.partition(".")[0]).__version__
        except ModuleNotFoundError as error:
            lacks = error.name
        for _ in batches:
            yield pyarrow.RecordBatch.from_pydict(
                {"version": pyarrow.array([version], "string"), "lacks": pyarrow.array([lacks], "string")}
            )

    return report


def active() -> SparkSession | None:
    """The session that the thread, or else the program, has already."""
    try:
        return SparkSession.active()
    except PySparkException:
        return None


def partitions(session: SparkSession) -> int:
    """Into how many partitions a session shuffles; Spark's default where the platform decides by itself."""
    value = str(session.conf.get("spark.sql.shuffle.partitions"))
    return int(value) if value.isdigit() else DEFAULT_PARTITIONS


def cores(master: str) -> int:
    """How many cores a local master uses: ``local``, ``local[4]``, ``local[*]``, ``local[4,3]``."""
    asked = re.search(r"\[(\d+)", master)
    if asked:
        return int(asked[1])
    return os.cpu_count() or 1 if "[*" in master else 1


def _memory(master: str) -> str:
    """1 GiB for each core, because each runs a task, and at most a quarter of the machine's, because Python has to live
    beside it; at least 1 GiB."""
    quarter = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // (4 << 30)
    return f"{max(1, min(cores(master), quarter))}g"


def fit_batches(session: SparkSession) -> None:
    """Let so few rows be read, and go to Python, at a time that large keys fit. A platform that lets nobody set this
    knows better."""
    for name, value in {_TO_PYTHON: BATCH, _TO_READ: READ}.items():
        with suppress(PySparkException):
            session.conf.set(name, str(value))


@contextmanager
def as_it_was(session: SparkSession) -> Iterator[None]:
    """Afterwards a session that somebody else made has its own sizes of batches again."""
    before = {name: session.conf.get(name, None) for name in (_TO_PYTHON, _TO_READ)}
    try:
        yield
    finally:
        for name, value in before.items():
            with suppress(PySparkException):
                session.conf.unset(name) if value is None else session.conf.set(name, value)


class KeptRows:
    """The frames that a session keeps where it may; where the platform refuses, they are computed each time they are
    looked at."""

    def __init__(self) -> None:
        self._persisted: list[DataFrame] = []

    def keep(self, rows: DataFrame, level: StorageLevel = StorageLevel.MEMORY_AND_DISK_DESER) -> DataFrame:
        """The same rows, computed once."""
        with suppress(PySparkException):  # serverless compute keeps nothing
            # Connect makes a new plan of every question, in which nobody knows persisted rows again; those of a
            # checkpoint are known by its name, and freed with its frame
            if is_remote():
                return _until_exit(rows.localCheckpoint(eager=False))
            self._persisted.append(rows.persist(level))
        return rows

    def release(self) -> None:
        """Free what is kept; the frames can be looked at all the same."""
        while self._persisted:
            self._persisted.pop().unpersist()


_CHECKPOINTS: Final[WeakSet[Any]] = WeakSet()


def _until_exit(checkpoint: DataFrame) -> DataFrame:
    """The frame of a checkpoint, which the server frees with the session if the program ends first: pyspark would free
    it when the interpreter is half gone, and wait for ever."""
    _CHECKPOINTS.add(cast(Any, checkpoint)._plan)
    return checkpoint


@atexit.register
def _leave_to_server() -> None:
    for relation in [*_CHECKPOINTS]:
        relation._relation_id = None


def _local(builder: SparkSession.Builder, options: Spark) -> SparkSession:
    settings = {
        **_DELTA,
        **_SMALL,
        "spark.driver.extraJavaOptions": _java(),
        **(_workers() if options.master.startswith("local") else {}),
        "spark.driver.memory": options.driver_memory or _memory(options.master),
        **options.conf,
    }
    builder = builder.master(options.master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    more = [package.strip() for package in options.conf.get("spark.jars.packages", "").split(",") if package.strip()]
    if _brings_delta() or any(":delta-spark" in package for package in more):
        return builder.getOrCreate()
    if tuple(map(int, pyspark.__version__.split(".")[:2])) > _DELTA_UP_TO:
        raise EnvironmentFailed(
            f"no release of Delta is known to fit pyspark {pyspark.__version__}: install one that Delta fits "
            f"({EXTRA}), or name Delta's package (spark.conf: {{spark.jars.packages: …}})"
        )
    from delta import configure_spark_with_delta_pip

    return configure_spark_with_delta_pip(builder, more).getOrCreate()


def _workers() -> dict[str, str]:
    """Workers that start with what they need (``engine.spark.daemon``), where they run the Python of this program and
    find its packages in folders."""
    found = [importlib.util.find_spec(name) for name in ("subreplay", "pyspark", "py4j")]
    folders = [Path(spec.origin).parents[1] for spec in found if spec is not None and spec.origin is not None]
    if os.environ["PYSPARK_PYTHON"] != sys.executable or not all(folder.is_dir() for folder in folders):
        return {}
    path = os.pathsep.join(dict.fromkeys(map(str, folders)))
    return {"spark.python.daemon.module": "subreplay.engine.spark.daemon", "spark.executorEnv.PYTHONPATH": path}


def _java() -> str:
    """What Java is told. Of an archive that does not fit, as of another Java, it takes nothing, and says so in a line
    that nobody asked for."""
    classes = _jars() / CLASSES
    return f'{_JAVA} "-XX:SharedArchiveFile={classes}" -Xlog:cds*=off' if classes.exists() else _JAVA


def _brings_delta() -> bool:
    """Whether Delta is among Spark's own jars: to resolve packages costs seconds at each start."""
    return any(_jars().glob("delta-spark_*.jar"))


def _jars() -> Path:
    """The folder of Spark's own jars."""
    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent, "jars")
