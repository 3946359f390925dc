"""Harmless stalls: what looks as if messages waited for a free consumer, and is as it should be.

None of them may be reported as STALLED, STUCK, STARVED or LATE. One step of a story is 10 ms; the thresholds here are
half a second. Messages are published before the first step, except where ``later`` says when.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from subreplay.audit.terms import Terms
from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.base import Policy
from tests.support.history import START, STEP, History, auto_split, findings_of, history, positions

HALF: Final = 500_000_000
SOON: Final = Terms(stalled_after=HALF, late_after=HALF, stuck_after=HALF, starved_after=HALF)
LIVENESS: Final = {"STALLED", "STUCK", "STARVED", "LATE"}
KEY_SHARED, OLDER = auto_split(), auto_split("pulsar-3.2")
RING = make_policy("pulsar.key_shared.consistent_hash", "pulsar-4.0")
SHARED, FAILOVER, EXCLUSIVE = (make_policy(f"pulsar.{of}", "pulsar-4.0") for of in ("shared", "failover", "exclusive"))
STICKY, READER = (
    make_policy("pulsar.key_shared.sticky", "pulsar-4.0"),
    make_policy("pulsar.key_hash_range", "pulsar-4.0"),
)
RANGE, COOPERATIVE = make_policy("kafka.range", "kafka-4.0"), make_policy("kafka.cooperative_sticky", "kafka-4.0")
PULSAR: Final = (KEY_SHARED, OLDER, RING, SHARED, FAILOVER, EXCLUSIVE)
SLOTS: Final = (KEY_SHARED, OLDER)
KAFKA: Final = (RANGE, COOPERATIVE)

Change = Callable[[History], History]


def later(log: str, **steps: int) -> Change:
    """Messages of a log that are published in the step that each names."""
    at = {positions(log)[name]: START + step * STEP for name, step in steps.items()}

    def change(tables: History) -> History:
        rows = tables["messages"].to_pylist()
        times = [at.get((row["entry"], row["batch_index"])) for row in rows]
        field = tables["messages"].schema.field("publish_time")
        times = pc.coalesce(pa.array(times, pa.int64()).cast(field.type), tables["messages"]["publish_time"])
        return tables | {"messages": tables["messages"].set_column(_index(tables, "publish_time"), field, times)}

    return change


def without(*entries: int) -> Change:
    """Positions of which the messages table has no row: trimmed, or no message of a producer."""

    def change(tables: History) -> History:
        kept = pc.invert(pc.is_in(tables["messages"]["entry"], pa.array(entries, tables["messages"]["entry"].type)))
        return tables | {"messages": tables["messages"].filter(kept)}

    return change


def not_stored(tables: History) -> History:
    """The same on a topic that stores nothing."""
    changed = {}
    for name, table in tables.items():
        field = table.schema.field("topic")
        topic = pa.array(["non-persistent://public/default/t"] * table.num_rows, field.type)
        changed[name] = table.set_column(table.schema.get_field_index("topic"), field, topic)
    return changed


def acknowledged(entry: int) -> Change:
    """An acknowledgement of a message without a delivery of it: a recording that missed it, or an admin's skip."""

    def change(tables: History) -> History:
        rows = tables["deliveries"].to_pylist()
        last = max(row["delivered_at"] or row["acked_at"] for row in rows)
        reported = rows[0] | {"entry": entry, "delivered_at": None, "acked_at": last, "ack_type": "Individual"}
        return tables | {"deliveries": pa.Table.from_pylist([*rows, reported], tables["deliveries"].schema)}

    return change


def _index(tables: History, column: str) -> int:
    return tables["messages"].schema.get_field_index(column)


def as_it_is(tables: History) -> History:
    return tables


class Control(NamedTuple):
    """A history in which nothing is wrong with the flow of messages, under each of some policies."""

    log: str
    story: str
    policies: tuple[Policy, ...] = PULSAR
    terms: Terms = SOON
    change: Change = as_it_is
    partition: int = -1


THREE = "n1 n2 n3"
DELAYING: Final = (KEY_SHARED, OLDER, RING, SHARED)
STEADY = "+C1:1 n1>C1 ~40 n1! n2>C1 ~40 n2! n3>C1 ~40 n3!"
GROUP = "+C1 +C2 =C1 a1>C1 C1!1 {} a2>C1 C1!2"
CONTROLS: Final[dict[str, Control]] = {
    # nothing is due
    "a quiet topic": Control("n1 n2", "+C1 n1>C1 n2>C1 n1! n2! ~900 +C2"),
    "a topic that is quiet for long and goes on": Control(
        "n1 n2", "+C1 n1>C1 n1! ~800 n2>C1 n2!", change=later("n1 n2", n2=900)
    ),
    "publishing that stops for good": Control("n1", "+C1 n1>C1 n1! ~2000 -C1"),
    "a message that is published when the data end": Control(
        "n1 n2", "+C1 n1>C1 n1! ~100 n1^", change=later("n1 n2", n2=200)
    ),
    "a topic without messages": Control("", "+C1 ~900 +C2 ~900 -C1"),
    "a delayed message that is not due when the data end": Control("n1 n2+9000", "+C1 n1>C1 n1! ~900 n1^", DELAYING),
    "a delayed message that waits for its time": Control("n1 n2+900", "+C1 n1>C1 n1! ~797 n2>C1 n2!", DELAYING),
    "delayed messages that come within a tick of their time": Control(
        "n1 n2+300 n3+300", "+C1 n1>C1 n1! ~290 n2>C1 n3>C1 n2! n3!", DELAYING
    ),
    "a message that was not delayed overtakes one that was": Control(
        "n1+800 n2", "+C1 n2>C1 n2! ~700 n1>C1 n1!", (SHARED,)
    ),
    "a delay that one active consumer ignores": Control("n1+800 n2", "+C1 n1>C1 n1! n2>C1 n2!", (FAILOVER, EXCLUSIVE)),
    # nobody may take it
    "nobody ever connected": Control(THREE, "", PULSAR),
    "a planned pause, all consumers left": Control(THREE, "+C1 n1>C1 n1! -C1 ~900 +C1 n2>C1 n3>C1 n2! n3!"),
    "all consumers left for good": Control(THREE, "+C1 n1>C1 n1! -C1 ~900 n1^"),
    "the application was stopped before it had read all": Control(THREE, "+C1 +C2 n1>C1 n1! ~20 -C1 -C2 ~900 n1^"),
    "a crash, and a restart much later": Control(THREE, "+C1 n1>C1 xC1 ~900 +C1 n1>C1*1 n2>C1 n3>C1 n1! n2! n3!"),
    "a rolling restart": Control(THREE, "+C1 n1>C1 n1! ~20 -C1 ~20 +C2 n2>C2 n2! ~20 -C2 ~20 +C3 n3>C3 n3!"),
    "consumers that come long after the messages": Control(THREE, "~2000 +C1 n1>C1 n2>C1 n3>C1 n1! n2! n3!"),
    # somebody is busy, as one may be
    "slow but steady": Control(THREE, STEADY),
    "a queue that is worked off for long": Control(THREE, "+C1:3 n1>C1 n2>C1 n3>C1 ~40 n1! ~40 n2! ~40 n3! ~300 n3^"),
    "receipts of an application show that it goes on": Control(
        THREE, "+C1:2 n1>C1 n2>C1 ~40 n1^ n1! ~40 n2^ n2! n3>C1 ~20 n3^ n3!"
    ),
    "a message that waits for its predecessor for a moment": Control("a1 a2", "+C1:1 a1>C1 ~40 a1! a2>C1 a2!", SLOTS),
    "a full queue, while others of Shared are served": Control(
        "a1 a2 a3 a4", "+C1:1 +C2:1 a1>C1 a2>C2 a2! ~30 a3>C2 a3! ~30 a4>C2 a4!", (SHARED,)
    ),
    "a consumer of Shared that gets nothing since the other one takes all": Control(
        "a1 a2 a3 a4", "+C1 +C2 a1>C1 a1! ~30 a2>C1 a2! ~30 a3>C1 a3! ~30 a4>C1 a4!", (SHARED,)
    ),
    "a consumer without a queue": Control(THREE, STEADY.replace(":1", ":0", 1)),
    "the last message is never acknowledged": Control("n1 n2", "+C1 n1>C1 n2>C1 n1! ~900 n1^"),
    # somebody has nothing to do
    "a consumer whose hashes have no message": Control(THREE, "+C1 +C2 n1>C1 n1! ~30 n2>C1 n2! ~30 n3>C1 n3!", SLOTS),
    "a consumer whose range has no message": Control(
        THREE,
        "+C1[100-65535] +C2[0-9] n1>C1 n1! ~30 n2>C1 n2! ~90 n3>C1 n3!",
        (STICKY,),
        change=later(THREE, n2=130, n3=220),
    ),
    "a standby of Failover": Control(
        THREE, "+C1 +C2 n1>C1 n1! ~300 n2>C1 n2! ~300 n3>C1 n3!", (FAILOVER,), change=later(THREE, n2=400, n3=700)
    ),
    "a standby that takes over within the threshold": Control(
        THREE, "+C1 +C2 n1>C1 n1! -C1 ~40 n2>C2 n3>C2 n2! n3!", (FAILOVER,)
    ),
    "a consumer of Failover that is active for other partitions": Control(
        THREE, "+C1 +C2 n1>C2 n1! ~30 n2>C2 n2! ~30 n3>C2 n3!", (FAILOVER,), partition=1
    ),
    "a Kafka group with more members than partitions": Control(
        "a1 a2", "+C1 +C2 +C3 =C1 a1>C1 C1!1 ~30 a2>C1 C1!2 ~900 -C3", KAFKA, partition=0
    ),
    # Kafka
    "a rebalance of seconds": Control("a1 a2", GROUP.format("/C1 ~40 =C1"), KAFKA, partition=0),
    "a rebalance that moves the partition": Control(
        "a1 a2", "+C1 =C1 a1>C1 C1!1 +C2 /C1 ~40 =C2 a2>C2 C2!2", KAFKA, partition=0
    ),
    "a group that is stopped": Control(
        "a1 a2", "+C1 =C1 a1>C1 C1!1 /C1 -C1 ~900 +C2 =C2 a2>C2 C2!2", KAFKA, partition=0
    ),
    "a poll loop that works on its records": Control(
        "a1 a2 a3", "+C1 =C1 a1>C1 a2>C1 ~45 C1!2 a3>C1 C1!3", KAFKA, partition=0
    ),
    "a group that never committed": Control("a1 a2", "+C1 =C1 a1>C1 a2>C1 ~900 -C1", KAFKA, partition=0),
    "markers of transactions take offsets": Control(
        "a1 a2 a3", "+C1 =C1 a1>C1 C1!2 ~30 a3>C1 C1!3 ~900 -C1", KAFKA, change=without(1), partition=0
    ),
    "a partition that is trimmed before it is read": Control(
        "a1 a2 a3", "+C1 =C1 a2>C1 a3>C1 C1!3 ~900 -C1", KAFKA, change=without(0), partition=0
    ),
    # what is never delivered, and needs not be
    "a backlog that retention trimmed": Control(THREE, "~500 +C1 n2>C1 n3>C1 n2! n3! ~900 n3^", change=without(0)),
    "a backlog that is older than the time to live": Control(
        THREE,
        "+C1 n1>C1 n1! -C1 ~500 +C1 n3>C1 n3! ~900 n3^",
        terms=replace(SOON, ttl=HALF),
        change=later(THREE, n3=600),
    ),
    "a subscription that began at the latest message": Control(
        THREE, "~500 +C1 ~900 n3>C1 n3! ~900 n3^", change=later(THREE, n3=1500)
    ),
    "a group that began at the latest record": Control(
        "a1 a2 a3", "~500 +C1 =C1 ~900 a3>C1 C1!3", KAFKA, change=later("a1 a2 a3", a3=1501), partition=0
    ),
    "data that begin in mid-life": Control(
        "n1 n2 n3 n4", "~500 +C1 n3>C1 n3! n4>C1 n4! ~900 n4^", change=later("n1 n2 n3 n4", n3=600, n4=601)
    ),
    "a topic that stores nothing drops messages": Control(THREE, "+C1 n1>C1 n1! ~900 n1^", change=not_stored),
    "an older value of a key, read compacted": Control(
        "n1 n2", "+C1 n2>C1 n2! ~900 n2^", (FAILOVER, EXCLUSIVE), replace(SOON, compacted=True)
    ),
    "a second copy that deduplication drops": Control(
        "n1#0 n2#5 n3#5", "+C1 n1>C1 n1! n2>C1 n2! ~900 n2^", terms=replace(SOON, deduplication=True)
    ),
    "a message outside of the ranges that a reader asked for": Control(
        "a1 n1", "+C1[33000-65535] n1>C1 n1! ~900 n1^", (READER,)
    ),
    "a message that was acknowledged without a delivery that is recorded": Control(
        "n1 n2", "+C1 n1>C1 n1! ~900 -C1", change=acknowledged(1)
    ),
    # what comes again
    "a message that was given back, and comes again after its redelivery delay": Control(
        "n1 n2", "+C1 n1>C1 n2>C1 n2! n1? ~300 n1>C1*1 n1!", DELAYING
    ),
    "an ack timeout": Control("n1 n2", "+C1 n1>C1 n2>C1 n2! ~300 n1? n1>C1*1 n1!", DELAYING),
    "a message that goes to the dead letter topic after three redeliveries": Control(
        "n1 n2",
        "+C1 n1>C1 n2>C1 n2! n1? n1>C1*1 n1? n1>C1*2 n1? n1>C1*3 n1! ~900 n1^",
        (SHARED,),
        replace(SOON, max_redeliveries=3),
    ),
    # batches, chunks, limits
    "a batch comes as a whole": Control("n1,n2,n3", "+C1 n1>C1 n2>C1 n3>C1 n1! n2! n3! ~900 n3^"),
    "chunks of a message": Control(
        "n1%0/2 n2%1/2 n3", "+C1 n1>C1 n2>C1 n3>C1 n1! n2! n3! ~900 n3^", (SHARED, EXCLUSIVE)
    ),
    "a limit of unacknowledged messages that is not reached": Control(
        THREE, "+C1 n1>C1 n2>C1 n3>C1 ~900 n3^", (SHARED, KEY_SHARED), replace(SOON, max_unacked_per_consumer=9)
    ),
    "a pause when the data end that is shorter than the threshold": Control(THREE, "+C1 n1>C1 n2>C1 n1! n2! ~40 n2^"),
    "a consumer that joined shortly before the data end": Control(THREE, "~500 +C1 ~20 n1>C1 n1!"),
}
CASES: Final = [
    pytest.param(control, policy, id=f"{name}, {policy.name} of {policy.profile}")
    for name, control in CONTROLS.items() for policy in control.policies
]  # fmt: skip


@pytest.mark.parametrize(("control", "policy"), CASES)
def test_what_is_harmless_is_not_reported(control: Control, policy: Policy) -> None:
    tables = control.change(history(control.log, control.story, control.partition))
    assert {code.upper() for code, _ in findings_of(policy, tables, control.terms)} & LIVENESS == set()


def test_the_same_without_the_circumstance_is_reported() -> None:
    """The thresholds are such that a real stall shows."""
    stalled = history(THREE, "+C1 n1>C1 n1! ~100 n1^")
    assert all({code for code, _ in findings_of(policy, stalled, SOON)} & LIVENESS for policy in PULSAR)


def test_there_are_thirty_of_them() -> None:
    assert len(CONTROLS) >= 30
