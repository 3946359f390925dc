"""Every rule by three cases: one breaks it, one keeps it, and one looks as if it broke it and is allowed.

The table below must name every code: a rule without its cases fails here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from subreplay.audit.codes import LEGAL, Code
from subreplay.audit.findings import Finding
from subreplay.audit.routing import Routing
from subreplay.audit.rules.assignments import GroupEvents, find_assignment_findings
from subreplay.audit.rules.dead_letters import EXHAUSTED, LETTERS, find_disorder, find_incomplete
from subreplay.audit.rules.partitions import FIRST_MESSAGES, find_keys_in_two_partitions
from subreplay.audit.rules.ranges import find_range_findings
from subreplay.audit.rules.registry import RULES, find_rule_statuses
from subreplay.audit.terms import Terms
from subreplay.hashing.producer_routing import choose_partition
from subreplay.rows.model.rows import RuleStatus
from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.base import Policy
from subreplay.semantics.timelines.membership import build_dispatcher_events
from tests.support.history import START, STEP, TOPIC, History, auto_split, findings_of, history, key_of
from tests.support.joins import fold
from tests.support.pure import NOTHING_TOLD

KEY_SHARED, UNORDERED, OLDER = auto_split(), auto_split(allow_out_of_order=True), auto_split("pulsar-3.2")
SHARED, FAILOVER = make_policy("pulsar.shared", "pulsar-4.0"), make_policy("pulsar.failover", "documented")
STICKY, READER = (
    make_policy("pulsar.key_shared.sticky", "pulsar-4.0"),
    make_policy("pulsar.key_hash_range", "pulsar-4.0"),
)
RANGE = make_policy("kafka.range", "kafka-4.0")
SHARE = make_policy("kafka.share", "kafka-4.4", lock_duration_us=1_000_000, delivery_limit=2)
TIMED_OUT = "+C1 +C2 a1>C1 ~100 a1>C2*1"  # the lock of the first delivery ends after 100 steps
WAITING = Terms(stalled_after=500_000_000, late_after=500_000_000)
SOON, THRICE, DROPS = Terms(stuck_after=500_000_000), Terms(max_redeliveries=3), Terms(persistent=False)
HOME = choose_partition(key_of("a").decode(), 2)


class Story(NamedTuple):
    """A one-line history, and what is changed in its tables."""

    log: str
    story: str
    policy: Policy = KEY_SHARED
    terms: Terms = NOTHING_TOLD
    partition: int = -1
    change: Callable[[History], History] = lambda tables: tables

    def found(self) -> set[str]:
        """Codes of the findings, in capitals where they fail."""
        tables = self.change(history(self.log, self.story, self.partition))
        return {code for code, _ in findings_of(self.policy, tables, self.terms)}


class Told(NamedTuple):
    """Findings that are not about one delivery."""

    findings: tuple[Finding, ...]
    policy: Policy
    terms: Terms = NOTHING_TOLD

    def found(self) -> set[str]:
        rule_status = find_rule_statuses(self.policy, self.terms)
        fails = {
            f.code: rule_status[f.code] is RuleStatus.PROMISED and not f.exemption
            for f in self.findings
            if rule_status[f.code].is_evaluated
        }
        return {code.name if failing else code.name.lower() for code, failing in fails.items()}


def twice(**changes: Any) -> Callable[[History], History]:
    """The first message stands in the log a second time, changed."""

    def change(tables: History) -> History:
        rows = tables["messages"].to_pylist()
        return tables | {"messages": pa.Table.from_pylist([*rows, rows[0] | changes], tables["messages"].schema)}

    return change


def forgotten(tables: History) -> History:
    """The first message is not in the log."""
    return tables | {"messages": tables["messages"].slice(1)}


def acked(after: int) -> Callable[[History], History]:
    """The first delivery is acknowledged so many µs after it."""

    def change(tables: History) -> History:
        first, *others = tables["deliveries"].to_pylist()
        at = first["delivered_at"].timestamp() * 1_000_000 + after
        rows = [first | {"acked_at": round(at)}, *others]
        return tables | {"deliveries": pa.Table.from_pylist(rows, tables["deliveries"].schema)}

    return change


def rejected(tables: History) -> History:
    """Every acknowledgement rejects its message."""
    rows = [row | {"ack_type": "Reject"} for row in tables["deliveries"].to_pylist()]
    return tables | {"deliveries": pa.Table.from_pylist(rows, tables["deliveries"].schema)}


def published(after: int) -> Callable[[History], History]:
    """The first message is published so many µs later."""

    def change(tables: History) -> History:
        first, *others = tables["messages"].to_pylist()
        rows = [first | {"publish_time": first["publish_time"] + timedelta(microseconds=after)}, *others]
        return tables | {"messages": pa.Table.from_pylist(rows, tables["messages"].schema)}

    return change


def on_dead_letter_topic(step: int, batch_index: int = -1) -> Callable[[History], History]:
    """The first message is a dead letter since this step."""

    def change(tables: History) -> History:
        letter = {"topic": TOPIC, "partition": -1, "ledger": 1, "entry": 0, "batch_index": batch_index}
        return tables | {"dead_letters": pa.Table.from_pylist([letter | {"at": (START + step * STEP) * 1000}])}

    return change


def of_key(partition: int, topic: str = "t") -> dict[str, Any]:
    position = {"topic": topic, "partition": partition, "ledger": 5, "entry": partition, "batch_index": -1}
    return position | {"published": partition, "producer": "p", "key": "k", "messages": 1}


def in_partitions(*rows: dict[str, Any], policy: Policy = KEY_SHARED) -> Told:
    return Told((*find_keys_in_two_partitions(pa.Table.from_pylist(rows, schema=FIRST_MESSAGES)),), policy)


def dead_lettered(**reported: Any) -> Told:
    row = {"topic": "t", "partition": -1, "ledger": 1, "entry": 7, "batch_index": -1, "consumer": "C1", "at": 1}
    row |= {"redelivery_count": 3, "nacked": False, "acked": False} | reported
    return Told((*find_incomplete(pa.Table.from_pylist([row], schema=EXHAUSTED).to_batches(), 3),), SHARED, THRICE)


def dead(*origins: int) -> Told:
    rows = [
        {"topic": "t", "partition": -1, "ledger": 9, "entry": i, "batch_index": -1, "key": "k", "published": 1,
         "judged": True, "origin_ledger": 1, "origin_entry": origin, "origin_batch_index": -1}
        for i, origin in enumerate(origins)
    ]  # fmt: skip
    return Told((*find_disorder(pa.Table.from_pylist(rows, schema=LETTERS).to_batches()),), SHARED, THRICE)


def group(story: str) -> Told:
    """What is found about a Kafka group's owners."""
    rows = history("a1", story)["membership"].to_pylist()
    of_group = GroupEvents.from_rows(build_dispatcher_events(rows, [(TOPIC, -1)]), rows, ())
    return Told((*find_assignment_findings(RANGE, of_group),), RANGE)


def ranges(joins: str) -> Told:
    return Told((*find_range_findings(fold(STICKY, joins)),), STICKY)


MOVED, SWAPPED, NACKED = "+C1 a1>C1 +C2 a2>C2 a1! a2!", "+C1 a2>C1 a1>C1 a1! a2!", "+C1 a1>C1 a1? a1>C1 a1!"
THREE, FULL = "+C1 a1>C1 a2>C1 a3>C1 a1! a2! a3!", "+C1:1 a1>C1 b1>C1 n1>C1 a1^ b1^ n1^ a1! b1! n1!"
ASTRAY = "a3>C2 a3! a4>C2 a4!"
SWITCH = "+C1 +C2 a1>C1 a2>C1 -C1 a1>C2 a2>C2 a1! a2!"
IDLE = "+C1 +C2 n1>C1 n1! ~{} n2>C1 n2!"  # a1 is C2's
HELD = "+C1 a1>C1 +C2 ~{} a1! a2>C2 a2!"
NACKS = "+C1" + " a1>C1 a1?" * 5
CRASHES = " ".join("+C1 a1>C1 -C1" for _ in range(5))

CASES: dict[Code, tuple[Story | Told, Story | Told, Story | Told]] = {  # broken, kept, allowed
    Code.WRONG_OWNER: (
        Story("a1", "+C1 +C2 a1>C1 a1!"),
        Story("a1", "+C1 +C2 a1>C2 a1!"),
        Story("a1 a2", "+C1 +C2 a1>C9 a1! a2>C1 a2!", FAILOVER, partition=3),  # C1's, if C9 is there too
    ),
    Code.NOT_CONNECTED: (
        Story("a1 a2", "+C1 a1>C9 a1! a2>C1 a2!"),
        Story("a1", "+C1 a1>C1 a1!"),
        Story("a1 a2", "a2>C1 a2! ~20 a1>C1 a1! -C1"),  # the data begin later than it joined
    ),
    Code.DLQ_MISSED: (
        Story("a1", NACKS, SHARED, THRICE),
        Story("a1", NACKS, SHARED, THRICE, change=on_dead_letter_topic(200)),
        Story("a1", CRASHES, SHARED, THRICE),  # a disconnect does not raise the count
    ),
    Code.DLQ_ACKED: (
        Story("a1", "+C1 a1>C1 a1!", SHARED, THRICE, change=on_dead_letter_topic(300)),
        Story("a1", "+C1 a1>C1 a1!", SHARED, THRICE, change=on_dead_letter_topic(101)),
        Story("a1", "+C1 a1>C1*4 a1!", SHARED, THRICE, change=on_dead_letter_topic(300)),  # by the client itself
    ),
    Code.NEVER_JOINED: (
        Story("n1 a1 n2", "+C1 ~50 a1>C1 a1! n2>C9 n2! -C9"),
        Story("n1 a1 n2", "+C1 ~50 a1>C1 a1! +C2 n2>C1 n2! -C2"),
        Story("n1 a1 n2", "a1>C1 a1! n2>C9 n2! ~20 +C2 -C9 -C1"),  # the membership begins later than the data
    ),
    Code.KEY_ORDER: (
        Story("a1 a2", SWAPPED),
        Story("a1 a2", "+C1 a1>C1 a2>C1 a1! a2!"),
        Story("a1 a2", SWAPPED, UNORDERED),
    ),
    Code.PARTITION_ORDER: (
        Story("a1 n1", "+C1 n1>C1 a1>C1 a1! n1!", FAILOVER),
        Story("a1 n1", "+C1 a1>C1 n1>C1 a1! n1!", FAILOVER),
        Story("a1 a2", "+C1 ~50 a2>C1 a2! ~20 -C1 +C2 a1>C2 a1!", FAILOVER),  # it may have come before the data
    ),
    Code.KEY_TWO_OWNERS: (
        Story("a1 a2", MOVED),
        Story("a1 a2", "+C1 a1>C1 +C2 a1! a2>C2 a2!"),
        Story("a1 a2", MOVED, UNORDERED),
    ),
    Code.DUP_DELIVERY: (
        Story("a1", "+C1 a1>C1 a1! a1>C1"),
        Story("a1", NACKED),
        Story("a1,a2", "+C1 a1>C1 a2>C1 a1! a2? a1>C1 a2>C1 a2!"),  # with the rest of its batch
    ),
    Code.DUP_OUTSTANDING: (
        Story("a1", "+C1 a1>C1 a1>C1 a1!"),
        Story("a1", NACKED),
        Story("a1", "+C1 a1>C1 a1>C1 a1!", OLDER),
    ),
    Code.LOST: (
        Story("n1 a1 a2", "+C1 n1>C1 n1! a2>C1 a2!"),
        Story("a1 a2", "+C1 a1>C1 a1!"),
        Story("n1 a1 a2", "+C1 n1>C1 n1! a2>C1 a2!", terms=Terms(ttl=500_000_000)),
    ),
    Code.MIXED_BATCH: (
        Story("a1,n1", "+C1 +C2 a1>C2 n1>C2 a1! n1!"),
        Story("a1,a2", "+C1 +C2 a1>C2 a2>C2 a1! a2!"),
        Story("a1,n1", "+C1 +C2 a1>C2 n1>C2 a1! n1!", SHARED),
    ),
    Code.UNROUTABLE: (
        Story("n1 a1", "+C1[33000-65535] n1>C1 n1!", STICKY),
        Story("n1 a1", "+C1[0-65535] n1>C1 n1!", STICKY),
        Story("n1 a1", "+C1[33000-65535] n1>C1 n1!", READER),
    ),
    Code.DIVERGENT_ID: (
        Story("a1", "+C1 a1>C1 a1!", change=twice(size=2)),
        Story("a1", "+C1 a1>C1 a1!"),
        Story("a1", "+C1 a1>C1 a1!", change=twice()),  # one row read twice
    ),
    Code.UNKNOWN_MESSAGE: (
        Story("a1 a2", "+C1 a1>C1 a2>C1 a1! a2!", change=forgotten),
        Story("a1 a2", "+C1 a1>C1 a2>C1 a1! a2!"),
        Story("a1 a2", "+C1 ~50 a1>C1 a2>C1 a1! a2!", change=forgotten),  # the log begins later than it was stored
    ),
    Code.ACK_EARLY: (
        Story("a1", "+C1 a1>C1", change=acked(-1)),
        Story("a1", "+C1 a1>C1", change=acked(1)),
        Story("a1", "+C1 a1>C1", SHARED, change=acked(-1)),
    ),
    Code.UNSEEN: (
        Story("a1 a2", "+C1 a1>C1 a1!"),
        Story("a1", "+C1 a1>C1 a1!"),
        Story("n1 a1", "+C1[33000-65535] n1>C1 n1!", READER),
    ),
    Code.DROPPED: (
        Story("a1 a2", "+C1 a1>C1 a1!", SHARED, terms=DROPS),
        Story("a1", "+C1 a1>C1 a1!", SHARED, terms=DROPS),
        Story("a1 a2", "+C1 a1>C1 a1!", SHARED),  # it waits
    ),
    Code.LATE_ACK: (
        Story("a1", f"{TIMED_OUT} a1!", SHARE, change=acked(1_500_000)),
        Story("a1", f"{TIMED_OUT} a1!", SHARE),
        Story("a1", "+C1 a1>C1 ~80 a1!", SHARE),
    ),
    Code.ARCHIVED: (
        Story("a1 a2", "+C1 a1>C1 a1? a1>C1*1 a1? a2>C1 a2!", SHARE),
        Story("a1", "+C1 a1>C1 a1? a1>C1*1 a1!", SHARE),
        Story("a1", "+C1 a1>C1 a1? a1>C1*1", SHARE),  # its last attempt has not ended
    ),
    Code.REJECTED: (
        Story("a1", "+C1 a1>C1 a1!", SHARE, change=rejected),
        Story("a1", "+C1 a1>C1 a1!", SHARE),
        Story("a1", "+C1 a1>C1 a1?", SHARE),
    ),
    Code.OVER_LIMIT: (
        Story("a1", "+C1 a1>C1 a1? a1>C1*1 a1? a1>C1*2 a1!", SHARE),
        Story("a1", "+C1 a1>C1 a1? a1>C1*1 a1!", SHARE),
        Story("a1", "+C1 a1>C1 a1? a1>C1*1 a1? a1>C1*2 a1!", SHARED),
    ),
    Code.UNACKED: (
        Story("a1", "+C1 a1>C1"),
        Story("a1", "+C1 a1>C1 a1!"),
        Story("a1", "+C1 a1>C1 a1?", SHARED),
    ),
    Code.REDELIVERED: (
        Story("a1", NACKED),
        Story("a1", "+C1 a1>C1 a1!"),
        Story("a1 a2", SWITCH, FAILOVER),
    ),
    Code.BEFORE_PREDECESSOR_ACK: (
        Story("a1 a2", MOVED),
        Story("a1 a2", "+C1 a1>C1 +C2 a1! a2>C2 a2!"),
        Story("a1 a2 n1", "+C1 a1>C1 n1>C1 +C2 a2>C2 a1! a2! n1!", OLDER),  # read before the join
    ),
    Code.REDELIVERY_ORDER: (
        Story("a1 a2", "+C1 a1>C1 a1? a2>C1 a1>C1 a1! a2!"),
        Story("a1 a2", "+C1 a1>C1 a1? a1>C1 a2>C1 a1! a2!"),
        Story("a1 a2", SWITCH, FAILOVER),
    ),
    Code.SKIP: (
        Story("a1 n1 a2", "+C1 a1>C1 a2>C1 a1! a2!", FAILOVER),
        Story("a1 n1 a2", "+C1 a1>C1 n1>C1 a2>C1 a1! n1! a2!", FAILOVER),
        Story("n1 a1 n2", "+C1 +C2 n1>C1 n2>C1 a1>C2 n1! n2! a1!"),  # its stream has gaps
    ),
    Code.PRODUCER_ORDER: (
        Story("a1#0 a2#5 a3#4", THREE),
        Story("a1#0 a2#5 a3#6", THREE),
        Story("a1#0 a2#5 a3#0", THREE),  # it restarted
    ),
    Code.DUP_PUBLISH: (
        Story("a1#0 a2#5 a3#5", THREE),
        Story("a1#0 a2#5 a3@q#5", THREE),
        Story("a1#0 a2#5 a3#5", THREE, terms=Terms(deduplication=False)),
    ),
    Code.TWO_ACTIVE: (
        Story("a1 a3 a4", f"+C1 +C2 a1>C1 a1! {ASTRAY}", FAILOVER),
        Story("a1 a3 a4", f"+C1 +C2 a1>C1 a1! -C1 {ASTRAY}", FAILOVER),
        Story("a1 a2 a3 a4", f"+C1 +C2 a1>C1 a1! a2>C9 a2! {ASTRAY}", FAILOVER, partition=4),  # C2's, if C9 is there
    ),
    Code.CUM_ACK_MISUSE: (
        Story("a1", "+C1 a1>C1 a1!!"),
        Story("a1", "+C1 a1>C1 a1!"),
        Story("a1", "+C1 a1>C1 a1!!", FAILOVER),
    ),
    Code.ROUTING_MISMATCH: (
        Story("a1", "+C1 a1>C1 a1!", SHARED, Terms(routing=Routing(2)), 1 - HOME),
        Story("a1", "+C1 a1>C1 a1!", SHARED, Terms(routing=Routing(2)), HOME),
        Story("a1", "+C1 a1>C1 a1!", SHARED, Terms(routing=Routing(2, "CustomPartition")), 1 - HOME),
    ),
    Code.KEY_TWO_PARTITIONS: (
        in_partitions(of_key(0), of_key(1)),
        in_partitions(of_key(0), of_key(1, "another topic")),
        in_partitions(of_key(0), of_key(1), policy=SHARE),  # it promises no order
    ),
    Code.EARLY: (
        Story("a1+300", "+C1 ~80 a1>C1 a1!", SHARED),
        Story("a1+300", "+C1 ~110 a1>C1 a1!", SHARED),
        Story("a1+300", "+C1 a1>C1 a1!", FAILOVER),
    ),
    Code.OVER_PERMITS: (
        Story("a1 b1 n1", FULL, SHARED),
        Story("a1 b1 n1", FULL.replace(":1", ":2"), SHARED),
        Story("a1,a2,a3", "+C1:1 a1>C1 a2>C1 a3>C1 a1^ a2^ a3^ a1! a2! a3!", SHARED),  # a batch is sent whole
    ),
    Code.STUCK: (
        Story("a1 a2", HELD.format(100), terms=SOON),
        Story("a1 a2", HELD.format(10), terms=SOON),
        Story("a1 a2", HELD.format(100), UNORDERED, SOON),
    ),
    Code.STARVED: (
        Story("a1 n1 n2", IDLE.format(250)),
        Story("a1 n1 n2", IDLE.format(10)),
        Story("a1 n1 n2", IDLE.format(250).replace("n1>C1", "n1>C9")),  # somebody unknown is there too
    ),
    Code.STALLED: (
        Story("n1 n2", "+C1 n1>C1 n1! ~100 n1^", SHARED, WAITING),
        Story("n1 n2", "+C1 n1>C1 n1! -C1 ~100 n1^", SHARED, WAITING),  # nobody was connected
        Story("n1 n2", "+C1 n1>C1 n1! ~100 n1^", SHARE, WAITING),  # C1 may not have its partition
    ),
    Code.LATE: (
        Story("n1 n2", "+C1 n1>C1 n1! ~100 n2>C1 n2!", SHARED, WAITING),
        Story("n1 n2", "+C1 n1>C1 n1! -C1 ~100 +C1 n2>C1 n2!", SHARED, WAITING),  # nobody was connected
        Story("n1 n2", "+C1 n1>C1 n1! ~100 n2>C1 n2!", SHARE, WAITING),  # C1 may not have had its partition
    ),
    Code.BEFORE_PUBLICATION: (
        Story("a1", "+C1 a1>C1 a1!", change=published(2_500_000)),
        Story("a1", "+C1 a1>C1 a1!", change=published(1_500_000)),
        Story("a1", "+C1 a1>C1 a1!", SHARED, change=published(1_500_000)),
    ),
    Code.REDELIVERED_UNASKED: (
        Story("a1", "+C1 a1>C1 a1>C1*1 a1!"),
        Story("a1", "+C1 a1>C1 a1? a1>C1*1 a1!"),
        Story("a1", "+C1 a1>C1 a1>C1*1 a1!", FAILOVER),
    ),
    Code.DLQ_ORDER: (dead(8, 7), dead(7, 8), dead(7, 7)),  # a second copy
    Code.DLQ_INCOMPLETE: (dead_lettered(nacked=True), dead_lettered(), dead_lettered(acked=True)),
    Code.COMMIT_NOT_OWNER: (
        Story("a1", "+C1 +C2 =C1 a1>C1 C2!1", RANGE),
        Story("a1", "+C1 +C2 =C1 a1>C1 C1!1", RANGE),
        Story("a1", "+C1 +C2 =C1 a1>C1 C2?1", RANGE),  # the coordinator refused it
    ),
    Code.COMMIT_BACK: (
        Story("a1 a2", "+C1 =C1 a1>C1 a2>C1 C1!2 C1!1", RANGE),
        Story("a1 a2", "+C1 =C1 a1>C1 C1!1 a2>C1 C1!2", RANGE),
        Story("a1 a2", "+C1 =C1 a1>C1 a2>C1 C1!2 a1? a1>C1 C1!1", RANGE),  # the application sought back
    ),
    Code.COMMIT_AHEAD: (
        Story("a1 a2", "+C1 =C1 a1>C1 C1!2 a2>C1", RANGE),
        Story("a1 a2", "+C1 =C1 a1>C1 a2>C1 C1!2", RANGE),
        Story("a1 a2", "+C1 ~50 =C1 a2>C1 C1!2 ~20 a1>C1", RANGE),  # it may have come before the data
    ),
    Code.TWO_OWNERS: (
        group("+C1 +C2 =C1 =C2"),
        group("+C1 +C2 =C1 /C1 =C2"),
        group("+C1 +C2 =C1 -C1 =C2 _C1"),  # it had left, and did not know
    ),
    Code.TOLD_DIFFERS: (
        group("+C1 +C2 #C1:1 =C2:1"),
        group("+C1 +C2 #C1:1 =C1:1"),
        group("+C1 #C1:1 -C1 +C2 #C2:1 =C2:1"),  # a static member came back within the generation
    ),
    Code.OWNER_DIFFERS: (
        group("+C1 +C2 #C2:1"),
        group("+C1 +C2 #C1:1"),
        group("+C1 #C1:1 -C1 +C2 #C2:2"),
    ),
    Code.STICKY_GAP: (
        ranges("+C1[0-9]"),
        ranges("+C1[0-65535]"),
        ranges("+C1[0-65535] -C1"),  # nobody is connected
    ),
    Code.STICKY_OVERLAP: (
        ranges("+C1[0-9] +C2[5-20]"),
        ranges("+C1[0-9] +C2[10-65535]"),
        ranges("+C1[0-9] -C1 +C2[5-20]"),  # one after the other
    ),
}
each = pytest.mark.parametrize("code", Code, ids=lambda code: code.name)


def outcome(case: Story | Told, code: Code) -> str:
    found = case.found()
    return "fails" if code.name in found else "allowed" if code.name.lower() in found else "nothing"


@each
def test_a_rule_says_what_it_means_and_where_that_is_written(code: Code) -> None:
    rule = RULES[code]
    assert rule.title
    assert rule.meaning.endswith((".", ".)"))
    upstream = re.search(r"\w+(\.\w+)?.*\((3\.2\.3, 4\.0\.8|4\.0\.2|4\.4\.0).*\)|PIP-\d+", rule.source)
    documented = re.search(r"rows? [LDPK]-[A-Z]+(-[A-Z]+)?-\d", rule.source)
    assert upstream or documented
    assert rule.promised or rule.allowed
    assert not rule.promised & rule.allowed


@each
def test_a_broken_rule_is_found(code: Code) -> None:
    assert outcome(CASES[code][0], code) == ("fails" if RULES[code].promised else "allowed")


@each
def test_a_kept_rule_is_not(code: Code) -> None:
    assert outcome(CASES[code][1], code) == "nothing"


@each
def test_what_is_allowed_does_not_fail(code: Code) -> None:
    reported = outcome(CASES[code][2], code)
    assert reported != "fails"
    if RULES[code].promised and RULES[code].allowed | {e for e in LEGAL if code in e.codes}:
        assert reported == "allowed"  # and is shown
