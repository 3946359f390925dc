"""Acts of operators and clients that a broker's log names at INFO: resets of a cursor, seeks, unloads of a topic,
skipped backlogs and expired messages.

These lines are few, so that they are found beside the ``scan`` of all lines, by their words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.base import Rejected
from subreplay.adapters.broker_log.scan import scan
from subreplay.adapters.broker_log.words import PROGRAM
from subreplay.adapters.canonical import base_topic
from subreplay.adapters.log_lines import log_lines
from subreplay.hashing.arrow_bytes import get_data_and_offsets
from subreplay.rows.model.words import instant

ACTS: Final = pa.schema(
    [
        pa.field("file", pa.string()),
        pa.field("at", pa.int64()),  # in ms
        pa.field("kind", pa.string()),  # as in topic.resets
        pa.field("done", pa.bool_()),  # false: it was requested, and may have failed
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("subscription", pa.string()),  # null: all of the topic
        pa.field("to", pa.string()),  # a time (ms), or a position as ledger:entry
        pa.field("address", pa.string()),  # of the client that sought
    ]
)
_MARKS: Final = (
    "eset cursor on subscription ", "] Reset subscription to ", "] Unloading topic ", "] Cleared backlog on ",
    "] Skipped ", "] Expiring all messages until position ",
)  # fmt: skip
_MARKED: Final = "|".join(map(re.escape, _MARKS))
_LINE: Final = re.compile(
    rb"\S+ \[.*?\] *\w+ +(?:\S*\.)?(?:"
    rb"PersistentTopicsBase - \[.*?\] ?\[(?P<reset>[^]]+)\] (?P<request>[Rr]eceived )?(?:[Ss]uccessfully )?[Rr]eset"
    rb" cursor on subscription (?P<of_reset>.+) to (?:time|position) (?P<to>-?\d+(?::-?\d+)?).*"
    rb"|PersistentTopicsBase - \[.*?\] Unloading topic (?P<unload>\S+)"
    rb"|PersistentTopicsBase - \[.*?\] (?:Cleared backlog|Skipped \d+ messages) on (?P<skip>\S+) (?P<of_skip>.+)"
    rb"|PersistentMessageExpiryMonitor - \[(?P<ttl>[^]]+)\]\[(?P<of_ttl>.+)\] Expiring all messages until position"
    rb" (?P<expired>\d+:\d+).*"
    rb"|ServerCnx - \[(?P<address>.+?)\] \[(?P<seek>[^]]+)\]\[(?P<of_seek>.+)\] Reset subscription to"
    rb" (?:publish time|message id) (?P<sought>-?\d+(?::-?\d+)?).*"
    rb")\s*"
)
_REQUEST: Final = 60_000
"""Within which time (ms) after its request an act is done on every partition."""
_MOST: Final = 2**63 - 1


def acts(part: pa.RecordBatch) -> pa.Table:
    """The acts (``ACTS``) that some lines of a log name."""
    text = part.column("text")
    data, offsets = get_data_and_offsets(text)
    whole = data[offsets[0] : offsets[len(text)]].tobytes() if len(text) else b""
    if not any(mark.encode() in whole for mark in _MARKS):
        return ACTS.empty_table()
    lines = part.filter(pc.match_substring_regex(text, _MARKED))
    data, offsets = get_data_and_offsets(lines.column("text"))
    times = scan(data, offsets[: len(lines) + 1].astype(np.int64), PROGRAM).at.tolist()
    matches = map(_LINE.fullmatch, lines.column("text").to_pylist())
    found = zip(lines.column("file").to_pylist(), times, matches, strict=True)
    return pa.Table.from_pylist([_act(file, at, line) for file, at, line in found if line and at > 0], ACTS)


def _act(file: str, at: int, line: re.Match[bytes]) -> dict[str, Any]:
    of = {name: None if value is None else value.decode("utf-8", "replace") for name, value in line.groupdict().items()}
    kind = next(kind for kind in ("reset", "seek", "unload", "skip", "ttl") if of[kind])
    topic, partition = base_topic(of[kind] or "")
    return {
        "file": file, "at": at, "kind": kind, "done": of["request"] is None, "topic": topic, "partition": partition,
        "subscription": of["of_reset"] or of["of_seek"] or of["of_skip"] or of["of_ttl"],
        "to": of["to"] or of["sought"] or (_next(of["expired"]) if of["expired"] else None),
        "address": None if of["address"] is None else of["address"].rpartition("/")[2],
    }  # fmt: skip


def _next(position: str) -> str:
    """The position behind a position."""
    ledger, entry = position.split(":")
    return f"{ledger}:{int(entry) + 1}"


def acts_of_file(path: Path) -> pa.Table:
    """The acts that a log names."""
    parts = (acts(part) for part in log_lines(path) if not isinstance(part, Rejected))
    return pa.concat_tables([ACTS.empty_table(), *parts])


def resets(found: pa.Table, topic: str, subscription: str, membership: pa.Table) -> list[dict[str, Any]]:
    """The acts on a subscription as entries of ``topic.resets``; ``membership`` names the consumers that sought."""
    mine = pc.and_(pc.equal(found["topic"], topic), pc.fill_null(pc.equal(found["subscription"], subscription), True))
    rows = found.filter(mine).sort_by([("at", "ascending"), ("partition", "ascending")]).to_pylist()
    members = membership.filter(pc.equal(membership["subscription"], subscription))
    names = zip(members["instance"].to_pylist(), members["consumer"].to_pylist(), strict=True)
    consumers = {instance.rpartition("#")[0]: name for instance, name in names if instance}
    entries: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        if not row["done"]:
            continue
        begun = row if row["kind"] == "seek" else _request(row, rows)
        entry = {"at": instant(begun["at"] * 1_000_000), "kind": row["kind"]}
        if row["to"] is not None:
            entry["to"] = _target(row["to"], begun["at"])
        if begun["partition"] >= 0:
            entry["partition"] = begun["partition"]
        if row["kind"] == "ttl":
            entry["by"] = "broker"
        elif row["kind"] != "seek":
            entry["by"] = "operator"
        elif row["address"] in consumers:
            entry["by"] = f"consumer {consumers[row['address']]}"
        entries[begun["at"], row["kind"], row["to"], begun["partition"]] = entry
    return list(entries.values())


def _request(row: Mapping[str, Any], rows: Sequence[dict[str, Any]]) -> Mapping[str, Any]:
    """The request by which an act was done: the latest one of the whole topic, else of its partition, else itself."""
    same = [
        each for each in rows
        if all(each[name] == row[name] for name in ("kind", "subscription", "to"))
        and row["at"] - _REQUEST <= each["at"] <= row["at"] and not (each["done"] and each["kind"] == "reset")
    ]  # fmt: skip
    for partition in (-1, row["partition"]):
        if requests := [each for each in same if each["partition"] == partition]:
            return requests[-1]
    return row


def _target(to: str, at: int) -> dict[str, Any] | str:
    """From where on, as ``topic.resets`` has it; of a time after the act (ms), or the largest position: latest."""
    first, *rest = map(int, to.split(":"))
    if first < 0 or (first == 0 and not rest):
        return "earliest"
    if first >= (_MOST if rest else at):
        return "latest"
    return {"ledger": first, "entry": max(rest[0], 0)} if rest else {"time": instant(first * 1_000_000)}
