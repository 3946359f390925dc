"""Real recordings, and copies of them with one fault."""

from __future__ import annotations

import gzip
import json
import random
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from subreplay.adapters import ADAPTERS, SourceTables

ROOT = Path(__file__).parents[1] / "data" / "recordings"
ALL = sorted(p.relative_to(ROOT).as_posix() for p in ROOT.glob("*/*") if p.is_dir())


@cache
def ingested(folder: Path) -> SourceTables:
    """The tables of a recording that nobody changes."""
    return ADAPTERS["pulsar-recording"](folder)


@dataclass
class Recording:
    """The rows of a recording's files, to be changed and written elsewhere."""

    scenario: dict[str, Any]
    files: dict[str, list[dict[str, Any]]]

    @classmethod
    def load(cls, name: str) -> Recording:
        folder = ROOT / name
        files = {}
        for path in folder.glob("*.jsonl.gz"):
            with gzip.open(path, "rt", encoding="utf-8") as file:
                files[path.name.split(".")[0]] = [json.loads(line) for line in file]
        return cls(json.loads((folder / "scenario.json").read_text()), files)

    def save(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "scenario.json").write_text(json.dumps(self.scenario))
        for name, rows in self.files.items():
            (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return folder

    @property
    def events(self) -> list[dict[str, Any]]:
        return self.files["broker_events"]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [e for e in self.events if e["ev"] == kind]

    def keys(self) -> dict[tuple[Any, ...], Any]:
        """The sticky key of each entry: that of its first message; none for keyless ones."""
        found: dict[tuple[Any, ...], Any] = {}
        for m in sorted(self.files["messages"], key=lambda m: m["batch_index"]):
            found.setdefault(entry(m), m["ordering_key"] if m["ordering_key"] is not None else m["key"])
        return found

    def dispatches_by_key(self) -> dict[Any, list[dict[str, Any]]]:
        keys = self.keys()
        grouped: dict[Any, list[dict[str, Any]]] = defaultdict(list)
        for e in self.of("dispatch"):
            if keys.get(entry(e)) is not None:
                grouped[keys[entry(e)]].append(e)
        return grouped

    def acked_at(self, place: tuple[Any, ...]) -> int | None:
        for e in self.of("ack"):
            if e["topic"] == place[0] and any(tuple(i[:2]) == place[1:] and len(i) == 2 for i in e["ids"]):
                return int(e["seq"])
        return None

    def insert(self, event: dict[str, Any], after: dict[str, Any]) -> None:
        """Put an event right behind another, in broker order and in time; later events move up by one."""
        for e in self.events:
            if e["seq"] > after["seq"]:
                e["seq"] += 1
        event |= {"seq": after["seq"] + 1, "t_ns": after["t_ns"] + 1}
        self.events.insert(self.events.index(after) + 1, event)


def entry(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["topic"], row["ledger"], row["entry"]


def place(row: dict[str, Any]) -> str:
    return f"{row['ledger']}:{row['entry']}"


# Faults: each changes the recording and returns the code it must show as, and the message that must be its witness.


def swap_two_deliveries_of_a_key(r: Recording, rng: random.Random) -> tuple[str, str]:
    """Two messages of one key change places in one consumer's stream."""
    once = {entry(e) for e in _once(r, r.of("dispatch"))}
    pairs = [
        (a, b)
        for dispatches in r.dispatches_by_key().values()
        for a, b in pairwise(dispatches)
        if a["consumer"] == b["consumer"] and entry(a) < entry(b) and {entry(a), entry(b)} <= once
    ]
    a, b = rng.choice(pairs)
    evidence = place(a)
    for name in ("ledger", "entry"):
        a[name], b[name] = b[name], a[name]
    return ("PARTITION_ORDER" if _single_active(r) else "KEY_ORDER"), evidence


def _once(r: Recording, dispatches: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The dispatches of entries that were dispatched only once."""
    times = Counter(map(entry, r.of("dispatch")))
    return (e for e in dispatches if times[entry(e)] == 1)


def _single_active(r: Recording) -> bool:
    return r.of("subscribe")[0]["type"] in ("Failover", "Exclusive")


def move_a_delivery(r: Recording, rng: random.Random) -> tuple[str, str]:
    """One message goes to another connected consumer."""
    connected: set[str] = set()
    candidates = []
    for e in r.events:
        if e["ev"] == "consumer_created":
            connected.add(e["consumer"])
        elif e["ev"] == "close_consumer":
            connected.discard(e["consumer"])
        elif e["ev"] == "dispatch" and e["consumer"] in connected and len(connected) > 1:
            candidates.append((e, sorted(connected - {e["consumer"]})))
    e, others = rng.choice(candidates)
    e["consumer"] = rng.choice(others)
    return "WRONG_OWNER", place(e)


def remove_a_delivery(r: Recording, rng: random.Random) -> tuple[str, str]:
    """A message is acknowledged, but nobody ever got it."""
    e = rng.choice([*_once(r, r.of("dispatch"))])
    r.events.remove(e)
    r.files["deliveries"] = [d for d in r.files["deliveries"] if entry(d) != entry(e)]
    return "LOST", place(e)


def remove_a_delivery_and_its_ack(r: Recording, rng: random.Random) -> tuple[str, str]:
    """A message is skipped altogether."""
    dispatches = [*_once(r, r.of("dispatch"))]
    e = rng.choice(dispatches[: len(dispatches) // 2])
    r.events.remove(e)
    r.files["deliveries"] = [d for d in r.files["deliveries"] if entry(d) != entry(e)]
    for ack in r.of("ack"):
        if ack["topic"] == e["topic"]:
            ack["ids"] = [i for i in ack["ids"] if tuple(i[:2]) != entry(e)[1:]]
    return "LOST", place(e)


def deliver_again_after_ack(r: Recording, rng: random.Random) -> tuple[str, str]:
    """A message is given to its consumer again after it was acknowledged."""
    closes = {e["consumer"]: e["seq"] for e in r.of("close_consumer")}
    acks = {}
    for ack in r.of("ack"):
        for i in ack["ids"]:
            if len(i) == 2 and ack["ack_type"] == "Individual":
                acks[ack["topic"], i[0], i[1]] = ack
    changes = sorted(e["seq"] for e in r.events if e["ev"] in ("subscribe", "close_consumer"))
    candidates = [
        e
        for e in _once(r, r.of("dispatch"))
        if (ack := acks.get(entry(e))) is not None
        and ack["consumer"] == e["consumer"]
        and ack["seq"] < closes.get(e["consumer"], 0)
        and bisect(changes, e["seq"]) == bisect(changes, ack["seq"])  # still its owner
    ]
    e = rng.choice(candidates)
    r.insert(dict(e), acks[entry(e)])
    return "DUP_DELIVERY", place(e)


def ack_after_the_next_owner(r: Recording, rng: random.Random) -> tuple[str, str]:
    """A key moves to a newcomer; the acknowledgement of its last message at the old owner comes only after that."""
    joins = {e["consumer"]: e["seq"] for e in r.of("consumer_created")}
    closes = {e["consumer"]: e["seq"] for e in r.of("close_consumer")}
    once = {entry(e) for e in _once(r, r.of("dispatch"))}
    candidates = [
        (a, b)
        for dispatches in r.dispatches_by_key().values()
        for a, b in pairwise(dispatches)
        if a["consumer"] != b["consumer"]
        and joins[b["consumer"]] > a["seq"]  # b's consumer is the newcomer
        and closes[a["consumer"]] > b["seq"] + 50
        and entry(a) in once
    ]
    a, b = rng.choice(candidates)
    for ack in r.of("ack"):
        ack["ids"] = [i for i in ack["ids"] if (ack["topic"], *i[:2]) != entry(a)]
    template = next(e for e in r.of("ack") if e["consumer"] == a["consumer"])
    r.insert(dict(template) | {"ids": [[a["ledger"], a["entry"]]]}, b)
    return "KEY_TWO_OWNERS", place(b)


def remove_a_join(r: Recording, rng: random.Random) -> tuple[str, str]:
    """A consumer receives messages although it never joined."""
    served = {e["consumer"] for e in r.of("dispatch")}
    consumer = rng.choice(sorted(served))
    first = next(e for e in r.of("dispatch") if e["consumer"] == consumer)
    r.files["broker_events"] = [
        e for e in r.events if not (e["ev"] in ("subscribe", "consumer_created") and e["consumer"] == consumer)
    ]
    return "NOT_CONNECTED", place(first)


def remove_a_leave(r: Recording, rng: random.Random) -> tuple[str, str]:
    """A consumer left while there was traffic, but the membership does not know."""
    last = r.of("dispatch")[-200]["seq"]
    leavers = [e["consumer"] for e in r.of("close_consumer") if e["seq"] < last]
    consumer = rng.choice(sorted(set(leavers)))
    r.files["broker_events"] = [
        e for e in r.events if not (e["ev"] in ("close_consumer", "consumer_closed") and e["consumer"] == consumer)
    ]
    return "WRONG_OWNER", ""
