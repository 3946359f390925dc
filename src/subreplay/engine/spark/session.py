"""Open the Spark session that fits the environment: the active one, a Connect server's, or a small local one with
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
from subreplay.engine.spark.settings import change_setting, read_setting
from subreplay.errors import EnvironmentFailed
from subreplay.failures import EXTRA

__all__ = [
    "DataFrame",
    "FrameCache",
    "SparkSession",
    "count_partitions",
    "find_active_session",
    "fit_batches",
    "open_session",
    "restore_batch_sizes",
]

_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_DELTA_UP_TO = (4, 1)  # pyspark version; for later ones delta-spark names a package that does not exist
# Settings for small machines: as many tasks as cores, no user interface, no compaction of tiny logs.
_SMALL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.python.sql.dataFrameDebugging.enabled": "false",  # recording where Python calls a column function costs time
    "spark.log.level": "ERROR",
}

# In a small run Java spends most of its processor time compiling code that it runs only briefly; rows bypass Java.
# This is true of the driver of a cluster too, which only plans and commits. This compiler level reserves 48 MiB for
# compiled code, which a notebook fills in a minute. Java then stops compiling and may exit, so the cache is larger.
# No garbage collector is set: the caller may have chosen one, and Java accepts only one.
_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"

CLASSES = "spark-classes.jsa"
"""A file beside Spark's jars: their classes as a Java memory image (``.ci/fetch_jars.py`` creates it). It may be
missing."""
DEFAULT_PARTITIONS = 200  # Spark's default
READ_ROWS = 128  # Parquet rows that a task reads at a time; their keys may have megabytes
BATCH_ROWS = 1024  # rows that are sent to Python at a time
_TO_PYTHON = "spark.sql.execution.arrow.maxRecordsPerBatch"
_TO_READ = "spark.sql.parquet.columnarReaderBatchSize"


def open_session(options: Spark) -> SparkSession:
    """Return the active session if there is one (notebooks, spark-submit), else open one from ``options``."""
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(f"subreplay {__version__}")
    if {"PYSPARK_GATEWAY_PORT", "DATABRICKS_RUNTIME_VERSION"} & set(os.environ):
        # spark-submit or the platform has started the driver and chosen its master
        session = builder.getOrCreate()
    elif options.remote:
        session = builder.remote(options.remote).getOrCreate()
    else:
        session = _open_local(builder, options)
    change_setting(session, "spark.sql.session.timeZone", "UTC")
    change_setting(session, "spark.sql.pyspark.jvmStacktrace.enabled", "true")  # errors include their cause in Java
    shuffles, master = options.shuffle_partitions, read_setting(session, "spark.master") or ""
    if shuffles is None and master.startswith("local") and count_partitions(session) == DEFAULT_PARTITIONS:
        shuffles = 2 * count_cores(master)  # the user has set no other number
    if shuffles is not None:
        change_setting(session, "spark.sql.shuffle.partitions", str(shuffles))
    # read times in ns, as pandas writes them, as numbers: Spark would refuse them
    change_setting(session, "spark.sql.legacy.parquet.nanosAsLong", "true")
    fit_batches(session)
    # the number of rows limits batches; counting the bytes of each row costs more than all rules
    change_setting(session, "spark.sql.execution.arrow.maxBytesPerBatch", str(2**31 - 1))
    return session


_CHECKED: Final[WeakSet[Any]] = WeakSet()
_PACKAGE: Final = "subreplay.pipeline.story"  # imports everything that a task needs


def require_package(session: SparkSession) -> None:
    """Check once per session that executors of a cluster have this package.

    Without it each task fails, and Spark retries tasks for half a minute. Raises ``EnvironmentFailed`` if the package
    is missing or has another version.
    """
    local = not is_remote() and (read_setting(session, "spark.master") or "").startswith("local")
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
    """Return a task function that reports this package's version, or the package that the worker lacks.

    The function is local, so Spark sends its code. A worker without the package could not import it.
    """

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


def find_active_session() -> SparkSession | None:
    """Return the session that the thread, or else the program, has; None if there is none."""
    try:
        return SparkSession.active()
    except PySparkException:
        return None


def count_partitions(session: SparkSession) -> int:
    """Return the number of shuffle partitions of a session; Spark's default if the platform chooses the number."""
    value = read_setting(session, "spark.sql.shuffle.partitions") or ""
    return int(value) if value.isdigit() else DEFAULT_PARTITIONS


def count_cores(master: str) -> int:
    """Return the cores of a local master: ``local``, ``local[4]``, ``local[*]``, ``local[4,3]``."""
    count = re.search(r"\[(\d+)", master)
    if count:
        return int(count[1])
    return os.cpu_count() or 1 if "[*" in master else 1


def _choose_memory(master: str) -> str:
    """Choose 1 GiB per core, because each core runs a task, but at least 1 GiB and at most a quarter of the machine's
    memory.

    The rest is for the Python processes.
    """
    quarter = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // (4 << 30)
    return f"{max(1, min(count_cores(master), quarter))}g"


def fit_batches(session: SparkSession) -> None:
    """Limit the rows that are read, and sent to Python, at a time, so that large keys fit into memory.

    The platform's values remain if it does not allow a change.
    """
    for name, value in {_TO_PYTHON: BATCH_ROWS, _TO_READ: READ_ROWS}.items():
        change_setting(session, name, str(value))


@contextmanager
def restore_batch_sizes(session: SparkSession) -> Iterator[None]:
    """Restore the batch sizes of the caller's session when the context ends."""
    before = {name: read_setting(session, name) for name in (_TO_PYTHON, _TO_READ)}
    try:
        yield
    finally:
        for name, value in before.items():
            change_setting(session, name, value)


class FrameCache:
    """The DataFrames that a session caches. If the platform refuses, they are recomputed on each access."""

    def __init__(self) -> None:
        self._persisted: list[DataFrame] = []

    def keep(self, rows: DataFrame, level: StorageLevel = StorageLevel.MEMORY_AND_DISK_DESER) -> DataFrame:
        """Cache the rows, and return them as a DataFrame."""
        with suppress(PySparkException):  # serverless compute has no cache
            # Connect creates a new plan for every query, which does not recognise persisted rows. It finds a
            # checkpoint by name, and frees it with its frame.
            if is_remote():
                return _keep_until_exit(rows.localCheckpoint(eager=False))
            self._persisted.append(rows.persist(level))
        return rows

    def release(self) -> None:
        """Free the cached DataFrames. They can still be read."""
        while self._persisted:
            self._persisted.pop().unpersist()


_CHECKPOINTS: Final[WeakSet[Any]] = WeakSet()


def _keep_until_exit(checkpoint: DataFrame) -> DataFrame:
    """Return the frame of a checkpoint that the server frees if the program ends before the session.

    pyspark would free it while the interpreter shuts down, and wait forever.
    """
    _CHECKPOINTS.add(cast(Any, checkpoint)._plan)
    return checkpoint


@atexit.register
def _forget_checkpoints() -> None:
    for relation in [*_CHECKPOINTS]:
        relation._relation_id = None


def _open_local(builder: SparkSession.Builder, options: Spark) -> SparkSession:
    settings = {
        **_DELTA,
        **_SMALL,
        "spark.driver.extraJavaOptions": _build_java_options(),
        **(_build_worker_settings() if options.master.startswith("local") else {}),
        "spark.driver.memory": options.driver_memory or _choose_memory(options.master),
        **options.conf,
    }
    builder = builder.master(options.master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    more = [package.strip() for package in options.conf.get("spark.jars.packages", "").split(",") if package.strip()]
    if _has_delta_jar() or any(":delta-spark" in package for package in more):
        return builder.getOrCreate()
    if tuple(map(int, pyspark.__version__.split(".")[:2])) > _DELTA_UP_TO:
        raise EnvironmentFailed(
            f"No release of Delta supports pyspark {pyspark.__version__}. Install a supported version "
            f"({EXTRA}), or set Delta's package (spark.conf: {{spark.jars.packages: …}})"
        )
    from delta import configure_spark_with_delta_pip

    return configure_spark_with_delta_pip(builder, more).getOrCreate()


def _build_worker_settings() -> dict[str, str]:
    """Build settings for workers that start with their imports done (``engine.spark.daemon``).

    That works if the workers run this program's Python and find its packages in folders.
    """
    found = [importlib.util.find_spec(name) for name in ("subreplay", "pyspark", "py4j")]
    folders = [Path(spec.origin).parents[1] for spec in found if spec is not None and spec.origin is not None]
    if os.environ["PYSPARK_PYTHON"] != sys.executable or not all(folder.is_dir() for folder in folders):
        return {}
    path = os.pathsep.join(dict.fromkeys(map(str, folders)))
    return {"spark.python.daemon.module": "subreplay.engine.spark.daemon", "spark.executorEnv.PYTHONPATH": path}


def _build_java_options() -> str:
    """Build the Java options. Java ignores an archive that does not fit, and the log option suppresses its message."""
    classes = _find_jars() / CLASSES
    return f'{_JAVA} "-XX:SharedArchiveFile={classes}" -Xlog:cds*=off' if classes.exists() else _JAVA


def _has_delta_jar() -> bool:
    """Return whether Delta is among Spark's own jars. Resolving packages costs seconds at each start."""
    return any(_find_jars().glob("delta-spark_*.jar"))


def _find_jars() -> Path:
    """Return the folder of Spark's own jars."""
    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent, "jars")
