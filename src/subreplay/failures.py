"""Explain in one sentence why a run failed: errors of the system, Spark, Java and Delta become errors a user can fix.

Spark's errors are classified by the text of the error and its causes. The same failure arrives as an exception of
Python, of Java or of Spark Connect, and the class says little. So this module never imports pyspark.
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


class FailurePattern(NamedTuple):
    """A text that identifies a failure, what it means, and what to do; the first pattern that matches counts."""

    pattern: str
    kind: type[SubreplayError]
    meaning: str
    remedy: str


FAILURE_PATTERNS = (
    FailurePattern(
        r"No space left on device|Disk quota exceeded",
        EnvironmentFailed,
        "no space is left on the device",
        "free some space, or write to another folder (--out, output.tables; Spark's own files: spark.local.dir)",
    ),
    FailurePattern(
        r"Could not parse Master URL|INVALID_CONNECT_URL|Invalid Spark URL|Master must either be",
        ConfigError,
        "Spark does not understand its address",
        "correct spark.master (such as local[2]) or spark.remote (sc://host:port)",
    ),
    FailurePattern(
        r"PACKAGE_NOT_INSTALLED|UNSUPPORTED_PACKAGE_VERSION",
        EnvironmentFailed,
        "a package that Spark needs is missing or too old",
        EXTRA,
    ),
    FailurePattern(
        r"Failed to find (?:the )?data source: (?!delta)\w+",
        EnvironmentFailed,
        "this Spark session cannot read that format",
        "give it the package for it (spark.conf: {spark.jars.packages: …})",
    ),
    FailurePattern(
        r"DATA_SOURCE_NOT_FOUND|Failed to find data source: delta|io\.delta\.sql\.DeltaSparkSessionExtension",
        EnvironmentFailed,
        "this Spark session has no Delta",
        "start it with the package io.delta:delta-spark, as section On a cluster of the README shows",
    ),
    FailurePattern(
        r"org\.apache\.kafka\.(?:common\.errors|common\.KafkaException)|KafkaIllegalState|KAFKA_",
        EnvironmentFailed,
        "Kafka did not answer the request",
        "check kafka.bootstrap.servers, the topic and the client's settings, and that the cluster is up",
    ),
    FailurePattern(
        r"_pulsar\.\w+|Pulsar error: ",
        EnvironmentFailed,
        "Pulsar did not answer the request",
        "check service_url, topic and token, and that the cluster is up",
    ),
    FailurePattern(
        r"OutOfMemoryError|Cannot allocate memory|insufficient memory|Could not allocate \d+ bytes|realloc of size",
        EnvironmentFailed,
        "memory ran out",
        "raise spark.driver_memory, or set spark.master to fewer cores",
    ),
    FailurePattern(
        r"ConcurrentAppendException|ConcurrentDelete|ConcurrentTransaction|DELTA_CONCURRENT|DELTA_METADATA_CHANGED"
        r"|DELTA_PROTOCOL_CHANGED",
        EnvironmentFailed,
        "another run has changed the same table in the meantime",
        "run this one again",
    ),
    FailurePattern(
        r"DELTA_FAILED_TO_MERGE_FIELDS|DELTA_MERGE_INCOMPATIBLE|DELTA_PARTITION_COLUMN|DELTA_.*PARTITION.*MISMATCH"
        r"|DELTA_UNSUPPORTED_FEATURES|DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION|DELTA_MISSING_TRANSACTION_LOG",
        ConfigError,
        "the output folder holds tables of another kind",
        "write to a folder of its own (--out, output.tables)",
    ),
    FailurePattern(
        r"QUERY_ONLY_CORRUPT_RECORD_COLUMN",
        InputError,
        "no line of the file is a record by itself",
        "write one JSON object on each line (jq -c .)",
    ),
    FailurePattern(
        r"is not a Parquet file|CANNOT_READ_FILE|FAILED_READ_FILE|ParquetDecodingException|Could not read footer"
        r"|DELTA_STATE_RECOVER|DELTA_TRUNCATED|DELTA_LOG_|DELTA_CHECKPOINT|DELTA_VERSIONS_NOT_CONTIGUOUS|DELTA_FILE"
        r"|DELTA_MISSING_PART|DELTA_INVALID_COMMITTED|MALFORMED_RECORD|ParseException: Unexpected|JsonParseException"
        r"|JsonEOFException|FileNotFoundException|ChecksumException|File .* does not exist|InvalidProtobuf"
        r"|Expected magic number|DELTA_ERROR_READING|corrupt",
        EnvironmentFailed,
        "a file of a table is damaged, cut off or gone",
        "restore the table, or write it again (subreplay ingest)",
    ),
    FailurePattern(
        r"Permission denied|Read-only file system|Operation not permitted|Mkdirs failed|AccessDenied|AccessControl"
        r"|Unable to create|ParentNotDirectory|Not a directory|Could not create|failed to create",
        EnvironmentFailed,
        "a file or folder cannot be read or written",
        "check its permissions, or choose another folder (--tables, --out)",
    ),
    FailurePattern(
        r"PYTHON_VERSION_MISMATCH|ModuleNotFoundError|Cannot run program|Python worker failed to connect",
        EnvironmentFailed,
        "Spark's Python workers cannot start, or lack a package",
        "install subreplay where they run, and set PYSPARK_PYTHON to that Python",
    ),
    FailurePattern(
        r"Python worker exited|Python worker .*crashed|python worker .*(died|killed)|StreamClosed|EOFException",
        EnvironmentFailed,
        "a Python worker of Spark ended during the run",
        "run it again; if memory ran out, raise spark.driver_memory, or set spark.master to fewer cores",
    ),
    FailurePattern(
        r"StatusCode\.UNAVAILABLE|failed to connect to all addresses|DNS resolution failed|StatusCode\.DEADLINE"
        r"|StatusCode\.UNAUTHENTICATED|SESSION_CLOSED|SESSION_CHANGED|SESSION_NOT_FOUND|OPERATION_NOT_FOUND",
        EnvironmentFailed,
        "the Spark Connect server does not answer",
        "check that it is running and that spark.remote is its address",
    ),
    FailurePattern(
        r"Call From \S+ to \S+ failed on",  # as Hadoop says it of a file system
        EnvironmentFailed,
        "a store does not answer",
        "check its address (in the path, or fs.defaultFS in core-site.xml) and that this machine can reach it",
    ),
    FailurePattern(
        r"Py4JNetworkError|ConnectionRefusedError|ConnectionResetError|BrokenPipeError|Answer from Java side is empty"
        r"|Connection refused|SparkContext was shut ?down|stopped SparkContext|SparkContext has been shutdown"
        r"|does not exist in the JVM|Error while sending or receiving"
        r"|SparkContext or SparkSession should be created first"
        r"|(?m:Py4JError: An error occurred while calling \S+$)",  # no Java error behind it: the process was gone
        EnvironmentFailed,
        "Spark's Java process ended during the run",
        "run it again; if memory ran out, give it more (spark.driver_memory)",
    ),
)


def explain_failure(error: Exception) -> SubreplayError | None:
    """Return the failure behind an exception as an error for the user, or None if it is a bug in subreplay."""
    if isinstance(error, SubreplayError):
        return error
    if isinstance(error, ModuleNotFoundError) and str(error.name).split(".")[0] in _OF_SPARK:
        return EnvironmentFailed(f"this command needs package {error.name}, which is not installed: {EXTRA}")
    if isinstance(error, MemoryError):
        return EnvironmentFailed("memory ran out; use a machine with more memory, or less data at a time (--date)")
    if isinstance(error, UnicodeEncodeError) and error.encoding not in _UTF_8:  # UTF-8 can write every letter
        letter = ascii(error.object[error.start])
        message = f"the output's encoding {error.encoding} cannot write {letter}; set PYTHONIOENCODING=utf-8"
        return EnvironmentFailed(message)
    if any(type(each).__module__.startswith(_OF_SPARK) for each in _list_causes(error)):
        return _explain_spark_error(error)
    return describe_os_error(error) if isinstance(error, OSError) else None


def describe_os_error(error: OSError, path: object = None, doing: str = "read or written") -> SubreplayError:
    """Describe an error of the operating system about a file: a wrong name, or a failure of the environment."""
    location = path if path is not None else error.filename or "a file"
    why = error.strerror or str(error) or type(error).__name__
    if error.errno in _WRONG_KIND:
        return InputError(f"{location}: cannot be {doing}: {why}; check the name")
    remedy = "free some space" if error.errno in _FULL else "check its permissions, or choose another place"
    return EnvironmentFailed(f"{location}: cannot be {doing}: {why}; {remedy}")


def describe_read_error(error: Exception, path: object) -> SubreplayError:
    """Describe why a (gzip) text file cannot be read: it is truncated, unreadable, or in another format."""
    damaged = isinstance(error, gzip.BadGzipFile) and "Not a gzipped file" not in str(error)
    if damaged or isinstance(error, (EOFError, zlib.error)):
        return EnvironmentFailed(f"{path}: cannot be read: damaged or cut off ({error}); copy or record it again")
    if isinstance(error, OSError) and error.errno is not None:
        return describe_os_error(error, path, "read")
    return InputError(f"{path}: cannot be read as (gzip) JSON lines: {error}; check the format")


def _explain_spark_error(error: Exception) -> SubreplayError:
    text = "\n".join(f"{type(cause).__name__}: {_read_message(cause)}" for cause in _list_causes(error))
    if own := _WORKERS_OWN.search(text):
        return {"InputError": InputError, "ConfigError": ConfigError}.get(own[1], EnvironmentFailed)(own[2])
    if "JAVA_GATEWAY_EXITED" in text:
        return EnvironmentFailed(_explain_java_failure())
    found = _FILE.search(text)
    location = f"{found[1]}: " if found else ""
    if mismatch := _TYPES.search(text):
        name, expected, actual = mismatch.groups()
        return InputError(
            f"{location}column {name} has type {actual} in this file, but {expected} in the schema of the table. "
            "The schema comes from another file, or from Spark's metadata in this one. Write every file with one type."
        )
    for known in FAILURE_PATTERNS:
        if re.search(known.pattern, text):
            return known.kind(f"{location}{known.meaning}; {known.remedy}")
    first = next((line.strip() for line in _read_message(error).splitlines() if line.strip()), type(error).__name__)
    return EnvironmentFailed(f"Spark failed: {first[:300]}")


def _explain_java_failure() -> str:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(os.path.join(home, "bin", "java") if home else "java")
    if java is None:
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "there is no java on the PATH"
        return f"Spark needs Java 17 or newer: {where}; install it, or set JAVA_HOME"
    return (
        f"Spark did not start with {java}; check that it is Java 17 or newer, that spark.driver_memory and spark.conf "
        "suit it, and that its packages can be fetched"
    )


def _list_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and its causes."""
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        following = following.__cause__ or (None if following.__suppress_context__ else following.__context__)


def _read_message(error: Any) -> str:
    try:
        return str(error)
    except Exception:  # a Java exception whose Java process has ended
        return ""
