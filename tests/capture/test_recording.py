from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay import capture
from subreplay.rows.model.key_masking import KeyMasking
from tests.support import consumers as fakes
from tests.support.captured import rows, wait_for
from tests.support.consumers import KafkaMessage, MessageId, PulsarMessage
from tests.support.properties import examples

ROOT = Path(__file__).parents[2]


def child(code: str, *arguments: str) -> subprocess.Popen[str]:
    """A process of its own that runs this code."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": paths},
    )


ENDLESS = """
import sys, time
from collections import deque
from subreplay import capture
from tests.support import consumers as fakes
client = fakes.KafkaConsumer()
consumer = capture.wrap(client, sys.argv[1], subscription="g", flush_seconds=0.2, rotate_rows=60)
for n in range(100_000):
    client.messages.append(fakes.KafkaMessage(n))
    consumer.poll()
    print(consumer.recording.counts.flushed, flush=True)
    time.sleep(0.002)
"""


@pytest.mark.long
def test_what_was_flushed_outlives_a_killed_process(tmp_path: Path) -> None:
    with child(ENDLESS, str(tmp_path)) as process:
        assert process.stdout is not None
        flushed = 0
        while flushed < 150:  # so that files were rotated, and one is open
            flushed = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        flushed = max([flushed, *(int(line) for line in process.stdout.read().splitlines() if line)])

    found = rows(tmp_path)
    assert len(found) >= flushed
    assert [row["seq"] for row in found] == list(range(len(found)))
    assert [row["entry"] for row in found][1:] == list(range(len(found) - 1))


@pytest.mark.long
def test_a_process_that_ends_without_closing_loses_nothing(tmp_path: Path) -> None:
    code = """
import sys
from collections import deque
from subreplay import capture
from tests.support import consumers as fakes
consumer = capture.wrap(fakes.KafkaConsumer(deque(map(fakes.KafkaMessage, range(10)))), sys.argv[1], subscription="g")
consumer.consume(10)
"""
    with child(code, str(tmp_path)) as process:
        assert process.wait() == 0
    assert len(rows(tmp_path)) == 11
    assert len(list(tmp_path.glob("*.parquet"))) == 1


@pytest.mark.long
def test_importing_it_imports_no_heavy_package() -> None:
    code = "import json, sys, subreplay.capture; print(json.dumps(sorted(sys.modules)))"
    process = child(code)
    modules = json.loads(process.communicate()[0])
    packages = {name.partition(".")[0] for name in modules}
    assert not packages & {"pyspark", "numba", "pandas", "pydantic", "jinja2", "altair", "pulsar", "confluent_kafka"}
    own = [name for name in modules if name.startswith("subreplay")]
    assert all(name == "subreplay" or name.startswith("subreplay.capture") for name in own), own


@pytest.fixture
def unwritable(tmp_path: Path) -> Path:
    """A folder that cannot be made, as a file has its name."""
    (tmp_path / "captured").write_text("no folder")
    return tmp_path / "captured"


@pytest.mark.long
def test_a_folder_that_cannot_be_written_breaks_nothing(unwritable: Path, caplog: pytest.LogCaptureFixture) -> None:
    client = fakes.KafkaConsumer(deque(map(KafkaMessage, range(100))))
    with caplog.at_level(logging.WARNING, "subreplay.capture"):
        consumer = capture.wrap(client, unwritable, subscription="g", flush_seconds=0.01, buffer_rows=50)
        for _ in range(2):
            assert len(consumer.consume(50)) == 50
            before = consumer.recording.counts.errors
            wait_for(lambda before=before: consumer.recording.counts.errors >= before + 2)
        consumer.close()

    counts = consumer.recording.counts
    assert counts.flushed == 0
    assert counts.seen == 103 == counts.waiting + counts.dropped
    assert counts.waiting <= 50
    failed = [record for record in caplog.records if "recording failed" in record.message]
    assert len(failed) == 1  # once, though every flush fails
    assert failed[0].exc_info is not None


def test_what_a_disk_did_not_take_is_written_when_it_does(unwritable: Path) -> None:
    consumer = capture.wrap(
        fakes.KafkaConsumer(deque(map(KafkaMessage, range(9)))), unwritable, subscription="g", flush_seconds=0.01
    )
    consumer.consume(9)
    wait_for(lambda: consumer.recording.counts.errors > 0)
    unwritable.unlink()
    wait_for(lambda: consumer.recording.counts.flushed == 10)
    consumer.close()
    assert [row["entry"] for row in rows(unwritable)][1:10] == list(range(9))


def test_a_full_buffer_drops_counts_and_leaves_a_gap(tmp_path: Path) -> None:
    consumer = capture.wrap(
        fakes.KafkaConsumer(deque(map(KafkaMessage, range(1_000)))), tmp_path, subscription="g", buffer_rows=100
    )
    consumer.consume(1_000)
    consumer.close()

    counts = consumer.recording.counts
    found = [row["seq"] for row in rows(tmp_path)]
    assert counts.seen == 1_003
    assert counts.dropped > 0
    assert counts.flushed == len(found) == counts.seen - counts.dropped
    assert found == sorted(set(found))
    assert found[-1] == 1_002


def test_what_comes_after_closing_is_counted_as_dropped(tmp_path: Path) -> None:
    consumer = capture.wrap(fakes.KafkaConsumer(deque([KafkaMessage(0)])), tmp_path, subscription="g")
    consumer.close()
    assert consumer.poll().offset() == 0
    assert consumer.recording.counts.dropped == 1


@pytest.mark.long
def test_a_file_is_finished_after_so_many_rows(tmp_path: Path) -> None:
    client = fakes.KafkaConsumer()
    consumer = capture.wrap(client, tmp_path, subscription="g", flush_rows=10, rotate_rows=20)
    for n in range(4):
        client.messages.extend(KafkaMessage(20 * n + i) for i in range(20))
        consumer.consume(20)
        wait_for(lambda n=n: consumer.recording.counts.flushed >= 20 * n + 20)
    consumer.close()

    sizes = [pq.ParquetFile(path).metadata.num_rows for path in sorted(tmp_path.glob("*.parquet"))]
    assert len(sizes) >= 4
    assert sum(sizes) == 83
    assert all(size >= 20 for size in sizes[:-1])
    assert not list(tmp_path.glob("_open/*"))


@pytest.mark.long
def test_a_file_is_finished_after_so_long(tmp_path: Path) -> None:
    consumer = capture.wrap(
        fakes.KafkaConsumer(deque([KafkaMessage(0)])),
        tmp_path,
        subscription="g",
        flush_seconds=0.05,
        rotate_seconds=0.3,
    )
    consumer.poll()
    wait_for(lambda: len(list(tmp_path.glob("*.parquet"))) == 1)
    time.sleep(0.5)  # nothing happened since, so there is no file without rows
    consumer.close()
    assert [pq.ParquetFile(path).metadata.num_rows for path in sorted(tmp_path.glob("*.parquet"))] == [2, 2]


def test_flushes_that_were_merged_already_are_not_read_twice(tmp_path: Path) -> None:
    consumer = capture.wrap(fakes.KafkaConsumer(deque([KafkaMessage(0)])), tmp_path, subscription="g")
    consumer.poll()
    consumer.close()
    (finished,) = capture.list_capture_files(tmp_path)
    left = tmp_path / "_open" / finished.stem
    left.mkdir(parents=True)
    (left / "000000.parquet").write_bytes(finished.read_bytes())
    (left / "000001.tmp").write_bytes(b"half a fi")
    assert capture.list_capture_files(tmp_path) == [finished]
    finished.unlink()
    assert capture.list_capture_files(tmp_path) == [left / "000000.parquet"]


def test_the_former_name_of_the_list_of_files_warns(tmp_path: Path) -> None:
    with pytest.warns(DeprecationWarning, match="subreplay.capture.files is now list_capture_files"):
        former = capture.files
    assert former(tmp_path) == capture.list_capture_files(tmp_path) == []
    with pytest.raises(AttributeError, match="file_names"):
        capture.file_names  # noqa: B018


def test_metadata_name_the_consumer_of_a_file(tmp_path: Path) -> None:
    capture.wrap(fakes.PulsarConsumer(), tmp_path, subscription_type="Shared").close()
    (path,) = capture.list_capture_files(tmp_path)
    reported = json.loads(pq.read_schema(path).metadata[b"subreplay.capture"])
    assert reported["version"] == capture.VERSION
    assert (reported["library"], reported["subscription"], reported["subscription_type"]) == (
        "pulsar-client",
        "sub",
        "Shared",
    )
    assert (reported["consumer"], reported["pid"], reported["keys"]) == ("c1", os.getpid(), "as given")
    assert reported["instance"].startswith(f"{reported['host']}:{reported['pid']}:")


def test_keys_are_recorded_as_the_digests_of_the_secret(tmp_path: Path) -> None:
    messages = deque([PulsarMessage(MessageId(5, 0), "user-17", ordering="o"), PulsarMessage(MessageId(5, 1))])
    consumer = capture.wrap(fakes.PulsarConsumer(messages), tmp_path, key_secret="s3cret")
    consumer.receive()
    consumer.receive()
    consumer.close()

    words = KeyMasking.from_secret(False, "s3cret")
    keyed, keyless = [row for row in rows(tmp_path) if row["event"] == "receive"]
    assert (keyed["key"].decode(), keyed["ordering_key"].decode()) == (words.mask_key(b"user-17"), words.mask_key(b"o"))
    assert (keyless["key"], keyless["ordering_key"]) == (None, None)
    (path,) = capture.list_capture_files(tmp_path)
    assert b"user-17" not in path.read_bytes()
    reported = json.loads(pq.read_schema(path).metadata[b"subreplay.capture"])
    assert reported["keys"] == f"digests {words.check}"
    assert "s3cret" not in json.dumps(reported)


def test_events_of_several_threads_are_all_there(tmp_path: Path) -> None:
    consumer = capture.wrap(fakes.PulsarConsumer(), tmp_path)

    def work(thread: int) -> None:
        for n in range(500):
            consumer.acknowledge(MessageId(thread, n))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    consumer.close()
    found = rows(tmp_path)
    assert [row["seq"] for row in found] == list(range(2_003))
    assert {(row["ledger"], row["entry"]) for row in found[1:-2]} == {(t, n) for t in range(4) for n in range(500)}


CALLS = st.lists(
    st.one_of(
        st.tuples(st.just("receive"), st.text(max_size=3)),
        st.tuples(
            st.sampled_from(["acknowledge", "acknowledge_cumulative", "negative_acknowledge"]), st.text(max_size=3)
        ),
    ),
    max_size=30,
)


@examples(25)
@given(calls=CALLS, flush_rows=st.integers(1, 5), rotate_rows=st.integers(1, 10))
def test_rows_out_are_events_in(
    tmp_path_factory: pytest.TempPathFactory, calls: list[tuple[str, str]], flush_rows: int, rotate_rows: int
) -> None:
    folder = tmp_path_factory.mktemp("captured")
    client = fakes.PulsarConsumer()
    consumer: Any = capture.wrap(client, folder, flush_rows=flush_rows, rotate_rows=rotate_rows)
    for n, (call, key) in enumerate(calls):
        message = PulsarMessage(MessageId(1, n), key)
        if call == "receive":
            client.messages.append(message)
            assert consumer.receive() is message
        else:
            getattr(consumer, call)(message)
    consumer.close()

    found = rows(folder)
    assert [(row["event"], row["entry"]) for row in found[1:-2]] == [(call, n) for n, (call, _) in enumerate(calls)]
    assert [row["key"] for row in found if row["event"] == "receive"] == [
        key.encode() or None for call, key in calls if call == "receive"
    ]
    assert consumer.recording.counts == (len(found), len(found), 0, 0, 0)
