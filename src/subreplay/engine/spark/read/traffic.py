"""Where the input tables of a run come from: our own tables, or somebody else's, whose columns become ours."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark.sql.functions as F
from pyspark import StorageLevel
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql.types import BinaryType, ByteType, IntegerType, LongType, ShortType, StringType, TimestampType

from subreplay.adapters import ADAPTERS, Options
from subreplay.adapters.base import Rejected
from subreplay.adapters.source import text_files
from subreplay.adapters.source.convert import BROKEN, FILE, HIDDEN, UNSET, convert
from subreplay.adapters.source.file_formats import require_format
from subreplay.adapters.source.mapped_tables import mapped
from subreplay.adapters.source.mapping import INSTANTS
from subreplay.adapters.source.plan import Plan, Taken
from subreplay.adapters.source.presets import plan_of
from subreplay.config.fields import quoted
from subreplay.config.live import LIVE
from subreplay.config.run import RunConfig
from subreplay.config.traffic import InputTable
from subreplay.engine.spark import lake, local_delta
from subreplay.engine.spark.adapters import sources
from subreplay.engine.spark.adapters.frames import Read
from subreplay.engine.spark.read import direct, live
from subreplay.engine.spark.schemas import arrow_schema, require, schema_of_files, spark_schema
from subreplay.engine.spark.session import KeptRows, scratch
from subreplay.errors import ConfigError, EnvironmentFailed, InputError
from subreplay.rows.model.columns import gathered
from subreplay.rows.model.tables import INPUTS, REJECTED
from subreplay.rows.scan.files import Files

_CORRUPT: Final = "_corrupt_record"  # where Spark puts a line that it cannot read


Frames = Mapping[str, DataFrame]
"""Input tables that are given as frames; of others there are none, unless the run file says where they are."""


@dataclass(frozen=True)
class Table:
    """An input table in its canonical columns, those of them that its source does not have, and what a run file would
    have to say of it, which a source that an adapter reads says itself. ``converted``: Python makes its rows, anew each
    time they are looked at. ``files``: where it is a table of ours on this machine, which needs no Spark to be read;
    Spark opens it when it is asked to."""

    opened: Callable[[], DataFrame]
    absent: frozenset[str]
    told: Mapping[str, Any] = field(default_factory=dict)
    converted: bool = False
    files: Files | None = None

    @cached_property
    def frame(self) -> DataFrame:
        """Its rows."""
        return self.opened()


def table(
    spark: SparkSession,
    config: RunConfig,
    name: str,
    frames: Frames | None = None,
    *,
    required: bool = True,
    reads: Reads,
) -> Table:
    """An input table of a run, all of it. Raises ``InputError`` where it, or a column, is missing; one that is not
    ``required`` is then empty. What is read of them is in ``reads``."""
    traffic = config.traffic
    given: InputTable | None = getattr(traffic, name)
    if frames is not None and name in frames:
        found, location = frames[name], name
        if given is not None and given.maps:
            return _mapped(found, given, name, name)
    elif frames is not None and given is None:
        if required:
            raise InputError(f"{name}: no frame is given; it is needed here")
        return _nothing(spark, name, frozenset(INPUTS[name].names), reads)
    elif given is None:
        location = f"{traffic.path.rstrip('/')}/{name}"
        _require_format(spark, location, traffic.format)
        files = direct.files_of(spark, location, name, traffic.format)
        if files is not None:
            return _of_this_machine(files, partial(lake.read, spark, traffic.path, name, traffic.format), location)
        there = None if required else lake.find(spark, traffic.path, name, traffic.format)
        if there is None and not required:
            return _nothing(spark, name, frozenset(INPUTS[name].names), reads)
        found = there or lake.read(spark, traffic.path, name, traffic.format)
    elif name == "membership" and traffic.inferred():
        return _nothing(spark, name, frozenset(), reads)
    elif given.from_ in ADAPTERS:
        return _of_files(spark, given, name, reads)
    else:
        if given.path is not None and given.from_ not in LIVE:
            _require_format(spark, given.path, given.format)
        location, read = given.location, reads.as_parquet(spark, given) if given.maps else given
        source = partial(opened, spark, read, f"traffic.{name}", config)
        if given.path is not None and not (given.from_ or given.maps or given.texts):
            files = direct.files_of(spark, given.path, name, given.format)
            if files is not None:
                return _of_this_machine(files, source, location)
        if given.maps:
            return _mapped_here(spark, source, given, read, name, reads) or _mapped(
                source(), given, name, f"traffic.{name}"
            )
        found = source()
    return _table(require(found, INPUTS[name], location), frozenset(INPUTS[name].names) - set(found.columns))


def _require_format(spark: SparkSession, path: str, form: str) -> None:
    """That files of this machine are of the format that they are read as. Raises as ``require_format`` does."""
    if local_delta.is_here(spark, path) and Path(path).exists():
        require_format(Path(path), form)


def _table(frame: DataFrame, absent: frozenset[str], **more: Any) -> Table:
    return Table(lambda: frame, absent, **more)


def _of_this_machine(files: Files, source: Callable[[], DataFrame], location: str) -> Table:
    """A table of such files; ``source`` opens it with Spark, where Spark is asked."""
    return Table(lambda: require(source(), INPUTS[files.table], location), files.absent, files=files)


def opened(spark: SparkSession, given: InputTable, key: str, config: RunConfig) -> DataFrame:
    """The rows of a source as they are. Raises ``InputError`` naming the location where there is no such table."""
    location = given.location
    if given.from_ in LIVE:
        return live.opened(spark, given, key, config.date, config.traffic.lookback_days)
    if given.path is not None and (why := lake.missing(spark, given.path, given.format)):
        raise _unreadable(given, key, why)
    try:
        if given.table is not None:
            found = spark.read.table(quoted(given.table))
        else:
            found = spark.read.format(given.format).options(**given.texts).load(given.path)
        found.schema  # noqa: B018  a missing table shows itself here, not in the middle of the run
    except AnalysisException as error:
        why = error.getCondition() or "unreadable"
        if why == _NO_AVRO:
            raise EnvironmentFailed(
                f"{key}: {location}: this Spark session cannot read {given.format}; give it the package for it "
                "(spark.conf: {spark.jars.packages: …})"
            ) from error
        if why in _TOLD_BY_SPARK:
            why += ": " + str(error).splitlines()[0].partition("] ")[2]
        raise _unreadable(given, key, why) from error
    return found


def _unreadable(given: InputTable, key: str, why: str) -> InputError:
    what = "table" if given.table is not None else f"readable {given.format} table"
    remedy = "correct path, table or format"
    if lake.PATTERN.search(str(given.path)) and why == "PATH_NOT_FOUND":
        remedy = "Spark takes * ? [ ] { } in a path for a pattern: give the file or folder another name"
    elif why == "PATH_NOT_FOUND":
        return InputError(f"{key}: {lake.not_there(str(given.path))}")
    return InputError(f"{key}: {given.location}: no {what} ({why}); {remedy}")


_NO_AVRO: Final = "_LEGACY_ERROR_TEMP_1139"
_TOLD_BY_SPARK: Final = ("COLUMN_ALREADY_EXISTS", "PARQUET_TYPE_ILLEGAL", "UNSUPPORTED_TIME_TYPE")


def _nothing(spark: SparkSession, name: str, absent: frozenset[str], reads: Reads) -> Table:
    """A table that is not there: as Spark has it, and in a session of this machine as a file without rows, which needs
    no Spark to be read."""
    rows, files = INPUTS[name].empty_table(), None
    if local_delta.is_here(spark, reads.folder(spark)):
        file = Path(reads.folder(spark), f"no-{name}.parquet")
        pq.write_table(rows, file)
        files = direct.files_of(spark, str(file), name, "parquet")
    return Table(partial(lake.of_arrow, spark, rows), absent, files=files)


class Reads:
    """What a run reads only once: what adapters read, of a source that fills several tables, and what Python converts.
    It is kept until ``close``."""

    def __init__(self) -> None:
        self._kept = KeptRows()
        self._found: dict[tuple[str, str, Options], Read] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._text: dict[str, InputTable] = {}

    def as_parquet(self, spark: SparkSession, given: InputTable) -> InputTable:
        """A source as it is read: files of text on this machine as one of Parquet, where they are not large."""
        path = given.path
        if path is None or not text_files.is_text(given.format, given.texts) or given.from_ in (*LIVE, *ADAPTERS):
            return given
        if not local_delta.is_here(spark, path) or not Path(path).exists():
            return given
        key = f"{path} {given.format} {given.texts}"
        if key not in self._text:
            file = Path(self.folder(spark), f"text-{len(self._text)}.parquet")
            made = text_files.as_parquet(Path(path), given.format, given.texts, file)
            update = {"path": str(file), "format": "parquet", "options": {}}
            self._text[key] = given.model_copy(update=update) if made else given
        return self._text[key]

    def of(self, spark: SparkSession, given: InputTable) -> Read:
        """What the adapter of an input table reads."""
        name, path, options = str(given.from_), str(given.path), given.of_adapter
        if (name, path, options) not in self._found:
            self._found[name, path, options] = sources.read(spark, self._kept, name, Path(path), options)
        return self._found[name, path, options]

    def once(self, rows: DataFrame) -> DataFrame:
        """The same rows, made only once."""
        return self._kept.keep(rows, StorageLevel.DISK_ONLY)

    def folder(self, spark: SparkSession) -> str:
        """A folder for what is read, where Spark has its own files; it is there until ``close``."""
        self._folder = self._folder or tempfile.TemporaryDirectory(prefix="subreplay-", dir=scratch(spark))
        return self._folder.name

    @contextmanager
    def closed_after_an_error(self) -> Iterator[None]:
        """Within it an error frees them; without one, whoever goes on with them has to."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Free what the session keeps of them."""
        self._kept.release()
        if self._folder is not None:
            self._folder.cleanup()


def _of_files(spark: SparkSession, given: InputTable, name: str, reads: Reads) -> Table:
    """A table that an adapter makes of files, with column ``rejected``. What is rejected of no table of ours, such as a
    line of a log, may have been a delivery."""
    read = reads.of(spark, given)
    rows = read.tables.get(name)
    if rows is None:
        raise InputError(f"traffic.{name}: {given.from_} tells nothing of {name}; it has {', '.join(read.tables)}")
    mine = F.col("table") == name
    if name == ("deliveries" if "deliveries" in read.tables else next(iter(read.tables))):
        mine = mine | ~F.col("table").isin(*INPUTS)
    lacking = read.rejected.where(mine).select(F.struct("file", "row", "raw", "reasons").alias("rejected"))
    told = read.told.run.get("traffic", {}).get(name, {})
    return _table(rows.unionByName(lacking, allowMissingColumns=True), frozenset(), told=told)


def _mapped_here(
    spark: SparkSession, source: Callable[[], DataFrame], given: InputTable, read: InputTable, name: str, reads: Reads
) -> Table | None:
    """A source on this machine, which is ``read`` so, in our columns: few rows, where none is rejected, are converted
    now, and many when they are read. None: Spark has to look."""
    theirs, key = direct.theirs_of(spark, read), f"traffic.{name}"
    if theirs is None:
        return None
    plan = _plan(given, theirs.columns, name, key)
    native = _by_spark(plan) is not None and BROKEN not in theirs.schema.names
    with suppress(pa.ArrowException, OSError):  # which Spark tells better
        if theirs.few(direct.IN_PROCESS):
            files = theirs.as_ours(plan, given.location, Path(reads.folder(spark), f"{name}.parquet"))
        else:
            files = mapped(theirs, plan, as_they_are=native)
        if files is not None:
            by_spark = partial(_mapped, given=given, name=name, key=key)
            absent = frozenset(plan.lacks)
            return Table(lambda: by_spark(source()).frame, absent, converted=not native, files=files)
    return None


def _plan(given: InputTable, theirs: pa.Schema, name: str, key: str) -> Plan:
    try:
        return plan_of(given.mapping, theirs, name)
    except (ConfigError, InputError) as error:
        raise type(error)(f"{key}: {error}") from error


def _mapped(found: DataFrame, given: InputTable, name: str, key: str) -> Table:
    """The rows of a source in our columns, with column ``rejected``."""
    beside = [column for column in HIDDEN if column in found.columns]
    plan = _plan(given, arrow_schema(found.drop(*beside, _CORRUPT).schema), name, key)
    absent = frozenset(plan.lacks)
    ways = _by_spark(plan)
    if ways is not None and not beside and not plan.by_time and _CORRUPT not in found.columns:
        return _table(found.select(*_native(plan, ways)), absent)
    columns = [found[f"`{column.replace('`', '``')}`"] for column in sorted(plan.read)]
    columns += [found[column] for column in beside]
    if plan.by_path and FILE not in beside:
        columns.append(_relative(given).alias(FILE))
    if _CORRUPT in found.columns:
        why = F.format_string("%,d characters that are no JSON object", F.length(_CORRUPT))
        columns.append(F.when(F.col(_CORRUPT).isNotNull(), why).alias(BROKEN))
    schema = pa.schema([*(f.with_nullable(True) for f in INPUTS[name]), pa.field("rejected", REJECTED)])
    location = given.location
    rows = found.select(*columns).mapInArrow(partial(_convert, plan, location, schema), spark_schema(schema))
    return _table(_numbered(rows) if plan.by_time else rows, absent, converted=True)


def _numbered(rows: DataFrame) -> DataFrame:
    """Messages with entries in the order of their times, in each topic partition (``plan.numbered``)."""
    placed = rows.withColumn("subreplay_at", F.monotonically_increasing_id())
    order = Window.partitionBy("topic", "partition").orderBy("publish_time", "subreplay_at")
    entry = F.when(F.col("rejected").isNull(), F.row_number().over(order).cast("long") - 1)
    return placed.withColumn("entry", entry).drop("subreplay_at")


def _convert(
    plan: Plan, location: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for table in gathered(batches):  # to convert a few rows costs as much as many
        (batch,) = table.to_batches()
        rows, rejected = convert(batch, plan, location)
        yield _with_rejected(rows, [None] * rows.num_rows, schema)
        if rejected:
            nothing = pa.RecordBatch.from_pylist([{}] * len(rejected), schema=pa.schema(list(schema)[:-1]))
            yield _with_rejected(nothing, [_row(each) for each in rejected], schema)


def _row(rejected: Rejected) -> dict[str, object]:
    return {name: getattr(rejected, name) for name in ("file", "row", "raw")} | {
        "reasons": [reason._asdict() for reason in rejected.reasons]
    }


def _with_rejected(rows: pa.RecordBatch, rejected: list[dict[str, object] | None], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [column.cast(schema.field(i).type) for i, column in enumerate(rows.columns)]
    return pa.RecordBatch.from_arrays([*arrays, pa.array(rejected, REJECTED)], schema=schema)


def _relative(given: InputTable) -> Column:
    """The path of a row's file below that of its source."""
    if given.path is None:
        raise ConfigError("the path of a file tells something only of a source that is given by path, not by table")
    plus = F.replace(F.col("_metadata.file_path"), F.lit("+"), F.lit("%2B"))  # which stands for a blank elsewhere
    root = F.lit(given.path.rstrip("/") + "/")
    return F.element_at(F.split(F.url_decode(plus), F.concat(F.lit(r"\Q"), root, F.lit(r"\E")), 2), -1)


def _by_spark(plan: Plan) -> dict[str, Callable[[], Column]] | None:
    """How Spark makes our columns, where a plan renames columns, or does what Spark does alike; None for another one.
    Nothing goes to Python then."""
    ways = {each.fills[0]: _set_aside(_done_by_spark(each, plan), each.fills[0], plan) for each in plan.taken}
    return {name: way for name, way in ways.items() if way is not None} if all(ways.values()) else None


def _native(plan: Plan, ways: Mapping[str, Callable[[], Column]]) -> list[Column]:
    """The columns of such a plan."""
    columns = {name: F.lit(value.as_py()) for name, value in plan.values.items()}
    columns |= {name: way() for name, way in ways.items()}
    at = F.coalesce(*(columns[name] for name in INSTANTS[plan.table] if name in columns))
    day = F.date_from_unix_date(F.call_function("div", F.unix_micros(at), F.lit(86_400_000_000)).cast("int"))
    columns["date"] = day
    wanted = spark_schema(INPUTS[plan.table])
    return [columns.get(f.name, F.lit(None)).cast(f.dataType).alias(f.name) for f in wanted]


def _set_aside(way: Callable[[], Column] | None, name: str, plan: Plan) -> Callable[[], Column] | None:
    """The same, but null for times that stand for none, as ``convert`` makes them."""
    field = INPUTS[plan.table].field(name)
    if way is None or not (field.nullable and pa.types.is_timestamp(field.type)):
        return way
    return lambda: F.when(~F.unix_micros(way()).between(*UNSET), way())


def _done_by_spark(taken: Taken, plan: Plan) -> Callable[[], Column] | None:
    """What makes a column of theirs ours; there must be a session when it does."""
    if taken.column is None or taken.parts or taken.how is None:
        return None
    theirs = partial(F.col, taken.theirs)
    (kind,) = (field.dataType for field in schema_of_files(pa.schema([("", taken.column.type)])))
    ours = spark_schema(INPUTS[plan.table])[taken.fills[0]].dataType
    if taken.how == "" and isinstance(kind, _WHOLE) and isinstance(ours, _WHOLE):
        least, most = _ENDS[type(ours)]
        if _ENDS[type(kind)][1] <= most:
            return theirs
        return lambda: F.greatest(F.least(theirs(), F.lit(most)), F.lit(least))
    if taken.how == "" and type(kind) is type(ours) and isinstance(kind, (StringType, BinaryType, TimestampType)):
        return theirs
    if taken.how == "length" and isinstance(kind, (StringType, BinaryType)):
        return lambda: F.octet_length(theirs())
    if taken.how == "epoch_us" and isinstance(kind, LongType):
        return lambda: F.timestamp_micros(theirs())
    if taken.how == "epoch_ms" and isinstance(kind, LongType):
        # what no time can be becomes one that no row may have
        return lambda: F.timestamp_micros(F.greatest(F.least(theirs(), F.lit(_MOST_MS)), F.lit(-_MOST_MS)) * 1_000)
    return None


_WHOLE: Final = (ByteType, ShortType, IntegerType, LongType)
_ENDS: Final = {kind: (-(2**bits), 2**bits - 1) for kind, bits in zip(_WHOLE, (7, 15, 31, 63), strict=True)}
_MOST_MS: Final = 2**53
