"""Faults: each changes a real capture in one place, and says what an audit must find, where, and what follows from it.

They work on the canonical rows that an audit reads, times in µs with nanoseconds beside them.
"""

from __future__ import annotations

from base64 import b64encode
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import count, pairwise
from random import Random
from typing import Any

import pyarrow as pa

from subreplay.adapters.canonical import build_table
from subreplay.audit.routing import Routing
from subreplay.audit.rules.dead_letters import EXHAUSTED, LETTER_ORDER, LETTERS
from subreplay.audit.rules.partitions import FIRST_MESSAGES
from subreplay.audit.terms import Terms
from subreplay.config.run import parse
from subreplay.hashing.producer_routing import choose_partition
from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.base import Policy
from tests.support.recordings import ROOT, ingested

Row = dict[str, Any]
SECOND = 1_000_000_000


@dataclass
class Expected:
    """The code a fault must show as, the message it must be about (``ledger:entry``; None: any), the other codes that
    it brings with it, and whether it is found and ``exempt``."""

    code: str
    evidence: str | None
    implied: frozenset[str] = frozenset()
    exempt: bool = False


@dataclass
class Capture:
    """The canonical rows of a recording, to be changed."""

    name: str
    policy: Policy
    messages: list[Row]
    membership: list[Row]
    deliveries: list[Row]
    letters: list[Row] = field(default_factory=list)  # the messages of the dead letter topic
    terms: Terms = field(default_factory=Terms)

    @classmethod
    def load(cls, name: str) -> Capture:
        policy, terms, rows = _ingested(name)
        copies = {table: [*map(dict, of_table)] for table, of_table in rows.items()}
        copies["membership"] = deepcopy(rows["membership"])  # ranges are rows in rows
        return cls(name, policy, **copies, terms=terms)

    @property
    def tables(self) -> dict[str, pa.Table]:
        """Those that nobody has changed are made once: to compare their rows costs a tenth of making them."""
        rows = {name: getattr(self, name) for name in ("messages", "membership", "deliveries")}
        recorded, as_recorded = _ingested(self.name)[2], _tables_of(self.name)
        return {n: as_recorded[n] if of == recorded[n] else build_table(n, of) for n, of in rows.items()}

    @property
    def active(self) -> bool:
        return self.policy.routing == "partition"

    @cached_property
    def keys(self) -> dict[str, Any]:
        return {position_of(m): m["ordering_key"] or m["key"] for m in self.messages}

    @cached_property
    def once(self) -> list[Row]:
        """Deliveries of messages that were delivered once, outside batches, and acknowledged, in order of time."""
        times = Counter(position_of(d) for d in self.deliveries)
        clean = [d for d in self.deliveries if times[position_of(d)] == 1 and d["acked_at"] and d["batch_index"] < 0]
        return sorted(clean, key=at)

    @cached_property
    def by_key(self) -> list[list[Row]]:
        """Those deliveries by key (with one active consumer, by partition)."""
        found = defaultdict(list)
        for d in self.once:
            key = (
                (d["partition"],) if self.active else (d["partition"], self.keys.get(position_of(d)))
            )  # of cut data, messages may be missing
            if key[-1] is not None:
                found[key].append(d)
        return list(found.values())

    def steady(self, *moments: int) -> bool:
        """Whether no membership change was asked for or completed between the first and the last moment."""
        first, last = min(moments) - 5_000_000, max(moments) + 5_000_000
        return bisect_left(self._changes, first) == bisect_right(self._changes, last)

    @cached_property
    def _changes(self) -> list[int]:
        """When membership changes were asked for and completed."""
        return sorted(t for m in self.membership for name in ("at", "since") if (t := nanos(m, name)) is not None)

    def connected(self, moment: int) -> set[str]:
        here = set()
        for change, m in self._events:
            if change < moment:
                (here.add if m["event"] == "join" else here.discard)(m["consumer"])
        return here

    @cached_property
    def _events(self) -> list[tuple[int, Row]]:
        """Membership events in order, each with its time."""
        events = sorted(self.membership, key=lambda m: (nanos(m, "at"), m["seq"]))
        return [(nanos(m, "at") or 0, m) for m in events]


@cache
def _ingested(name: str) -> tuple[Policy, Terms, dict[str, list[Row]]]:
    recorded = ingested(ROOT / name)
    reported = recorded.run["subscription"]
    rows = {}
    for table, values in recorded.tables.items():
        plain = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in values.columns]
        rows[table] = pa.table(plain, names=values.column_names).to_pylist()
    rows["letters"] = [m for m in rows["messages"] if m["origin"]]
    rows["messages"] = [m for m in rows["messages"] if not m["origin"]]
    policy = make_policy(reported["policy"], reported["profile"], **reported.get("options", {}))
    return policy, parse(recorded.run, name).terms, rows


@cache
def _tables_of(name: str) -> dict[str, pa.Table]:
    rows = _ingested(name)[2]
    return {table: build_table(table, rows[table]) for table in ("messages", "membership", "deliveries")}


def position_of(row: Row) -> str:
    return f"{row['ledger']}:{row['entry']}"


def nanos(row: Row, name: str) -> int | None:
    micros = row[name]
    return None if micros is None else micros * 1000 + (row.get(name.replace("_at", "") + "_nanos") or 0)


def put(row: Row, name: str, moment: int | None) -> None:
    row[f"{name}_at"] = None if moment is None else moment // 1000
    if f"{name}_nanos" in row:
        row[f"{name}_nanos"] = None if moment is None else moment % 1000


def at(delivery: Row) -> int:
    moment = nanos(delivery, "delivered_at")
    assert moment is not None
    return moment


def acked(delivery: Row) -> int:
    moment = nanos(delivery, "acked_at")
    assert moment is not None
    return moment


def exchange(a: Row, b: Row, *names: str) -> None:
    for name in names:
        a[name], b[name] = b[name], a[name]


def swap_two_deliveries_of_a_key(c: Capture, rng: Random) -> Expected:
    """Two messages of one key change places in one consumer's stream, maybe one before it was published."""
    pairs = [(a, b) for ds in c.by_key for a, b in pairwise(ds) if a["consumer"] == b["consumer"] and _after(a, b)]
    a, b = rng.choice(pairs)
    evidence = position_of(a)
    exchange(a, b, "ledger", "entry")
    return Expected("PARTITION_ORDER" if c.active else "KEY_ORDER", evidence, frozenset({"BEFORE_PUBLICATION"}))


def _after(a: Row, b: Row) -> bool:
    return (a["ledger"], a["entry"]) < (b["ledger"], b["entry"])


def take_two_messages_in_the_wrong_order(c: Capture, rng: Random) -> Expected:
    """The application gets two messages of a key the other way round."""
    pairs = [
        (a, b)
        for ds in c.by_key
        for a, b in pairwise(ds)
        if a["consumer"] == b["consumer"] and _after(a, b) and (a["received_at"] or 0) < (b["received_at"] or 0)
    ]
    a, b = rng.choice(pairs)
    exchange(a, b, "received_at")
    return Expected("PARTITION_ORDER" if c.active else "KEY_ORDER", None)


def move_a_delivery(c: Capture, rng: Random) -> Expected:
    """One message goes to another connected consumer."""
    d = rng.choice([d for d in c.once if c.steady(at(d)) and len(c.connected(at(d))) > 1])
    d["consumer"] = rng.choice(sorted(c.connected(at(d)) - {d["consumer"]}))
    return Expected("WRONG_OWNER", position_of(d))


def serve_a_standby_too(c: Capture, rng: Random) -> Expected:
    """Some messages in a row go to a consumer that is not the active one."""
    runs = [
        r for ds in c.by_key for r in zip(ds, ds[1:], ds[2:], ds[6:], strict=False) if c.steady(at(r[0]), at(r[-1]))
    ]
    _, first, second, last = rng.choice(
        [r for r in runs if len(c.connected(at(r[1]))) > 1 and len({d["consumer"] for d in r}) == 1]
    )
    other = rng.choice(sorted(c.connected(at(first)) - {first["consumer"]}))
    for d in c.once:
        if d["partition"] == first["partition"] and at(first) <= at(d) <= at(last):
            d["consumer"] = other
    return Expected("TWO_ACTIVE", position_of(second), frozenset({"WRONG_OWNER"}))


def acknowledge_without_delivery(c: Capture, rng: Random) -> Expected:
    """A message is acknowledged, but nobody ever got it."""
    d = rng.choice(c.once)
    put(d, "delivered", None)
    d["received_at"] = None
    return Expected("LOST", position_of(d), frozenset({"SKIP"} if c.active else ()))


def skip_a_message(c: Capture, rng: Random) -> Expected:
    """A message is neither delivered nor acknowledged."""
    d = rng.choice(c.once[: len(c.once) // 2])
    c.deliveries.remove(d)
    return Expected("LOST", position_of(d), frozenset({"SKIP"} if c.active else ()))


def jump_over_some_messages(c: Capture, rng: Random) -> Expected:
    """The active consumer's stream leaves out three messages in a row."""
    streams = [ds for ds in c.by_key if len(ds) > 8]
    ds = rng.choice(streams)
    first = rng.choice([i for i in range(1, len(ds) - 4) if len({d["consumer"] for d in ds[i - 1 : i + 4]}) == 1
                        and c.steady(at(ds[i - 1]), at(ds[i + 3]))])  # fmt: skip
    for d in ds[first : first + 3]:
        c.deliveries.remove(d)
    return Expected("SKIP", position_of(ds[first + 3]), frozenset({"LOST"}))


def deliver_again_after_the_acknowledgement(c: Capture, rng: Random) -> Expected:
    """A message comes to its consumer again although it was acknowledged."""
    d = rng.choice([d for d in c.once if c.steady(at(d), acked(d))])
    again = dict(d)
    put(again, "delivered", acked(d) + 1)
    put(again, "acked", acked(d) + 2)
    c.deliveries.append(again)
    return Expected("DUP_DELIVERY", position_of(d))


def deliver_again_while_outstanding(c: Capture, rng: Random) -> Expected:
    """A message comes to its consumer again although the first delivery has not ended."""
    d = rng.choice([d for d in c.once if acked(d) - at(d) > 10 and c.steady(at(d), acked(d))])
    again = dict(d)
    put(again, "delivered", at(d) + 5)
    c.deliveries.append(again)
    return Expected("DUP_OUTSTANDING", position_of(d))


def acknowledge_after_the_next_owner_was_served(c: Capture, rng: Random) -> Expected:
    """A key moves to a newcomer; its last message at the old owner is acknowledged only after that."""
    joins = {m["consumer"]: nanos(m, "at") or 0 for m in c.membership if m["event"] == "join"}
    leaves = {m["consumer"]: nanos(m, "since") or 0 for m in c.membership if m["event"] == "leave"}
    pairs = [
        (a, b)
        for ds in c.by_key
        for a, b in pairwise(ds)
        if a["consumer"] != b["consumer"]
        and at(a) < joins[b["consumer"]]
        and leaves.get(a["consumer"], at(b) + SECOND) > at(b) + 20_000_000
    ]
    a, b = rng.choice(pairs)
    put(a, "acked", at(b) + 1000)
    return Expected("KEY_TWO_OWNERS", position_of(b), frozenset({"BEFORE_PREDECESSOR_ACK"}))


def key_goes_on_too_soon(c: Capture, rng: Random) -> Expected:
    """The same, looked at from the key that goes on."""
    expected = acknowledge_after_the_next_owner_was_served(c, rng)
    return Expected("BEFORE_PREDECESSOR_ACK", expected.evidence, frozenset({"KEY_TWO_OWNERS"}))


def forget_a_join(c: Capture, rng: Random) -> Expected:
    """A consumer receives messages although it never joined."""
    consumer = rng.choice(sorted({d["consumer"] for d in c.deliveries}))
    first = min((d for d in c.deliveries if d["consumer"] == consumer and d["delivered_at"]), key=at)
    c.membership = [m for m in c.membership if m["consumer"] != consumer or m["event"] != "join"]
    return Expected("NOT_CONNECTED", position_of(first))


def forget_a_leave(c: Capture, rng: Random) -> Expected:
    """A consumer left while there was traffic, but the membership does not know."""
    last = sorted(at(d) for d in c.once)[-200]
    leaves = [m for m in c.membership if m["event"] == "leave" and (nanos(m, "at") or 0) < last]
    c.membership.remove(rng.choice(leaves))
    return Expected("WRONG_OWNER", None)


def ask_for_fewer_slots(c: Capture, rng: Random) -> Expected:
    """A sticky consumer asks for half of what it serves."""
    joins = [m for m in c.membership if m["event"] == "join" and m["ranges"]]
    requested = rng.choice(joins)["ranges"]
    widest = max(requested, key=lambda r: r["end"] - r["start"])
    widest["end"] = (widest["start"] + widest["end"]) // 2
    return Expected("WRONG_OWNER", None)


def acknowledge_cumulatively(c: Capture, rng: Random) -> Expected:
    """One of many consumers acknowledges cumulatively."""
    d = rng.choice(c.once)
    d["ack_type"] = "Cumulative"
    return Expected("CUM_ACK_MISUSE", position_of(d))


def deliver_before_its_time(c: Capture, rng: Random) -> Expected:
    """A delayed message comes two seconds before its time, or when it was published."""
    messages = {position_of(m): m for m in c.messages}
    late = [
        d
        for d in c.once
        if (messages[position_of(d)]["deliver_at"] or 0) > messages[position_of(d)]["publish_time"] + 1_200_000
    ]
    d = rng.choice(late)
    m = messages[position_of(d)]
    put(d, "delivered", max(m["deliver_at"] - 2_000_000, m["publish_time"] + 1) * 1000)
    return Expected("EARLY", position_of(d))


def send_more_than_the_queue_holds(c: Capture, rng: Random) -> Expected:
    """A consumer's receiver queue is smaller than what it was sent at once."""
    del rng
    waiting = Counter(d["consumer"] for d in c.once)
    sizes = {m["consumer"]: m for m in c.membership if m["event"] == "join"}
    greedy = max(sizes, key=lambda name: ((sizes[name]["receiver_queue_size"] or 1000), waiting[name]))
    sizes[greedy]["receiver_queue_size"] = 1
    return Expected("OVER_PERMITS", None)


def publish_twice(c: Capture, rng: Random) -> Expected:
    """A producer's message stands in the log a second time, at its end."""
    original = rng.choice([m for m in c.messages if m["batch_index"] < 0])
    log = [m for m in c.messages if m["partition"] == original["partition"]]
    last = max(log, key=lambda m: (m["ledger"], m["entry"]))
    c.messages.append(original | {"ledger": last["ledger"], "entry": last["entry"] + 1})
    return Expected("DUP_PUBLISH", position_of(c.messages[-1]))


def exchange_sequence_ids(c: Capture, rng: Random) -> Expected:
    """Two messages of one producer and partition have each other's sequence ids."""
    a = rng.choice([m for m in c.messages if m["batch_index"] < 0 and m["sequence_id"] > 0])
    b = rng.choice([m for m in c.messages if m["partition"] == a["partition"] and m["sequence_id"] > 0 and m is not a])
    exchange(a, b, "sequence_id")
    return Expected("PRODUCER_ORDER", position_of(max(a, b, key=lambda m: (m["ledger"], m["entry"]))))


def write_one_position_twice(c: Capture, rng: Random) -> Expected:
    """One position has two contents."""
    m = rng.choice(c.messages)
    c.messages.append(m | {"size": m["size"] + 1})
    return Expected("DIVERGENT_ID", position_of(m))


def forget_a_message(c: Capture, rng: Random) -> Expected:
    """A message was delivered that the log does not have."""
    d = rng.choice(c.once)
    c.messages = [m for m in c.messages if position_of(m) != position_of(d)]
    return Expected("UNKNOWN_MESSAGE", position_of(d))


def mix_a_batch(c: Capture, rng: Random) -> Expected:
    """One message of a batch has another key than the first."""
    m = rng.choice([m for m in c.messages if m["batch_index"] > 0])
    m["key"] = b"a key of its own"
    return Expected("MIXED_BATCH", position_of(m))


def move_a_message_to_another_partition(c: Capture, rng: Random) -> Expected:
    """A message of a key goes to another partition than the key's others."""
    moved = _moved(c, rng, whole_key=False)
    return Expected("KEY_TWO_PARTITIONS", moved, frozenset({"ROUTING_MISMATCH"}))


def send_a_key_to_the_wrong_partition(c: Capture, rng: Random) -> Expected:
    """The only message of a key is where its hash does not send it."""
    return Expected("ROUTING_MISMATCH", _moved(c, rng, whole_key=True))


def _moved(c: Capture, rng: Random, whole_key: bool) -> str:
    """Put a message behind another one of another partition, delivered together with it; where it then is."""
    partitions = len({m["partition"] for m in c.messages})
    c.terms = Terms(routing=Routing(partitions))
    for m in c.messages:  # the recorded client hashes keys otherwise
        m["key"] = _routed(m["key"], m["partition"], partitions)
    for row in (*c.messages, *c.deliveries):
        row["entry"] *= 2  # room for one behind each
    d = rng.choice([d for d in c.once if c.steady(at(d)) and d["delivered_nanos"] < 999])
    neighbour = next(m for m in c.messages if position_of(m) == position_of(d) and m["partition"] == d["partition"])
    key = next(k for i in count() if d["partition"] not in _partitions_of(k := f"a key of its own {i}", partitions))
    if not whole_key:
        common = Counter(m["key"] for m in c.messages if m["partition"] != d["partition"])
        often = [key.decode() for key, messages in common.items() if messages > 2]
        key = rng.choice([key for key in often if d["partition"] not in _partitions_of(key, partitions)])
    c.messages.append(neighbour | {"entry": d["entry"] + 1, "key": key.encode(), "sequence_id": -1})
    c.deliveries.append(d | {"entry": d["entry"] + 1, "delivered_nanos": d["delivered_nanos"] + 1})
    return position_of(c.messages[-1])


@cache
def _routed(key: bytes, partition: int, partitions: int) -> bytes:
    """A key that starts like this one and belongs to that partition."""
    names = (f"{key.decode()}~{i}" for i in count())
    return next(name for name in names if choose_partition(name, partitions) == partition).encode()


def _partitions_of(key: str, partitions: int) -> set[int]:
    """Where a key belongs, as text or as bytes."""
    return {choose_partition(text, partitions) for text in (key, b64encode(key.encode()).decode())}


def lose_a_dead_letter(c: Capture, rng: Random) -> Expected:
    """A message that was given up is not on the dead letter topic."""
    lost = rng.choice(c.letters)
    c.letters = [m for m in c.letters if m["origin"] != lost["origin"]]
    return Expected("DLQ_INCOMPLETE", position_of(lost["origin"]))


def exchange_dead_letters(c: Capture, rng: Random) -> Expected:
    """Two messages of a key stand on the dead letter topic the other way round."""
    by_key: dict[bytes, list[Row]] = defaultdict(list)
    for m in sorted(c.letters, key=position):
        by_key[m["key"]].append(m)
    pairs = [(a, b) for ms in by_key.values() for a, b in pairwise(ms) if _origin(a) < _origin(b)]
    a, b = rng.choice(pairs)
    exchange(a, b, "origin")
    return Expected("DLQ_ORDER", position_of(b["origin"]))


S1, S1B, S1E = "s1_key_shared_autosplit", "s1b_key_shared_stuck", "s1e_key_shared_key_based_batching"
S2, S3, S4 = "s2_key_shared_autosplit_other_selector", "s3_key_shared_sticky", "s4_key_shared_allow_ooo"
S5, S5P, S6 = "s5_failover_partitioned", "s5p_failover_partitioned_priority", "s6_failover_nonpartitioned"
S7, S7B, S8, S9 = "s7_shared_rq_nack_close", "s7b_shared_dlq", "s8_exclusive_cumulative", "s9_delayed_shared"

FAULTS: dict[Callable[[Capture, Random], Expected], tuple[str, ...]] = {
    swap_two_deliveries_of_a_key: (S1, S1B, S2, S3, S5, S6),
    take_two_messages_in_the_wrong_order: (S1, S3, S5),
    move_a_delivery: (S1, S1B, S2, S3, S5, S5P),
    serve_a_standby_too: (S5, S5P, S6),
    acknowledge_without_delivery: (S1, S5, S7, S9),
    skip_a_message: (S1, S2, S5P, S7, S9),
    jump_over_some_messages: (S5, S5P, S6),
    deliver_again_after_the_acknowledgement: (S1, S3, S5, S7),
    deliver_again_while_outstanding: (S1, S2, S7),
    acknowledge_after_the_next_owner_was_served: (S1, S1B, S2),
    key_goes_on_too_soon: (S1, S2),
    forget_a_join: (S1, S2, S3, S5, S7),
    forget_a_leave: (S1, S2),
    ask_for_fewer_slots: (S3,),
    acknowledge_cumulatively: (S1, S3, S4, S7, S9),
    deliver_before_its_time: (S9,),
    send_more_than_the_queue_holds: (S1, S7),
    publish_twice: (S1, S4, S5, S7, S8),
    exchange_sequence_ids: (S1, S2, S5, S7),
    write_one_position_twice: (S1, S5, S7),
    forget_a_message: (S1, S5, S7),
    mix_a_batch: (S1E,),
    move_a_message_to_another_partition: (S5, S5P),
    send_a_key_to_the_wrong_partition: (S5, S5P),
    lose_a_dead_letter: (S7B,),
    exchange_dead_letters: (S7B,),
}


def first_messages(c: Capture) -> pa.Table:
    """The first message of each key in each partition: what Spark aggregates."""
    if len({m["partition"] for m in c.messages}) < 2:
        return FIRST_MESSAGES.empty_table()
    first: dict[tuple[int, bytes], Row] = {}
    for m in sorted(c.messages, key=lambda m: (m["ledger"], m["entry"])):
        if m["key"] is not None:
            first.setdefault((m["partition"], m["key"]), m)
    spread = Counter(key for _, key in first)
    count = Counter((m["partition"], m["key"]) for m in c.messages)
    rows = []
    for (partition, key), m in first.items():
        if spread[key] > 1:
            reported = {"published": m["publish_time"] * 1000, "key": key.decode(), "messages": count[partition, key]}
            rows.append({name: m.get(name) for name in FIRST_MESSAGES.names} | reported)
    return pa.Table.from_pylist(rows, schema=FIRST_MESSAGES)


def exhausted(c: Capture) -> pa.Table:
    """What reached the last attempt and is no dead letter: what Spark joins."""
    limit, arrived = c.terms.max_redeliveries, {_origin(m) for m in c.letters}
    attempts = [d for d in c.deliveries if d["delivered_at"] and limit is not None and d["redelivery_count"] >= limit]
    last = {position(d): d for d in sorted(attempts, key=lambda d: (d["redelivery_count"], at(d), d["seq"]))}
    acked = {position(d) for d in attempts if d["acked_at"]}
    rows = [
        {name: d.get(name) for name in EXHAUSTED.names}
        | {"key": str(c.keys[position_of(d)]), "at": at(d), "acked": position(d) in acked}
        | {"nacked": d["nacked_at"] is not None or d["refused_at"] is not None}
        for d in last.values()
        if position(d) not in arrived
    ]
    return pa.Table.from_pylist(rows, schema=EXHAUSTED)


def letters(c: Capture) -> pa.Table:
    """The dead letters key by key: what Spark sorts."""
    rows = [
        {name: m.get(name) for name in LETTERS.names}
        | {f"origin_{name}": m["origin"][name] for name in ("ledger", "entry", "batch_index")}
        | {"topic": m["origin"]["topic"], "partition": m["origin"]["partition"], "key": m["key"].decode()}
        | {"published": m["publish_time"] * 1000, "judged": True}
        for m in c.letters
    ]
    return pa.Table.from_pylist(rows, schema=LETTERS).sort_by([(name, "ascending") for name in LETTER_ORDER])


def position(row: Row) -> tuple[int, ...]:
    return row["partition"], row["ledger"], row["entry"], row["batch_index"]


def _origin(letter: Row) -> tuple[int, ...]:
    return position(letter["origin"])
