"""Polls that are folded as streams tell what all of them at once tell, however the streams are cut."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from subreplay.adapters import Options
from tests.adapters.topic_polls import AT, SECOND, TOPIC, answer, consumer
from tests.support import source_reading
from tests.support.in_process import Cuts
from tests.support.properties import examples

KEYS = {"membership": ("seq",)}


@st.composite
def polls(draw: st.DrawFn) -> str:
    """A poll of one of few times and topics, which others may tell otherwise; or of several partitions; or none."""
    at = AT + SECOND * draw(st.integers(0, 4))
    ranges = draw(st.sampled_from([
        {}, {"keyHashRangeArrays": [[0, 99]]}, {"keyHashRanges": ["[0, 65536]"]}, {"keyHashRangeArrays": [[1, 65535]]},
        {"drainingHashes": [{"hash": 7, "unackMsgs": 2, "blockedAttempts": 5}]},
    ]))  # fmt: skip
    names = draw(st.lists(st.sampled_from(["c1", "c2", "c3"]), max_size=3, unique=True))
    said = answer(*(consumer(n, AT + draw(st.integers(-2, 1)), **ranges) for n in names),
                  kind=draw(st.sampled_from(["Shared", "Key_Shared", "Exclusive"])))  # fmt: skip
    topic = draw(st.sampled_from([f"{TOPIC}-partition-0", f"{TOPIC}-partition-1", f"{TOPIC}s"]))
    document: dict[str, Any] = {"at_ns": at, "topic": topic, "stats": said}
    if draw(st.integers(0, 4)) == 0:
        document = {"at_ns": at, "stats": {"partitions": {topic: said, f"{TOPIC}-partition-7": said}}}
    return draw(
        st.sampled_from([json.dumps(document)] * 6 + [json.dumps(document)[:-9], "a line", json.dumps({"stats": said})])
    )


FILES = st.lists(st.lists(polls(), max_size=8), min_size=1, max_size=3)
OPTIONS = st.sampled_from([Options(), Options(topic=TOPIC), Options(subscription="billing")])


@examples(60)
@given(FILES, OPTIONS, st.integers(1, 3), st.integers(1, 9))
def test_streams_yield_the_same_rows_as_all_polls_at_once(
    files: list[list[str]], options: Options, tasks: int, rows: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        for number, some in enumerate(files):
            (Path(name) / f"{number}.jsonl").write_text("".join(f"{each}\n" for each in some))
        source_reading.assert_same_tables_or_error("pulsar-stats", Path(name), options, Cuts(tasks, rows), KEYS)
