"""Whole histories in one line: ``history("a1 a2 n1", "+C1 a1>C1 a1! +C2 a2>C2")``.

The first text is the log, messages in order, each a key's letter and a number. Keys a to m hash into the lower half of
the slots, n to z into the upper one: under auto-split the second consumer takes the lower half. After a name may stand
``@q`` its producer (p), ``#7`` its sequence id (its place in the log), ``+50`` the step it is delayed to, ``%0/3``
which chunk it is of how many. Names joined by commas are one batch.

The second is what happened, 10 ms (one step) apart: ``+C1`` joins (``+C1:5`` with a queue of five messages,
``+C1[0-9,20-29]`` with ranges), ``(C1`` asks to close and ``-C1`` has closed; ``a1>C1`` is delivered (``a1>C1*2``: as
the second redelivery), ``a1^`` taken by the application, ``a1!`` acknowledged, ``a1!!`` cumulatively, ``a1?`` given
back; ``~50`` is a pause of fifty steps. Of several deliveries of a message, the last one is meant. ``C1@x`` is the
instance x of the name C1, in what concerns members and deliveries.

Of a Kafka group: ``=C1`` is assigned the partition, ``/C1`` has it revoked, ``_C1`` lost it, ``#C1`` owns it by the
coordinator's decision (each ``:2``: in generation 2); ``C1!3`` committed offset 3 (``C1!!3``: by itself, at
intervals), ``C1?3`` was refused to; ``xC1`` crashes.
"""

from __future__ import annotations

import itertools
import re
from functools import cache
from typing import Any

import pyarrow as pa

from subreplay.adapters.canonical import build_table, utc_date
from subreplay.audit.codes import Code, Exemption, find_exemption
from subreplay.audit.terms import Terms
from subreplay.hashing.murmur3 import murmur3_32
from subreplay.rows.model.rows import RuleStatus
from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.base import Policy
from tests.support.pure import NOTHING_TOLD, audit_by, judge_of

TOPIC, SUBSCRIPTION = "persistent://public/default/t", "sub"
START, STEP = 1_700_000_000_000_000, 10_000
MESSAGE = re.compile(r"([a-z])(\d+)(?:@(\w+))?(?:#(\d+))?(?:\+(\d+))?(?:%(\d)/(\d))?")
MEMBER = re.compile(r"([+(x-])(\w+)(?:@(\w+))?(?::(\d+))?(?:\[([\d,-]*)\])?")
EVENT = re.compile(r"([a-z]\d+)(?:>(\w+)(?:@(\w+))?(?:\*(\d+))?|(!!|[!?^]))")
TOLD = re.compile(r"([=/_#])(\w+)(?::(\d+))?")
WORDS = {"=": "assigned", "/": "revoked", "_": "lost", "#": "owner"}
COMMIT = re.compile(r"([A-Z]\w*)(!!|[!?])(\d+)")
ENDS = {"!": "acked_at", "!!": "acked_at", "?": "nacked_at", "^": "received_at"}

History = dict[str, pa.Table]


@cache
def key_of(letter: str) -> bytes:
    """A key of that letter in the right half of the slots."""
    lower = letter <= "m"
    names = (f"{letter}{i}".encode() for i in itertools.count())
    return next(name for name in names if 100 < murmur3_32(name) % 65536 < 32000) if lower else next(
        name for name in names if 33000 < murmur3_32(name) % 65536 < 65000
    )  # fmt: skip


def positions(log: str) -> dict[str, tuple[int, int]]:
    """The entry and batch index of each message of a log, by name."""
    found = {}
    for entry, word in enumerate(log.split()):
        names = [MESSAGE.fullmatch(name)[0] for name in word.split(",")]  # type: ignore[index]
        for index, name in enumerate(names):
            found[re.match(r"\w\d+", name)[0]] = entry, index if len(names) > 1 else -1  # type: ignore[index]
    return found


def history(log: str, story: str, partition: int = -1) -> History:
    """Canonical tables of a history."""
    where = positions(log)
    membership: list[dict[str, Any]] = []
    deliveries: list[dict[str, Any]] = []
    closing: dict[str, int] = {}
    step = 100
    for word in story.split():
        at = START + step * STEP
        step += int(word[1:]) if word[0] == "~" else 1
        if member := MEMBER.fullmatch(word):
            if member[1] == "(":
                closing[member[2]] = at
            else:
                membership.append(_event(member, at, closing))
        elif reported := TOLD.fullmatch(word):
            sign, consumer, generation = reported.groups()
            named = {"event": WORDS[sign], "generation": None if generation is None else int(generation)}
            membership.append(_of_member(consumer, at) | named)
        elif commit := COMMIT.fullmatch(word):
            deliveries.append(_commit(commit[1], commit[2], int(commit[3]), at))
        elif event := EVENT.fullmatch(word):
            name, to, instance, count, end = event.groups()
            if to:
                deliveries.append(_delivery(where[name], to, at, int(count or 0)) | {"instance": instance})
            else:
                mine = [d for d in deliveries if "delivered_at" in d and (d["entry"], d["batch_index"]) == where[name]]
                mine[-1][ENDS[end]] = at
                if end.startswith("!"):
                    mine[-1]["ack_type"] = "Cumulative" if end == "!!" else "Individual"
        elif word[0] != "~":
            raise ValueError(f"what is {word!r}?")
    tables = {
        "messages": build_table("messages", _messages(log)),
        "membership": build_table("membership", membership),
        "deliveries": build_table("deliveries", deliveries),
    }
    for name, table in tables.items():
        index = table.schema.get_field_index("partition")
        values = pa.array([partition] * table.num_rows, pa.int32())
        tables[name] = table.set_column(index, table.schema.field("partition"), values)
    return tables


def _messages(log: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for entry, word in enumerate(log.split()):
        names = word.split(",")
        for index, name in enumerate(names):
            letter, _, producer, sequence_id, delay, chunk, chunks = MESSAGE.fullmatch(name).groups()  # type: ignore[union-attr]
            at = START + entry * 1000
            row = {
                "date": utc_date(at),
                **_position((entry, index if len(names) > 1 else -1)),
                "key": key_of(letter),
                "producer": producer or "p",
                "sequence_id": len(rows) if sequence_id is None else int(sequence_id),
                "publish_time": at,
                "deliver_at": None if delay is None else START + int(delay) * STEP,
                "size": 1,
            }
            if len(names) > 1:
                row |= {"batch_key": key_of(names[0][0]), "batch_size": len(names)}
            if chunk is not None:
                row |= {"chunk_uuid": "u", "chunk_id": int(chunk), "chunk_count": int(chunks)}
            rows.append(row)
    return rows


def _position(where: tuple[int, int]) -> dict[str, Any]:
    return {"topic": TOPIC, "partition": -1, "ledger": 1, "entry": where[0], "batch_index": where[1]}


def _delivery(where: tuple[int, int], consumer: str, at: int, count: int) -> dict[str, Any]:
    reported = {
        "subscription": SUBSCRIPTION,
        "consumer": consumer,
        "delivered_at": at,
        "seq": 0,
        "redelivery_count": count,
    }
    return {"date": utc_date(at), **_position(where), **reported, "source": "observed"}


def _commit(consumer: str, sign: str, offset: int, at: int) -> dict[str, Any]:
    reported = {
        "subscription": SUBSCRIPTION,
        "consumer": consumer,
        "seq": 0,
        "redelivery_count": 0,
        "source": "observed",
    }
    kind = "AutoCommit" if sign == "!!" else "Commit"
    committed = {"acked_at": at, "ack_type": kind, "outcome": "refused" if sign == "?" else "acked"}
    return {"date": utc_date(at), **_position((offset, -1)), **reported, **committed}


def _of_member(consumer: str, at: int) -> dict[str, Any]:
    reported = {
        "subscription": SUBSCRIPTION,
        "topic": TOPIC,
        "partition": -1,
        "type": "Key_Shared",
        "consumer": consumer,
    }
    return {"date": utc_date(at), **reported, "at": at, "seq": 0}


def _event(member: re.Match[str], at: int, closing: dict[str, int]) -> dict[str, Any]:
    sign, consumer, instance, queue, ranges = member.groups()
    since = closing.pop(consumer, at) if sign == "-" else at
    pairs = [] if ranges is None else [tuple(map(int, r.split("-"))) for r in ranges.split(",")]
    return {
        **_of_member(consumer, at),
        "instance": instance,
        "event": {"+": "join", "x": "crash"}.get(sign, "leave"),
        "since": since,
        "since_seq": 0,
        "receiver_queue_size": None if queue is None else int(queue),
        "ranges": [{"start": a, "end": b} for a, b in pairs] or None,
    }


def auto_split(profile: str = "pulsar-4.0", **options: Any) -> Policy:
    return make_policy("pulsar.key_shared.auto_split", profile, **options)


def findings(policy: Policy, log: str, story: str, terms: Terms = NOTHING_TOLD, partition: int = -1) -> list[str]:
    """Findings as ``CODE message`` where they fail, ``code message`` where they are allowed, by message."""
    names = {where: name for name, where in positions(log).items()}
    found = findings_of(policy, history(log, story, partition), terms)
    return sorted(f"{code} {names[where]}" for code, where in found)


def findings_of(policy: Policy, tables: History, terms: Terms = NOTHING_TOLD) -> list[tuple[str, tuple[int, int]]]:
    """Findings about deliveries: the code, in capitals where it fails, and the entry and batch index."""
    judge = judge_of(policy, tables, terms)
    found = []
    for row in audit_by(judge, tables).to_pylist():
        for code in Code:
            if row["codes"] & code.bit:
                exempt = find_exemption(code, row["excuses"]) is not Exemption.NONE
                fails = judge.rule_statuses[code] is RuleStatus.PROMISED and not exempt
                found.append((code.name if fails else code.name.lower(), (row["entry"], row["batch_index"])))
    return found
