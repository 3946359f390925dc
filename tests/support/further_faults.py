"""Further faults: what somebody else would try, once those of ``faults`` are found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from random import Random

from tests.support.faults import (
    S1,
    S1B,
    S1E,
    S2,
    S3,
    S4,
    S5,
    S5P,
    S6,
    S7,
    S8,
    S9,
    Capture,
    Expected,
    Row,
    acked,
    at,
    exchange,
    nanos,
    position_of,
    put,
)

MILLISECOND = 1_000_000


def _later(c: Capture, d: Row, after: int) -> Row:
    """A second delivery of the same message, and as long."""
    again = dict(d)
    put(again, "delivered", after)
    put(again, "acked", after + MILLISECOND)
    if again["received_at"] is not None:
        again["received_at"] = after // 1000 + 1
    c.deliveries.append(again)
    return again


def _elsewhere(c: Capture, d: Row, rng: Random) -> str:
    return rng.choice(sorted(c.connected(at(d)) - {d["consumer"]}))


def exchange_two_consumers(c: Capture, rng: Random) -> Expected:
    """Two messages of different keys get each other's consumer."""
    neighbours = [
        (a, b)
        for a, b in pairwise(c.once)
        if a["consumer"] != b["consumer"] and a["partition"] == b["partition"] and c.steady(at(a), at(b))
    ]
    a, b = rng.choice(neighbours)
    exchange(a, b, "consumer")
    return Expected("WRONG_OWNER", position_of(a))


def deliver_to_a_second_consumer_too(c: Capture, rng: Random) -> Expected:
    """While a message is outstanding, another consumer gets it as well."""
    long = [d for d in c.once if acked(d) - at(d) > 100 and c.steady(at(d), acked(d)) and len(c.connected(at(d))) > 1]
    d = rng.choice(long)
    again = _later(c, d, at(d) + 5)
    again["consumer"] = _elsewhere(c, d, rng)
    return Expected("WRONG_OWNER" if c.policy.routing != "any" else "DUP_OUTSTANDING", position_of(d))


def deliver_elsewhere_after_the_acknowledgement(c: Capture, rng: Random) -> Expected:
    """A message that was acknowledged comes again, to another consumer."""
    d = rng.choice([d for d in c.once if c.steady(at(d), acked(d) + 10) and len(c.connected(at(d))) > 1])
    _later(c, d, acked(d) + 5)["consumer"] = _elsewhere(c, d, rng)
    return Expected("DUP_DELIVERY", position_of(d), frozenset({"WRONG_OWNER"}))


def deliver_to_one_that_left(c: Capture, rng: Random) -> Expected:
    """A message goes to a consumer that had closed."""
    gone = {m["consumer"]: nanos(m, "at") or 0 for m in c.membership if m["event"] == "leave"}
    late = [(d, name) for d in c.once for name, left in gone.items()
            if left < at(d) - 5 * MILLISECOND and name not in c.connected(at(d)) and c.steady(at(d))]  # fmt: skip
    d, name = rng.choice(late)
    d["consumer"] = name
    return Expected("NOT_CONNECTED", position_of(d))


def deliver_to_an_unknown_consumer(c: Capture, rng: Random) -> Expected:
    """A message goes to a consumer that nobody knows."""
    d = rng.choice(c.once)
    d["consumer"] = "nobody-knows"
    return Expected("NOT_CONNECTED", position_of(d))


def come_late(c: Capture, rng: Random) -> Expected:
    """A message comes, and is acknowledged, after the next one of its key."""
    pairs = [
        (a, b)
        for ds in c.by_key
        for a, b in pairwise(ds)
        if a["consumer"] == b["consumer"]
        and (a["ledger"], a["entry"]) < (b["ledger"], b["entry"])
        and c.steady(at(a), at(b) + MILLISECOND)
    ]
    a, b = rng.choice(pairs)
    put(a, "delivered", at(b) + 1)
    put(a, "acked", max(acked(a), at(a) + MILLISECOND))
    if a["received_at"] is not None:
        a["received_at"] = max(a["received_at"], at(a) // 1000 + 1)
    return Expected("PARTITION_ORDER" if c.active else "KEY_ORDER", position_of(a))


def exchange_two_messages_in_the_log(c: Capture, rng: Random) -> Expected:
    """Two messages of one key and producer stand in the log the other way round, maybe one behind its delivery."""
    of_key: dict[object, list[Row]] = {}
    for m in sorted(c.messages, key=lambda m: (m["ledger"], m["entry"])):
        of_key.setdefault((m["partition"], m["key"], m["producer"]), []).append(m)
    one = {position_of(d) for d in c.once}
    pairs = [
        (a, b)
        for (_, key, _), ms in of_key.items()
        for a, b in pairwise(ms)
        if key is not None and {position_of(a), position_of(b)} <= one and a["sequence_id"] > 0
    ]
    a, b = rng.choice(pairs)
    exchange(a, b, "sequence_id", "publish_time", "size")
    return Expected("PRODUCER_ORDER", position_of(b), frozenset({"BEFORE_PUBLICATION"}))


def forget_an_acknowledgement(c: Capture, rng: Random) -> Expected:
    """A message was never acknowledged: allowed, but whoever gets its key next comes too soon, and one who starts
    behind it skips it."""
    d = rng.choice(c.once)
    put(d, "acked", None)
    implied = {"SKIP"} if c.active else {"KEY_TWO_OWNERS", "BEFORE_PREDECESSOR_ACK"}
    return Expected("UNACKED", position_of(d), frozenset(implied))


def acknowledge_before_the_delivery(c: Capture, rng: Random) -> Expected:
    """The acknowledgement is older than the delivery."""
    d = rng.choice(c.once)
    put(d, "acked", at(d) - MILLISECOND)
    return Expected("ACK_EARLY", position_of(d))


def end_too_soon(c: Capture, rng: Random) -> Expected:
    """The last message of the log was not delivered by the end: late, not lost."""
    del rng
    last = max(c.messages, key=lambda m: (m["publish_time"], m["partition"], m["ledger"], m["entry"]))
    behind = {
        position_of(m)
        for m in c.messages
        if m["partition"] == last["partition"] and (m["ledger"], m["entry"]) >= (last["ledger"], last["entry"])
    }
    c.deliveries = [d for d in c.deliveries if position_of(d) not in behind]
    return Expected("UNSEEN", position_of(last))


def let_a_message_expire(c: Capture, rng: Random) -> Expected:
    """A message is missing that was older than the time to live when a later one came."""
    c.terms = replace(c.terms, ttl=MILLISECOND // 1000)
    d = rng.choice(c.once[: len(c.once) // 2])
    c.deliveries.remove(d)
    return Expected("LOST", position_of(d), exempt=True)


def compact_a_message_away(c: Capture, rng: Random) -> Expected:
    """A message is missing of whose key a newer one was delivered, under compaction."""
    c.terms = replace(c.terms, compacted=True)
    d, _ = rng.choice([pair for ds in c.by_key for pair in pairwise(ds) if pair[0]["ledger"] <= pair[1]["ledger"]])
    c.deliveries.remove(d)
    return Expected("LOST", position_of(d), exempt=True)


def change_a_key(c: Capture, rng: Random) -> Expected:
    """The log says another key than the one that a message was dispatched by."""
    owners: dict[object, set[str]] = {}
    for d in c.once:
        owners.setdefault(c.keys[position_of(d)], set()).add(d["consumer"])
    d = rng.choice([d for d in c.once if c.steady(at(d))])
    others = [key for key, names in owners.items() if key is not None and d["consumer"] not in names]
    other = rng.choice(sorted(others))
    (m,) = (m for m in c.messages if position_of(m) == position_of(d) and m["partition"] == d["partition"])
    m["key"], m["ordering_key"] = other, None
    return Expected("WRONG_OWNER", position_of(d), frozenset({"KEY_ORDER"}))


def ask_for_the_slots_of_another(c: Capture, rng: Random) -> Expected:
    """A sticky consumer asks for slots that a connected one serves, and is refused; yet it is served."""
    joins = [m for m in c.membership if m["event"] == "join" and m["ranges"]]
    later = rng.choice(joins[1:2])
    later["ranges"][0] = {"start": 0, "end": 65535}
    return Expected("STICKY_OVERLAP", None, frozenset({"NOT_CONNECTED"}))


def starve_a_consumer(c: Capture, rng: Random) -> Expected:
    """A connected consumer is given nothing any more, while others are served for three seconds and longer."""
    end = at(c.once[-1])
    here = set.intersection(*(c.connected(end - n * 100 * MILLISECOND) for n in range(31)))
    since = end - 3_000 * MILLISECOND
    late = {(d["partition"], d["consumer"]) for d in c.once if at(d) > since and at(d) < since + 500 * MILLISECOND}
    partition, name = rng.choice(sorted((p, n) for p, n in late if n in here))
    lost = [d for d in c.deliveries if (d["partition"], d["consumer"]) == (partition, name) and at(d) > since]
    c.deliveries = [d for d in c.deliveries if not any(d is gone for gone in lost)]
    return Expected("STARVED", None, frozenset({"LOST"}))


def starve_a_partition(c: Capture, rng: Random) -> Expected:
    """The active consumer of a partition is given nothing any more, while those of others are for three seconds, and
    nobody joined or left for the last one of these."""
    c.terms = replace(c.terms, starved_after=500 * MILLISECOND)
    since = at(c.once[-1]) - 3_000 * MILLISECOND
    late = [d for d in c.deliveries if d["delivered_at"] and at(d) > since]
    partition = rng.choice(sorted({d["partition"] for d in late if at(d) < since + 500 * MILLISECOND}))
    gone = {id(d) for d in late if d["partition"] == partition}
    c.deliveries = [d for d in c.deliveries if id(d) not in gone]
    return Expected("STARVED", None)


def deliver_before_the_publication(c: Capture, rng: Random) -> Expected:
    """A message comes five seconds before it was published."""
    d = rng.choice(c.once)
    (m,) = (m for m in c.messages if position_of(m) == position_of(d) and m["partition"] == d["partition"])
    m["publish_time"] = at(d) // 1000 + 5_000_000
    return Expected("BEFORE_PUBLICATION", position_of(d))


def deliver_again_for_no_cause(c: Capture, rng: Random) -> Expected:
    """A message is redelivered with a higher redelivery count, although no consumer nacked it, timed out or left."""
    d = rng.choice([d for d in c.once if acked(d) - at(d) > 10 and c.steady(at(d), acked(d))])
    again = d | {"redelivery_count": d["redelivery_count"] + 1}
    put(again, "delivered", at(d) + 5)
    c.deliveries.append(again)
    return Expected("REDELIVERED_UNASKED", position_of(d))


def misplace_beside_an_unknown_consumer(c: Capture, rng: Random) -> Expected:
    """A message goes to a consumer that nobody knows, and another one to a consumer that does not own it."""
    apart = [d for d in c.once if c.steady(at(d)) and len(c.connected(at(d))) > 1]
    stray, d = rng.sample(apart, 2)
    stray["consumer"] = "nobody-knows"
    d["consumer"] = _elsewhere(c, d, rng)
    return Expected("WRONG_OWNER", position_of(d), frozenset({"NOT_CONNECTED"}))


FURTHER: dict[Callable[[Capture, Random], Expected], tuple[str, ...]] = {
    exchange_two_consumers: (S1, S2, S3),
    deliver_to_a_second_consumer_too: (S1, S3, S5, S7),
    deliver_elsewhere_after_the_acknowledgement: (S1, S5, S7),
    deliver_to_one_that_left: (S1, S5, S7),
    deliver_to_an_unknown_consumer: (S1, S4, S6, S8),
    come_late: (S1, S2, S5P),
    exchange_two_messages_in_the_log: (S1, S5, S7),
    forget_an_acknowledgement: (S1, S1B, S5, S9),
    acknowledge_before_the_delivery: (S1, S6),
    end_too_soon: (S1, S5, S7, S1E),
    let_a_message_expire: (S1, S5, S7),
    compact_a_message_away: (S1, S3),
    change_a_key: (S1, S2, S3),
    ask_for_the_slots_of_another: (S3,),
    starve_a_consumer: (S1, S2),
    starve_a_partition: (S5, S5P),
    deliver_before_the_publication: (S1, S5, S7),
    deliver_again_for_no_cause: (S1, S5, S7),
    misplace_beside_an_unknown_consumer: (S1, S2, S3),
}
