"""Whole histories in one line: ``history("a1 a2 n1", "+C1 a1>C1 a1! +C2 a2>C2")``.

The first text is the log: messages in order, each a key's letter and a number. The second is what happened, 10 ms
apart: ``+C1`` joins, ``(C1`` asks to close and ``-C1`` has closed, ``a1>C1`` is delivered, ``a1!`` acknowledged,
``a1?`` its redelivery is asked for. Keys a to m hash into the lower half of the slots, n to z into the upper one: under
auto-split the second consumer takes the lower half.
"""

from __future__ import annotations

import itertools
import re
from functools import cache
from typing import Any

import pyarrow as pa

from subreplay.adapters.recorded_rows import day, to_table
from subreplay.hashing.murmur3 import murmur3_32
from subreplay.model import Standing
from subreplay.policies import make
from subreplay.policies.base import Policy
from subreplay.rules.registry import Code, Excuse, standings
from tests.support.pure import audit

TOPIC, SUBSCRIPTION = "persistent://public/default/t", "sub"
START, STEP = 1_700_000_000_000_000, 10_000
WORD = re.compile(r"([+(-])(\w+)|(\w)(\d+)(?:>(\w+)|([!?]))")


@cache
def key_of(letter: str) -> bytes:
    """A key of that letter in the right half of the slots."""
    lower = letter <= "m"
    names = (f"{letter}{i}".encode() for i in itertools.count())
    return next(name for name in names if 100 < murmur3_32(name) % 65536 < 32000) if lower else next(
        name for name in names if 33000 < murmur3_32(name) % 65536 < 65000
    )  # fmt: skip


def history(log: str, story: str) -> dict[str, pa.Table]:
    """Canonical tables of a history."""
    entries = {name: number for number, name in enumerate(log.split())}
    membership: list[dict[str, Any]] = []
    deliveries: list[dict[str, Any]] = []
    closing: dict[str, int] = {}
    for step, word in enumerate(story.split(), start=100):
        at = START + step * STEP
        sign, consumer, letter, number, to, end = WORD.fullmatch(word).groups()  # type: ignore[union-attr]
        if sign == "(":
            closing[consumer] = at
        elif sign:
            kind = "join" if sign == "+" else "leave"
            membership.append(_event(kind, consumer, at, closing.get(consumer, at) if kind == "leave" else at))
        elif to:
            deliveries.append(_delivery(entries[letter + number], to, at))
        else:
            mine = [d for d in deliveries if d["entry"] == entries[letter + number]]
            mine[-1]["acked_at" if end == "!" else "nacked_at"] = at
    return {
        "messages": to_table("messages", [_message(name, entry) for name, entry in entries.items()]),
        "membership": to_table("membership", membership),
        "deliveries": to_table("deliveries", deliveries),
    }


def _place(entry: int) -> dict[str, Any]:
    return {"topic": TOPIC, "partition": -1, "ledger": 1, "entry": entry, "batch_index": -1}


def _message(name: str, entry: int) -> dict[str, Any]:
    at = START + entry * 1000
    content = {"key": key_of(name[0]), "producer": "p", "sequence_id": entry, "publish_time": at, "size": 1}
    return {"date": day(at), **_place(entry), **content}


def _delivery(entry: int, consumer: str, at: int) -> dict[str, Any]:
    told = {"subscription": SUBSCRIPTION, "consumer": consumer, "delivered_at": at, "seq": 0, "redelivery_count": 0}
    return {"date": day(at), **_place(entry), **told, "source": "observed"}


def _event(kind: str, consumer: str, at: int, since: int) -> dict[str, Any]:
    told = {"subscription": SUBSCRIPTION, "topic": TOPIC, "partition": -1, "type": "Key_Shared", "consumer": consumer}
    return {"date": day(at), **told, "event": kind, "at": at, "seq": 0, "since": since, "since_seq": 0}


def auto_split(profile: str = "pulsar-4.0", **options: Any) -> Policy:
    return make("pulsar.key_shared.auto_split", profile, **options)


def findings(policy: Policy, log: str, story: str) -> list[str]:
    """Findings as ``CODE message`` where they fail, ``code message`` where they are allowed, by message."""
    names = log.split()
    standing = standings(policy)
    found = []
    for row in audit(policy, history(log, story)).to_pylist():
        for code in Code:
            if not row["codes"] & code.bit or standing[code] is Standing.NOT_APPLICABLE:
                continue
            excused = row["excuses"] >> 4 * code.value & 15 != Excuse.NONE
            fails = standing[code] is Standing.PROMISED and not excused
            found.append(f"{code.name if fails else code.name.lower()} {names[row['entry']]}")
    return sorted(found)
