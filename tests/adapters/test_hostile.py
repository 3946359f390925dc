"""Every adapter reads hostile content, or says what is wrong with it: nothing is dropped, and nothing breaks.

The table has a good source of each registered adapter, and each kind of damage is done to all of its files. So a new
adapter is tried by all of them at once; without a source here, its name is missing.
"""

from __future__ import annotations

import gzip
import random
import shutil
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest

from subreplay import capture
from subreplay.adapters import ADAPTERS, SourceTables
from subreplay.errors import EnvironmentFailed, InputError
from tests.adapters.kafka_group.copies import as_files
from tests.support import consumers as fakes
from tests.support.source_reading import read_at_once

DATA = Path(__file__).parents[1] / "data"


def copied(source: str, *files: str) -> Callable[[Path], None]:
    """Makes a folder of these files, all of them unless some are named."""

    def make(folder: Path) -> None:
        for path in sorted((DATA / source).iterdir()):
            if path.is_file() and (not files or path.name in files):
                shutil.copy(path, folder)

    return make


def captured(folder: Path) -> None:
    messages = [fakes.PulsarMessage(fakes.MessageId(5, n), f"k{n % 3}") for n in range(50)]
    consumer = capture.wrap(fakes.PulsarConsumer(deque(messages)), folder)
    for _ in messages:
        consumer.acknowledge(consumer.receive())
    consumer.close()


def dumped(folder: Path) -> None:
    line = "| offset: {} CreateTime: 1584680012228 keySize: 2 valueSize: 1 headerKeys: [] key: k{} payload: v"
    lines = ["Dumping /data/orders-0/00000000000000000000.log", *(line.format(i, i % 7) for i in range(200))]
    (folder / "dump.txt").write_text("".join(f"{each}\n" for each in lines))


GOOD: dict[str, Callable[[Path], object]] = {
    "capture": captured,
    "pulsar-recording": copied("recordings/4.0.8/s9b_delayed_failover"),
    "kafka-recording": copied("kafka_recordings/k44_grow_latest"),
    "kafka-group": lambda folder: as_files(folder, "k00_range_eager"),
    "pulsar-broker-log": copied("broker_log", "4.0.8-l03_key_shared_sticky.log.gz"),
    "pulsar-stats": copied("topic_stats"),
    "otlp-spans": copied("otlp"),
    "kafka-text": dumped,
}


def changed(path: Path, change: Callable[[bytes], bytes]) -> None:
    """A file whose content, unpacked, is another one."""
    raw = path.read_bytes()
    packed = raw.startswith(b"\x1f\x8b")
    content = change(gzip.decompress(raw) if packed else raw)
    path.write_bytes(gzip.compress(content) if packed else content)


def in_lines(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[Path], None]:
    return lambda path: changed(path, lambda text: b"".join(change(text.splitlines(keepends=True))))


def cut_in_half(lines: list[bytes]) -> list[bytes]:
    return [line if i % 10 != 5 else line[: len(line) // 2] + b"\n" for i, line in enumerate(lines)]


def no_utf8(lines: list[bytes]) -> list[bytes]:
    wrong = [line if i % 10 != 3 else line[:60] + b"\xff\xfe\x80" + line[61:] for i, line in enumerate(lines)]
    return [b"\xff\xfe\x00\x01\n", *wrong, b"\xc3\n"]


def of_something_else(lines: list[bytes]) -> list[bytes]:
    """Lines of another program, empty ones, and other JSON between them."""
    noise = [b"\n", b"java.lang.NullPointerException: null\n", b'{"level": "info"}\n', b"[]\n", b"\0\0\n", b"null\n"]
    return [part for i, line in enumerate(lines) for part in (line, noise[i % len(noise)])]


def swapped(lines: list[bytes]) -> list[bytes]:
    """In another order, as where clocks go back."""
    random.Random(1).shuffle(lines)
    return lines


DAMAGE: dict[str, Callable[[Path], object]] = {
    "the end is missing": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3]),
    "the beginning is missing": lambda path: path.write_bytes(path.read_bytes()[path.stat().st_size // 3 :]),
    "the text ends within a line": lambda path: changed(path, lambda text: text[: len(text) * 2 // 3 + 7]),
    "the text begins within a line": lambda path: changed(path, lambda text: text[len(text) // 3 :]),
    "lines are cut in half": in_lines(cut_in_half),
    "bytes are no UTF-8": in_lines(no_utf8),
    "lines of something else": in_lines(of_something_else),
    "the order is another": in_lines(swapped),
    "every line is there twice": in_lines(lambda lines: [line for line in lines for _ in range(2)]),
    "bytes are flipped": lambda path: changed(path, flipped),
    "nothing is in it": lambda path: path.write_bytes(b""),
    "zeros are in it": lambda path: path.write_bytes(bytes(5_000)),
    "the file is there twice": lambda path: shutil.copy(path, path.with_name(f"copy of {path.name}")),
    "it is packed": lambda path: path.write_bytes(gzip.compress(path.read_bytes())),
    "it is a folder": lambda path: (path.unlink(), path.mkdir()),
}


def flipped(text: bytes) -> bytes:
    found, chance = bytearray(text), random.Random(2)
    for _ in range(len(found) // 500 + 1):
        found[chance.randrange(len(found))] ^= 1 << chance.randrange(8)
    return bytes(found)


def balanced(found: SourceTables) -> None:
    """Rows in are valid, quarantined, or about something else, and each rejected row says why."""
    for count in found.counts:
        assert min(count.valid, count.quarantined, count.others) >= 0, count
    assert sum(count.quarantined for count in found.counts) == len(found.rejected)
    for row in found.rejected:
        assert row.file
        assert row.reasons
        assert all(reason.column and reason.rule and reason.remedy for reason in row.reasons)


def test_every_adapter_is_tried() -> None:
    assert set(GOOD) == set(ADAPTERS)


@pytest.mark.parametrize("name", GOOD)
def test_a_good_source_has_nothing_in_quarantine(name: str, tmp_path: Path) -> None:
    GOOD[name](tmp_path)
    found = read_at_once(name, tmp_path)
    balanced(found)
    assert sum(len(table) for table in found.tables.values())


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", GOOD)
def test_damage_is_an_error_that_names_the_place_or_rows_in_quarantine(name: str, damage: str, tmp_path: Path) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    GOOD[name](folder)
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        DAMAGE[damage](path)
    try:
        balanced(read_at_once(name, folder))
        wrong = str(folder)
    except (InputError, EnvironmentFailed) as error:
        wrong = str(error)
    assert str(folder) in wrong


@pytest.mark.parametrize("name", GOOD)
def test_what_is_there_twice_counts_once(name: str, tmp_path: Path) -> None:
    once, twice = tmp_path / "once", tmp_path / "twice"
    for folder in (once, twice):
        folder.mkdir()
    GOOD[name](once)
    for path in filter(Path.is_file, once.iterdir()):
        shutil.copy(path, twice / path.name)
        shutil.copy(path, twice / f"copy of {path.name}")
    one, two = (read_at_once(name, folder).tables for folder in (once, twice))
    assert {table: len(rows) for table, rows in two.items()} == {table: len(rows) for table, rows in one.items()}
