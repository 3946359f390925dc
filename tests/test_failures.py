"""What broke a run off, told from what Spark, Java and the system leave: kind, sentence and remedy."""

import errno
import shutil

import pytest

from subreplay.errors import ConfigError, EnvironmentFailed, InputError
from subreplay.failures import describe_os_error, explain_failure


class OfSpark(Exception):
    """As pyspark raises them."""


OfSpark.__module__ = "pyspark.errors.exceptions.captured"

TOLD = """
java.io.IOException: No space left on device                                     | no space is left on the device
[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number | Java 17 or newer
org.apache.spark.SparkException: Could not parse Master URL: 'lokal'             | ! spark.master
[PACKAGE_NOT_INSTALLED] grpcio >= 1.76.0 must be installed                       | pip install 'subreplay[spark]'
[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta                    | this Spark session has no Delta
java.lang.OutOfMemoryError: Java heap space                                      | raise spark.driver_memory
io.delta.exceptions.ConcurrentAppendException: [DELTA_CONCURRENT_APPEND] files   | run this one again
[DELTA_FAILED_TO_MERGE_FIELDS] Failed to merge fields 'date' and 'date'          | ! a folder of its own
file:/t/messages/p.parquet is not a Parquet file. Expected magic number at tail  | /t/messages/p.parquet: a file
com.fasterxml.jackson.core.JsonParseException: Unrecognized token                | is damaged, cut off or gone
java.io.FileNotFoundException: File file:/t/a b/x.json does not exist            | /t/a b/x.json: a file of a table
java.nio.file.AccessDeniedException: /out                                        | check its permissions
java.io.IOException: Mkdirs failed to create file:/proc/x (exists=false)         | /proc/x: a file or folder cannot be
[PYTHON_VERSION_MISMATCH] Python in worker has different version                 | install subreplay where they run
Python worker exited unexpectedly (crashed)                                      | a Python worker of Spark ended
<_InactiveRpcError StatusCode.UNAVAILABLE failed to connect to all addresses>    | the Spark Connect server does not
py4j.protocol.Py4JNetworkError: Answer from Java side is empty                   | Spark's Java process ended
Py4JError: org.apache.spark.api.python.PythonUtils.toSeq does not exist in the JVM | Spark's Java process ended
java.net.ConnectException: Call From h to s:8020 failed on x: Connection refused | a store does not answer
[Errno 111] Connection refused                                                   | Spark's Java process ended
subreplay.errors.InputError: s: no membership                                    | ! s: no membership
Parquet column `[size]`. Expected Spark type int, actual Parquet type INT64      | ! column size has type INT64
[SOMETHING_NEW] nobody has seen this                                             | Spark failed: [SOMETHING_NEW]
"""


@pytest.mark.parametrize("line", TOLD.strip().splitlines())
def test_a_failure_of_spark_has_a_sentence(line):
    reported, _, sentence = (part.strip() for part in line.partition(" | "))
    found = explain_failure(OfSpark(reported))
    assert isinstance(found, (ConfigError, InputError) if sentence.startswith("!") else EnvironmentFailed)
    assert sentence.removeprefix("! ") in str(found)


def test_what_caused_it_counts():
    error = OfSpark("[TASK_WRITE_FAILED] Task failed while writing rows")
    error.__cause__ = OfSpark("Caused by: java.io.IOException: No space left on device")
    assert "no space is left" in str(explain_failure(error))


def test_a_missing_java_is_said_to_be_missing(monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "there is no java on the PATH; install it" in str(explain_failure(OfSpark("[JAVA_GATEWAY_EXITED]")))
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert "JAVA_HOME is /nowhere, which has no bin/java" in str(explain_failure(OfSpark("[JAVA_GATEWAY_EXITED]")))


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOENT, InputError),
        (errno.EISDIR, InputError),
        (errno.EACCES, EnvironmentFailed),
        (errno.EROFS, EnvironmentFailed),
        (errno.ENOSPC, EnvironmentFailed),
        (errno.EIO, EnvironmentFailed),
    ],
)
def test_an_error_of_the_system_is_of_the_name_or_of_the_environment(number, kind):
    assert type(describe_os_error(OSError(number, "why", "/x"))) is kind


@pytest.mark.parametrize("error", [KeyError("batch_index"), ValueError("zip()"), ModuleNotFoundError("x", name="x")])
def test_an_unexplained_error_counts_as_a_bug(error):
    assert explain_failure(error) is None


def test_memory():
    assert "memory ran out" in str(explain_failure(MemoryError()))


def test_an_unencodable_output_is_an_environment_error_and_half_a_character_is_a_bug():
    def failing(text, encoding):
        with pytest.raises(UnicodeEncodeError) as error:
            text.encode(encoding)
        return explain_failure(error.value)

    said = failing("Bestellung f\xfcr", "ascii")
    assert type(said) is EnvironmentFailed
    assert str(said) == "the output's encoding ascii cannot write '\\xfc'; set PYTHONIOENCODING=utf-8"
    assert "charmap cannot write '\\u263a'" in str(failing("\u263a", "cp1252"))
    assert failing("\ud800", "utf-8") is None
