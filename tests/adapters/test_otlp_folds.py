"""Spans that are folded as streams tell what all of them at once tell, however the streams are cut."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from subreplay.adapters import Options
from subreplay.adapters.otlp import span_stream
from subreplay.rows.groups import read_whole_groups
from tests.adapters.otlp_exports import BEGIN, kafka, line, pulsar, stable
from tests.support import source_reading
from tests.support.in_process import Cuts
from tests.support.properties import examples

RECEIVE = {f"messaging.operation{form}": "receive" for form in ("", ".type", ".name")}
KEYS = {"deliveries": ("seq",)}


@st.composite
def lines(draw: st.DrawFn) -> str:
    """An export of one or two spans: of few messages, so that some are told twice, and of few ids, so that some are
    there again."""
    made = []
    for _ in range(draw(st.integers(1, 2))):
        number = draw(st.integers(0, 3))
        begin = BEGIN + draw(st.sampled_from([0, 1, 5, 10**11, 3 * 10**11]))
        values = draw(st.sampled_from([{}, {}, RECEIVE, {"messaging.system": "jms"}]))
        if draw(st.booleans()):
            kind = draw(st.sampled_from([kafka, stable]))
            found = kind(draw(st.sampled_from([number, None])) if number == 3 else number, begin=begin, values=values)
        else:
            how = draw(st.sampled_from(["acknowledge", "negative_acknowledge", None, "strange"]))
            unnamed = {"messaging.destination.subscription.name": None} if draw(st.booleans()) else {}
            found = pulsar(draw(st.sampled_from([f"3:{number}:0", f"3:{number}:0:1", "odd"])), how, begin=begin,
                           values=values | unnamed)  # fmt: skip
        if draw(st.booleans()):
            found["spanId"] = draw(st.sampled_from(["a", "b", None]))
            found["traceId"] = draw(st.sampled_from(["t", None]))
        made.append(found)
    scope = draw(st.sampled_from(["io.opentelemetry.kafka-clients-0.11", "another", None]))
    return line(*made, scope=scope, instance=draw(st.sampled_from(["pod-1", "pod-2", None])))


FILES = st.lists(st.lists(st.one_of(lines(), st.just("{"), st.just('{"resourceSpans":[')), max_size=8), min_size=1,
                 max_size=3)  # fmt: skip
OPTIONS = st.sampled_from([Options(), Options(subscription="billing"), Options(topic="orders")])


@examples(30)
@given(FILES, OPTIONS, st.integers(1, 3), st.integers(1, 9), st.integers(1, 12))
def test_streams_yield_the_same_rows_as_all_spans_at_once(
    files: list[list[str]], options: Options, tasks: int, rows: int, at_once: int
) -> None:
    with (
        tempfile.TemporaryDirectory() as name,
        patch.object(span_stream, "read_whole_groups", partial(read_whole_groups, rows=at_once)),
    ):
        folder = Path(name)
        for number, some in enumerate(files):
            (folder / f"{number}.jsonl").write_text("".join(f"{each}\n" for each in some))
        source_reading.assert_same_tables_or_error("otlp-spans", folder, options, Cuts(tasks, rows), KEYS)
