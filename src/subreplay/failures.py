"""What broke a run off, in one sentence: errors of the system, of Spark, Java and Delta, as errors a user can act on.

Spark's errors are told apart by what stands in them and in their causes: the same failure comes as an exception of
Python, of Java or of Spark Connect, and its class says little. So nothing here imports pyspark, which may be missing.
"""

from __future__ import annotations

import errno
import gzip
import os
import re
import shutil
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from subreplay.errors import ConfigError, EnvironmentFailed, InputError, SubreplayError

EXTRA = "pip install 'subreplay[spark]'"
_OF_SPARK = ("pyspark", "py4j", "grpc", "delta")
_TYPES = re.compile(r"Parquet column `?\[?`?([^`\]]+)`?\]?`?\. Expected Spark type (\w+), actual Parquet type (\w+)")
_WORKERS_OWN = re.compile(r"subreplay\.errors\.(InputError|ConfigError|EnvironmentFailed): ([^\n]+)")
_FILE = re.compile(r"file:(?://)?(/[^\n'\"]*?\.(?:parquet|json|crc)\b|/[^\s,;:'\"\])]+)")
_WRONG_KIND = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL)
_FULL = (errno.ENOSPC, errno.EDQUOT)
_UTF_8 = ("utf-8", "utf8")


class Sign(NamedTuple):
    """What a failure is known by, what it means and what to do; the first sign that is found counts."""

    pattern: str
    kind: type[SubreplayError]
    meaning: str
    remedy: str


SIGNS = (
    Sign(
        r"No space left on device|Disk quota exceeded",
        EnvironmentFailed,
        "no space is left on the device",
        "free some, or write to another folder (--out, output.tables; Spark's own files: spark.conf, spark.local.dir)",
    ),
    Sign(
        r"Could not parse Master URL|INVALID_CONNECT_URL|Invalid Spark URL|Master must either be",
        ConfigError,
        "Spark does not understand the address it was given",
        "correct spark.master (such as local[2]) or spark.remote (sc://host:port)",
    ),
    Sign(
        r"PACKAGE_NOT_INSTALLED|UNSUPPORTED_PACKAGE_VERSION",
        EnvironmentFailed,
        "a package that Spark needs is missing or too old",
        EXTRA,
    ),
    Sign(
        r"Failed to find (?:the )?data source: (?!delta)\w+",
        EnvironmentFailed,
        "this Spark session cannot read that format",
        "give it the package for it (spark.conf: {spark.jars.packages: …})",
    ),
    Sign(
        r"DATA_SOURCE_NOT_FOUND|Failed to find data source: delta|io\.delta\.sql\.DeltaSparkSessionExtension",
        EnvironmentFailed,
        "this Spark session has no Delta",
        "start it with the package io.delta:delta-spark, as section On a cluster of the README shows",
    ),
    Sign(
        r"org\.apache\.kafka\.(?:common\.errors|common\.KafkaException)|KafkaIllegalState|KAFKA_",
        EnvironmentFailed,
        "Kafka did not give what was asked for",
        "are kafka.bootstrap.servers, the topic and the client's settings right, and does the cluster answer?",
    ),
    Sign(
        r"_pulsar\.\w+|Pulsar error: ",
        EnvironmentFailed,
        "Pulsar did not give what was asked for",
        "are service_url, topic and token right, and does the cluster answer?",
    ),
    Sign(
        r"OutOfMemoryError|Cannot allocate memory|insufficient memory|Could not allocate \d+ bytes|realloc of size",
        EnvironmentFailed,
        "memory ran out",
        "raise spark.driver_memory, or lower spark.master to fewer cores",
    ),
    Sign(
        r"ConcurrentAppendException|ConcurrentDelete|ConcurrentTransaction|DELTA_CONCURRENT|DELTA_METADATA_CHANGED"
        r"|DELTA_PROTOCOL_CHANGED",
        EnvironmentFailed,
        "another run has changed the same table in the meantime",
        "run this one again",
    ),
    Sign(
        r"DELTA_FAILED_TO_MERGE_FIELDS|DELTA_MERGE_INCOMPATIBLE|DELTA_PARTITION_COLUMN|DELTA_.*PARTITION.*MISMATCH"
        r"|DELTA_UNSUPPORTED_FEATURES|DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION|DELTA_MISSING_TRANSACTION_LOG",
        ConfigError,
        "the output folder holds tables of another kind",
        "write to a folder of its own (--out, output.tables)",
    ),
    Sign(
        r"QUERY_ONLY_CORRUPT_RECORD_COLUMN",
        InputError,
        "no line of the file is a record of its own",
        "write one JSON object a line (jq -c .)",
    ),
    Sign(
        r"is not a Parquet file|CANNOT_READ_FILE|FAILED_READ_FILE|ParquetDecodingException|Could not read footer"
        r"|DELTA_STATE_RECOVER|DELTA_TRUNCATED|DELTA_LOG_|DELTA_CHECKPOINT|DELTA_VERSIONS_NOT_CONTIGUOUS|DELTA_FILE"
        r"|DELTA_MISSING_PART|DELTA_INVALID_COMMITTED|MALFORMED_RECORD|ParseException: Unexpected|JsonParseException"
        r"|JsonEOFException|FileNotFoundException|ChecksumException|File .* does not exist|InvalidProtobuf"
        r"|Expected magic number|DELTA_ERROR_READING|corrupt",
        EnvironmentFailed,
        "a file of a table is damaged, cut off or gone",
        "restore the table, or write it anew (subreplay ingest)",
    ),
    Sign(
        r"Permission denied|Read-only file system|Operation not permitted|Mkdirs failed|AccessDenied|AccessControl"
        r"|Unable to create|ParentNotDirectory|Not a directory|Could not create|failed to create",
        EnvironmentFailed,
        "a file or folder cannot be read or written",
        "check its permissions, or choose another folder (--tables, --out)",
    ),
    Sign(
        r"PYTHON_VERSION_MISMATCH|ModuleNotFoundError|Cannot run program|Python worker failed to connect",
        EnvironmentFailed,
        "Spark's Python workers cannot start, or lack a package",
        "install subreplay where they run, and let PYSPARK_PYTHON name that Python",
    ),
    Sign(
        r"Python worker exited|Python worker .*crashed|python worker .*(died|killed)|StreamClosed|EOFException",
        EnvironmentFailed,
        "a Python worker of Spark ended in the middle",
        "run it again; if memory ran out, give it more or lower spark.master to fewer cores",
    ),
    Sign(
        r"StatusCode\.UNAVAILABLE|failed to connect to all addresses|DNS resolution failed|StatusCode\.DEADLINE"
        r"|StatusCode\.UNAUTHENTICATED|SESSION_CLOSED|SESSION_CHANGED|SESSION_NOT_FOUND|OPERATION_NOT_FOUND",
        EnvironmentFailed,
        "the Spark Connect server does not answer",
        "is it running, and is spark.remote its address?",
    ),
    Sign(
        r"Call From \S+ to \S+ failed on",  # as Hadoop says it of a file system
        EnvironmentFailed,
        "a store does not answer",
        "is its address right (that of the path, or fs.defaultFS in core-site.xml), and can it be reached from here?",
    ),
    Sign(
        r"Py4JNetworkError|ConnectionRefusedError|ConnectionResetError|BrokenPipeError|Answer from Java side is empty"
        r"|Connection refused|SparkContext was shut ?down|stopped SparkContext|SparkContext has been shutdown"
        r"|does not exist in the JVM|Error while sending or receiving"
        r"|SparkContext or SparkSession should be created first"
        r"|(?m:Py4JError: An error occurred while calling \S+$)",  # with nothing of Java behind it: it was gone
        EnvironmentFailed,
        "Spark's Java process ended in the middle",
        "run it again; if memory ran out, give it more (spark.driver_memory)",
    ),
)


def explained(error: Exception) -> SubreplayError | None:
    """The failure behind an exception, or None where it is a fault of subreplay."""
    if isinstance(error, SubreplayError):
        return error
    if isinstance(error, ModuleNotFoundError) and str(error.name).split(".")[0] in _OF_SPARK:
        return EnvironmentFailed(f"this command needs package {error.name}, which is not installed: {EXTRA}")
    if isinstance(error, MemoryError):
        return EnvironmentFailed("memory ran out; run it where there is more, or on less data at a time (--date)")
    if isinstance(error, UnicodeEncodeError) and error.encoding not in _UTF_8:  # which takes every letter
        letter = ascii(error.object[error.start])
        return EnvironmentFailed(f"the output takes no {letter} (it is {error.encoding}): set PYTHONIOENCODING=utf-8")
    if any(type(each).__module__.startswith(_OF_SPARK) for each in _chain(error)):
        return _of_spark(error)
    return of_system(error) if isinstance(error, OSError) else None


def of_system(error: OSError, path: object = None, doing: str = "read or written") -> SubreplayError:
    """An error of the operating system about a file: of the name that was given, or of the environment."""
    location = path if path is not None else error.filename or "a file"
    why = error.strerror or str(error) or type(error).__name__
    if error.errno in _WRONG_KIND:
        return InputError(f"{location}: cannot be {doing}: {why}; is the name right?")
    remedy = "free some" if error.errno in _FULL else "check its permissions, or choose another place"
    return EnvironmentFailed(f"{location}: cannot be {doing}: {why}; {remedy}")


def of_lines(error: Exception, path: object) -> SubreplayError:
    """What went wrong while a (gzip) text file was read: it is cut off, cannot be read, or is of another kind."""
    unzipped = isinstance(error, gzip.BadGzipFile) and "Not a gzipped file" not in str(error)
    if unzipped or isinstance(error, (EOFError, zlib.error)):
        return EnvironmentFailed(f"{path}: cannot be read: damaged or cut off ({error}); copy or record it again")
    if isinstance(error, OSError) and error.errno is not None:
        return of_system(error, path, "read")
    return InputError(f"{path}: cannot be read: {error}; is it really (gzip) JSON lines?")


def _of_spark(error: Exception) -> SubreplayError:
    told = "\n".join(_told(error))
    if own := _WORKERS_OWN.search(told):
        return {"InputError": InputError, "ConfigError": ConfigError}.get(own[1], EnvironmentFailed)(own[2])
    if "JAVA_GATEWAY_EXITED" in told:
        return EnvironmentFailed(_no_java())
    found = _FILE.search(told)
    location = f"{found[1]}: " if found else ""
    if differing := _TYPES.search(told):
        name, wanted, given = differing.groups()
        return InputError(
            f"{location}column {name} is {given} here, and {wanted} by the schema of its table, which another file "
            "tells, or Spark's own note in this one; write every file with one type, without notes of another schema"
        )
    for sign in SIGNS:
        if re.search(sign.pattern, told):
            return sign.kind(f"{location}{sign.meaning}; {sign.remedy}")
    first = next((line.strip() for line in _message(error).splitlines() if line.strip()), type(error).__name__)
    return EnvironmentFailed(f"Spark broke off: {first[:300]}")


def _no_java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(os.path.join(home, "bin", "java") if home else "java")
    if java is None:
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "there is no java on the PATH"
        return f"Spark needs Java 17 or newer: {where}; install it, or set JAVA_HOME"
    return (
        f"Spark did not start with {java}: is it Java 17 or newer, do spark.driver_memory and spark.conf suit it, and "
        "can its packages be fetched?"
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception and what it came from."""
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        following = following.__cause__ or (None if following.__suppress_context__ else following.__context__)


def _told(error: BaseException) -> Iterator[str]:
    """Class, message and, where Spark kept it, Java's stack trace of an exception and its causes."""
    for each in _chain(error):
        yield f"{type(each).__name__}: {_message(each)}"


def _message(error: Any) -> str:
    try:
        return str(error)
    except Exception:  # of a Java exception whose Java process has ended
        return ""
