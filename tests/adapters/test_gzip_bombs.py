"""A small gzip file that unpacks to gigabytes ends with a sentence, whichever adapter reads it; a repetitive log does
not."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from subreplay.adapters.input_files import MAX_RATIO, open_gzip, read_line_batches
from subreplay.adapters.jsonl import _read_text_lines
from subreplay.adapters.pulsar_stats.stats_answers import read_records
from subreplay.adapters.source.text_files import _convert_to_utf_8
from subreplay.errors import InputError


@pytest.fixture(scope="module")
def bomb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 200 kB that unpacks to 200 MB of zeros without a line break."""
    path = tmp_path_factory.mktemp("bomb") / "lines.jsonl.gz"
    with gzip.open(path, "wb") as file:
        for _ in range(200):
            file.write(bytes(10**6))
    return path


@pytest.mark.parametrize("read", [read_line_batches, read_records, _read_text_lines])
def test_a_file_that_unpacks_to_far_more_than_logs_do_is_refused(read, bomb: Path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=rf"lines.jsonl.gz: this gzip file unpacks to more than {MAX_RATIO} times"):
        list(read(bomb))


def test_a_csv_file_of_that_kind_is_refused_before_its_copy_fills_the_disk(bomb: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="If you trust it, unpack it"):
        _convert_to_utf_8(bomb, {}, tmp_path)
    (copy,) = tmp_path.iterdir()
    assert copy.stat().st_size < 128 * 2**20


def test_a_repetitive_log_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "orders.log.gz"
    lines = [f"2026-11-21T02:00:00.{n % 1000:03d} INFO orders-{n % 7} was acknowledged\n" for n in range(2_000_000)]
    path.write_bytes(gzip.compress("".join(lines).encode(), 6))
    with open_gzip(path) as file:
        assert sum(len(part) for part in iter(lambda: file.read(2**20), b"")) == sum(map(len, lines)) > 64 * 2**20
