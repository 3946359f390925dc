"""Find violations across the partitions of a topic, on any engine (``audit.topic_findings``)."""

from __future__ import annotations

import pyarrow as pa

from subreplay.audit.judge import Judge
from subreplay.audit.segment_order import DELIVERY_COLUMNS, SEGMENT_ENDS, EarlyChildRule, find_segment_ends
from subreplay.audit.topic_findings import (
    FIRSTS,
    MESSAGE_COLUMNS,
    MOST_SPREAD,
    PARTITIONS,
    SPREAD,
    FindingRows,
    FirstMessageReader,
    KeyPartitionReader,
    KeysInTwoPartitionsStep,
    make_keyless_strays_step,
    read_reported_keys,
    select_spread_hashes,
)
from subreplay.engine.interface import Dataset, Engine
from subreplay.rows.model.columns import ints
from subreplay.rows.model.key_masking import KeyMasking
from subreplay.rows.model.partitioners import Partitioners
from subreplay.rows.model.tables import VIOLATIONS


def find_keys_in_two_partitions(
    engine: Engine,
    messages: Dataset,
    judge: Judge,
    subscription: str,
    reported: Dataset | None = None,
    partitioners: Partitioners | None = None,
) -> Dataset:
    """Find keys in two partitions as rows of table ``violations``.

    ``messages`` are rows of ``LOG``; those of earlier days are marked ``before``. Findings that earlier runs
    ``reported`` in table ``violations`` are not reported again. ``partitioners`` may explain them.
    """
    earlier = [] if reported is None else [reported.select(["topic", "partition", "key"])]
    firsts = _find_first_messages(engine, messages, True, judge.words, earlier)
    rows = FindingRows(subscription, judge.rule_statuses)
    step = KeysInTwoPartitionsStep(rows, partitioners, judge.dates, judge.terms.segments)
    return engine.create_dataset(VIOLATIONS.empty_table()) if firsts is None else firsts.map(step, VIOLATIONS)


def find_keyless_strays(engine: Engine, messages: Dataset, judge: Judge, subscription: str) -> Dataset:
    """Find messages without a key outside the partition of their producer, as rows of table ``violations``. Needs
    ``may_stray``."""
    firsts = _find_first_messages(engine, messages, False, judge.words)
    step = make_keyless_strays_step(judge, subscription)
    return engine.create_dataset(VIOLATIONS.empty_table()) if firsts is None else firsts.map(step, VIOLATIONS)


def find_early_children(deliveries: Dataset, judge: Judge, subscription: str) -> pa.Table:
    """Find segments that were served before their ancestors had drained, as rows of table ``violations``."""
    ends = deliveries.select(DELIVERY_COLUMNS).map(find_segment_ends, SEGMENT_ENDS).to_table()
    found = EarlyChildRule(judge.terms.segments, judge.dates).find(ends)
    return FindingRows(subscription, judge.rule_statuses).make_table(found)


def _find_first_messages(
    engine: Engine, messages: Dataset, keyed: bool, words: KeyMasking, reported: list[Dataset] | None = None
) -> Dataset | None:
    """Find the first messages (``FIRSTS``) in order, with those already ``reported``; None if nothing is in two
    partitions."""
    messages = messages.select(MESSAGE_COLUMNS)
    partitions = engine.sort([messages.map(KeyPartitionReader(keyed), PARTITIONS.schema)], PARTITIONS)
    spread = partitions.map(select_spread_hashes, SPREAD).to_table(MOST_SPREAD + 1)
    if not len(spread):
        return None
    several = ints(spread.sort_by("hash"), "hash") if len(spread) <= MOST_SPREAD else None
    firsts = [messages.map(FirstMessageReader(keyed, words, several), FIRSTS.schema)]
    firsts += [each.map(read_reported_keys, FIRSTS.schema) for each in reported or []]
    return engine.sort(firsts, FIRSTS)
