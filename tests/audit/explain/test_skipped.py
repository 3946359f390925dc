"""Messages that a Kafka group skips because it began behind them say why."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest

from subreplay.audit.acts import OFFSET_RETENTION, Act
from subreplay.audit.explain.causes import Causes


@pytest.mark.parametrize(("empty", "expired"), [(OFFSET_RETENTION // 2, False), (OFFSET_RETENTION + 1, True)])
def test_a_group_that_was_empty_for_long_may_have_lost_its_offsets(empty, expired):
    words = Act(0, empty, "group", ("c1",)).describe_skip()
    assert "an operator reset its offsets forward" in words
    assert ("offsets.retention.minutes" in words) == expired


def test_only_records_just_before_those_published_to_an_empty_group_are_attributed_to_it():
    judge = SimpleNamespace(
        is_group=True,
        list_acts=lambda timeline: (Act(100, 200, "group", ("c1",)),),
        get_dispatcher=lambda scope: SimpleNamespace(timeline=None),
    )
    entries, published = [3, 7, 8, 9, 12], [10, 90, 99, 150, 250]
    rows = pa.table(
        {
            "topic": pa.array(["orders"] * 5), "partition": pa.array([0] * 5, pa.int64()),
            "entry": pa.array(entries, pa.int64()), "published": pa.array(published, pa.int64()),
            "delivered": pa.array([False] * 5),
        }
    )  # fmt: skip
    assert Causes(judge).describe_skips(rows).is_valid().to_pylist() == [False, True, True, True, False]
