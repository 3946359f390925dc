"""Find faults across the partitions of a topic: a key in two of them, or messages without a key in a wrong one.

A first pass exchanges only a hash and the partitions of each key, or of each producer of messages without a key. For
those in several partitions, a second pass exchanges the first message in each partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.audit.codes import Code, Exemption
from subreplay.audit.findings import Finding, make_violations
from subreplay.audit.judge import Judge
from subreplay.audit.routing import Routing
from subreplay.audit.rules.partitions import FIRST_MESSAGES, find_keyless_strays, find_keys_in_two_partitions
from subreplay.audit.rules.ranges import find_range_findings
from subreplay.audit.rules.registry import RULES
from subreplay.rows.groups import accumulate, hashes, make_groups, read_whole_groups, with_columns
from subreplay.rows.model.columns import UNKNOWN, Ints, column
from subreplay.rows.model.key_masking import KeyMasking
from subreplay.rows.model.partitioners import Partitioners
from subreplay.rows.model.rows import RuleStatus
from subreplay.rows.model.segments import Segment, find_ancestors
from subreplay.rows.sorted_blocks import make_group_order

FINDINGS_AT_ONCE: Final = 10_000  # findings that are put into words at a time
MESSAGE_COLUMNS: Final = ("topic", "partition", "ledger", "entry", "batch_index", "at", "producer", "key", "before")
"""The columns of ``LOG`` that this module reads."""
MOST_SPREAD: Final = 1 << 20
"""The largest number of keys in several partitions whose hashes go to the second pass. With more, it reads all keys."""
SPREAD: Final = pa.schema([pa.field("hash", pa.int64(), nullable=False)])
PARTITIONS: Final = make_group_order(
    pa.schema([*SPREAD, pa.field("partition", pa.int32(), nullable=False)]), then=("partition",)
)
"""The partitions of each key."""
FIRSTS: Final = make_group_order(
    pa.schema(
        [
            *FIRST_MESSAGES,
            pa.field("whose", pa.binary()),  # the key, or the producer of messages without one
            pa.field("named", pa.string()),  # the same as it may leave
            pa.field("reported", pa.bool_()),  # no message: an earlier run reported the key in this partition
        ]
    ),
    then=("partition",),
)
"""The first message of each key in each partition, as far as one task knows it."""
_FIRST_KEY: Final = ("topic", "whose", "partition")


@dataclass(frozen=True)
class FindingRows:
    """Converts findings to rows of table ``violations``."""

    subscription: str
    rule_statuses: Mapping[Code, RuleStatus]

    def make_table(self, findings: Iterable[Finding]) -> pa.Table:
        return make_violations(findings, self.subscription, RULES, self.rule_statuses)

    def make_batches(self, findings: Iterable[Finding]) -> Iterator[pa.RecordBatch]:
        """Convert any number of findings."""
        findings = iter(findings)
        while some := [*islice(findings, FINDINGS_AT_ONCE)]:
            yield from self.make_table(some).to_batches()

    def make_step(
        self, rule: Callable[[Iterable[pa.RecordBatch]], Iterator[Finding]]
    ) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        """Return the step that finds and converts the findings of a rule."""
        return RowsByRule(self, rule)


@dataclass(frozen=True)
class RowsByRule:
    """A step: batches -> rows of table ``violations`` that a rule finds in them."""

    rows: FindingRows
    rule: Callable[[Iterable[pa.RecordBatch]], Iterator[Finding]]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.rows.make_batches(self.rule(batches))


def find_range_violations(
    judge: Judge, subscription: str, since: int = UNKNOWN, others: Iterable[Finding] = ()
) -> pa.Table:
    """Return the findings about sticky ranges, and ``others``, which are about a Kafka group. An earlier run has
    reported findings before ``since`` (ns)."""
    ranges = (f for d in judge.dispatchers.values() for f in find_range_findings(d.timeline, judge.dates))
    return FindingRows(subscription, judge.rule_statuses).make_table(f for f in (*ranges, *others) if f.at >= since)


def may_have_keyless_strays(judge: Judge) -> bool:
    """Return whether messages without a key may be in another partition than their producer's."""
    routing = judge.terms.routing
    return len(judge.dispatchers) > 1 and routing is not None and routing.mode == "SinglePartition"


@dataclass(frozen=True)
class KeyPartitionReader:
    """A step: messages -> ``PARTITIONS`` of keys, or (not ``keyed``) of producers of messages without a key."""

    keyed: bool

    def __call__(self, messages: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        each = (
            _drop_duplicates(rows.append_column("hash", pa.array(_hash_rows(rows))))
            for rows in _select_owned_messages(messages, self.keyed)
        )
        for rows in accumulate(each, _drop_duplicates):
            yield from make_groups(rows, PARTITIONS, ["hash"])


def select_spread_hashes(sorted_rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Select from sorted ``PARTITIONS`` what is in more than one partition (``SPREAD``)."""
    for rows in read_whole_groups(sorted_rows):
        of_each = rows.group_by(["hash"], use_threads=False).aggregate([("partition", "min"), ("partition", "max")])
        several = of_each.filter(pc.less(of_each["partition_min"], of_each["partition_max"]))
        yield from several.select(["hash"]).cast(SPREAD).to_batches()


@dataclass(frozen=True, eq=False)
class FirstMessageReader:
    """A step: messages -> ``FIRSTS`` of those whose hash is in the sorted ``spread``; None: of all."""

    keyed: bool
    words: KeyMasking
    spread: Ints | None = None

    def __call__(self, messages: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in accumulate(self._read_first(messages), _keep_first_messages):
            named = column(rows, "whose")
            named = self.words.mask_keys(named) if self.keyed else named.cast(pa.string())
            given = {"named": named, "key": named if self.keyed else pa.nulls(len(rows), pa.string())}
            given["reported"] = pa.repeat(False, len(rows))
            yield from _make_firsts(rows, given)

    def _read_first(self, messages: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        for rows in _select_owned_messages(messages, self.keyed):
            if self.spread is not None:
                rows = rows.filter(pa.array(np.isin(_hash_rows(rows), self.spread)))
            rows = rows.append_column("messages", pa.repeat(1, len(rows)))
            rows = rows.rename_columns({"at": "published", "before": "known"})
            if len(rows):
                yield _keep_first_messages(rows.select(_FIRST_COLUMNS))


_FIRST_COLUMNS: Final = (
    "topic", "partition", "ledger", "entry", "batch_index", "published", "producer", "messages", "known", "whose",
)  # fmt: skip


def read_reported_keys(violations: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read ``FIRSTS`` that mark the keys that earlier runs reported, from KEY_TWO_PARTITIONS rows of table
    ``violations``. A step."""
    for batch in violations:
        rows = pa.Table.from_batches([batch])
        yield from _make_firsts(rows, {"named": column(rows, "key"), "reported": pa.repeat(True, len(rows))})


@dataclass(frozen=True)
class KeysInTwoPartitionsStep:
    """A step: sorted ``FIRSTS`` -> rows of table ``violations``. ``partitioners`` may explain them."""

    rows: FindingRows
    partitioners: Partitioners | None = None
    dates: bool = False
    segments: tuple[Segment, ...] = ()

    def __call__(self, firsts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ancestors = find_ancestors(self.segments)
        for rows in _select_in_several(firsts):
            found = find_keys_in_two_partitions(rows, self.partitioners, self.dates, ancestors)
            yield from self.rows.make_batches(found)


@dataclass(frozen=True)
class KeylessStraysStep:
    """A step: the same for messages without a key, which ``routing`` keeps in one partition."""

    rows: FindingRows
    routing: Routing
    exemption: Exemption = Exemption.NONE
    dates: bool = False

    def __call__(self, firsts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in _select_in_several(firsts):
            found = find_keyless_strays(self.routing, rows, self.dates)
            yield from self.rows.make_batches(replace(finding, exemption=self.exemption) for finding in found)


def make_keyless_strays_step(judge: Judge, subscription: str) -> KeylessStraysStep:
    """Return the step of an audit for which ``may_have_keyless_strays``."""
    routing = judge.terms.routing
    assert routing is not None
    # where a rejected message is, its producer may have begun
    rejected = any(judge.rejects.of("messages", scope.partition) for scope in judge.dispatchers)
    exemption = Exemption.MESSAGES_REJECTED if rejected else Exemption.NONE
    return KeylessStraysStep(FindingRows(subscription, judge.rule_statuses), routing, exemption, judge.dates)


def _select_owned_messages(messages: Iterable[pa.RecordBatch], keyed: bool) -> Iterator[pa.Table]:
    """Select messages with a key, or those of a producer without a key. Column ``whose`` has the key or the
    producer."""
    for batch in messages:
        rows = pa.Table.from_batches([batch]).select(MESSAGE_COLUMNS)
        has_key = rows["key"].is_valid()
        selected = has_key if keyed else pc.and_(pc.invert(has_key), rows["producer"].is_valid())
        rows = rows.filter(selected)
        whose = rows["key"] if keyed else rows["producer"].cast(pa.binary())
        if len(rows):
            yield rows.drop_columns(["key"]).append_column("whose", whose).combine_chunks()


def _hash_rows(rows: pa.Table) -> Ints:
    return hashes(rows, ("topic", "whose"))


def _drop_duplicates(rows: pa.Table) -> pa.Table:
    return rows.group_by(["hash", "partition"], use_threads=False).aggregate([])


def _keep_first_messages(rows: pa.Table) -> pa.Table:
    """Keep the first message of each key and partition, with the number of messages."""
    by_position = [(name, "ascending") for name in ("ledger", "entry", "batch_index", "published", "producer")]
    rows = rows.take(pc.sort_indices(rows, by_position)).append_column("row", pa.array(np.arange(len(rows))))
    summed = [("row", "min"), ("messages", "sum"), ("known", "max")]
    of_each = rows.group_by([*_FIRST_KEY], use_threads=False).aggregate(summed)
    first = rows.take(of_each["row_min"])
    for name, values in (("messages", of_each["messages_sum"]), ("known", of_each["known_max"])):
        first = first.set_column(first.schema.get_field_index(name), name, values)
    return first.select(_FIRST_COLUMNS).combine_chunks()


def _make_firsts(rows: pa.Table, given: Mapping[str, pa.Array]) -> Iterator[pa.RecordBatch]:
    """Make ``FIRSTS`` of rows with additional columns."""
    yield from make_groups(with_columns(rows, given), FIRSTS, ["topic", "named"])


def _select_in_several(firsts: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Select the ``FIRST_MESSAGES`` of what is in more than one partition."""
    for rows in read_whole_groups(firsts):
        is_message = pc.invert(rows["reported"])
        messages = rows.filter(is_message)
        first = _keep_first_messages(messages)
        partitions = first.group_by(["topic", "whose"], use_threads=False).aggregate([("partition", "count")])
        several = partitions.filter(pc.greater(partitions["partition_count"], 1)).select(["topic", "whose"])
        first = first.join(several, ["topic", "whose"], join_type="left semi", use_threads=False)
        if not len(first):
            continue
        names = messages.group_by(["whose", "named", "key"], use_threads=False).aggregate([])
        first = first.join(names, "whose", use_threads=False)
        reported = rows.filter(rows["reported"]).select(["topic", "named", "partition", "reported"])
        if len(reported):
            reported = reported.group_by(["topic", "named", "partition", "reported"], use_threads=False).aggregate([])
            first = first.join(reported, ["topic", "named", "partition"], use_threads=False)
            known = pc.or_kleene(first["known"], pc.fill_null(first["reported"], False))
            first = first.set_column(first.schema.get_field_index("known"), "known", known)
        yield first.select(FIRST_MESSAGES.names).cast(FIRST_MESSAGES)
