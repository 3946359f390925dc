"""Copies of ``__consumer_offsets`` folded as streams are what they are at once, however the streams are cut."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from subreplay.adapters import Options
from subreplay.adapters.kafka_group import group_stream
from subreplay.adapters.kafka_group.acknowledged_records import MAX_RECORDS
from subreplay.rows.groups import read_whole_groups
from tests.adapters.kafka_group.copies import committed, group, json_lines, text
from tests.adapters.kafka_group.encoding import records as made
from tests.adapters.kafka_group.scenarios import records
from tests.support import source_reading
from tests.support.in_process import Cuts
from tests.support.properties import examples

KEYS = {
    "membership": ("subscription", "topic", "seq", "consumer", "event", "partition"),
    "deliveries": ("subscription", "topic", "partition", "seq", "ack_type", "entry"),
}
SCENARIOS = st.sampled_from(["k04_modern_uniform", "k06_crash", "k26_close_no_commit"])

offsets = st.integers(0, 9) | st.just(MAX_RECORDS + 20)
reported = st.one_of(
    st.builds(committed, offsets, st.sampled_from(["t", "u"]), st.integers(0, 1), st.sampled_from(["g", "h"])),
    st.builds(
        lambda generation, *who: group(*who, generation=generation),
        st.integers(1, 3),
        st.sampled_from([("m", 0), ("m", 0, 1)]),
        st.sampled_from([("n", 1), ("n",)]),
    ),
    st.just((b"\0\7xyz", b"?")),
)


@st.composite
def copies(draw: st.DrawFn) -> tuple[pa.Table, str]:
    """Records, some of them nonsense, and the coordinator's log of them."""
    if draw(st.booleans()):
        return made(*draw(st.lists(reported, max_size=14))), ""
    name = draw(SCENARIOS)
    return records(name), text(name)


@examples(30)
@given(
    copies(),
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.booleans(), st.booleans()), min_size=1, max_size=3),
    st.sampled_from([Options(), Options(topic="t"), Options(subscription="g")]),
    st.integers(1, 3),
    st.sampled_from([1, 3, 40]),
    st.sampled_from([1, 5, 100]),
)
def test_streams_yield_the_same_rows_as_all_records_at_once(
    copied: tuple[pa.Table, str],
    cuts: list[tuple[float, float, bool, bool]],
    options: Options,
    tasks: int,
    rows: int,
    at_once: int,
) -> None:
    table, log = copied
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, (one, other, as_json, partitioned) in enumerate(cuts):
            first, last = sorted(round(cut * len(table)) for cut in (one, other))
            part = table.slice(first, last - first) if number else table
            file = folder / f"copy-{number}"
            if as_json:
                lines = json_lines(part)
                file.with_suffix(".jsonl").write_text(lines if partitioned else lines.replace('"partition"', '"p"'))
            else:
                pq.write_table(part, file.with_suffix(".parquet"))
            if log and number < 2:  # the second begins somewhere in the middle of the first
                (folder / f"server.log.{number}").write_text(log[number * round(one * len(log)) :])
        with patch.object(group_stream, "read_whole_groups", partial(read_whole_groups, rows=at_once)):
            source_reading.assert_same_tables_or_error("kafka-group", folder, options, Cuts(tasks, rows), KEYS)
