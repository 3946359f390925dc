"""Find acts of operators and clients in a broker's log at INFO: cursor resets, seeks, topic unloads, skipped backlogs
and expired messages.

There are few such lines, so they are found separately from the ``scan_lines`` of all lines, by their words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.base import RejectedRow
from subreplay.adapters.broker_log.line_patterns import PATTERN_PROGRAM
from subreplay.adapters.broker_log.line_scan import scan_lines
from subreplay.adapters.canonical import split_topic
from subreplay.adapters.log_lines import read_log_lines
from subreplay.hashing.arrow_bytes import get_data_and_offsets
from subreplay.rows.model.text_format import format_instant

ACTS: Final = pa.schema(
    [
        pa.field("file", pa.string()),
        pa.field("at", pa.int64()),  # in ms
        pa.field("kind", pa.string()),  # as in topic.resets
        pa.field("done", pa.bool_()),  # false: it was requested and may have failed
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("subscription", pa.string()),  # null: all subscriptions of the topic
        pa.field("to", pa.string()),  # a time (ms), or a position as ledger:entry
        pa.field("address", pa.string()),  # of the client that made a seek
    ]
)
_ACT_MARKS: Final = (
    "eset cursor on subscription ", "] Reset subscription to ", "] Unloading topic ", "] Cleared backlog on ",
    "] Skipped ", "] Expiring all messages until position ", " - Unloading topic {",
)  # fmt: skip
_ACT_PATTERN: Final = "|".join(map(re.escape, _ACT_MARKS))
_ACT_LINE: Final = re.compile(
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
_ACT_ATTRIBUTES: Final = re.compile(
    rb"\S+ \[.*?\] *\w+ +(?:\S*\.)?PulsarWebResource - "
    rb"(?P<text>(?:Received reset|Reset) cursor on subscription to time|Unloading topic) \{(?P<attributes>.*)\}\s*"
)
"""From 5.0 on, as a broker of 5.0.1 prints them; no recording contains its other acts."""
_MAX_REQUEST_MS: Final = 60_000
"""The time (ms) after its request within which an act is complete on every partition."""
_MAX_LEDGER: Final = 2**63 - 1


def find_acts(part: pa.RecordBatch) -> pa.Table:
    """Find the acts (``ACTS``) in some lines of a log."""
    text = part.column("text")
    data, offsets = get_data_and_offsets(text)
    whole = data[offsets[0] : offsets[len(text)]].tobytes() if len(text) else b""
    if not any(mark.encode() in whole for mark in _ACT_MARKS):
        return ACTS.empty_table()
    lines = part.filter(pc.match_substring_regex(text, _ACT_PATTERN))
    data, offsets = get_data_and_offsets(lines.column("text"))
    times = scan_lines(data, offsets[: len(lines) + 1].astype(np.int64), PATTERN_PROGRAM).at.tolist()
    rows = zip(lines.column("file").to_pylist(), times, lines.column("text").to_pylist(), strict=True)
    found = [act for file, at, line in rows if at > 0 and (act := _parse_act(file, at, line))]
    return pa.Table.from_pylist(found, ACTS)


def _parse_act(file: str, at: int, line: bytes) -> dict[str, Any] | None:
    """Parse a line about an act; None for another line."""
    if match := _ACT_LINE.fullmatch(line):
        return _build_act(file, at, match)
    if match := _ACT_ATTRIBUTES.fullmatch(line):
        pairs = (pair.partition("=") for pair in match["attributes"].decode("utf-8", "replace").split(", "))
        values = {name: value for name, _, value in pairs}
        topic, partition = split_topic(values.get("topic", ""))
        return {
            "file": file, "at": at, "kind": "unload" if match["text"] == b"Unloading topic" else "reset",
            "done": not match["text"].startswith(b"Received"), "topic": topic, "partition": partition,
            "subscription": values.get("subscription"), "to": values.get("time"), "address": None,
        }  # fmt: skip
    return None


def _build_act(file: str, at: int, line: re.Match[bytes]) -> dict[str, Any]:
    of = {name: None if value is None else value.decode("utf-8", "replace") for name, value in line.groupdict().items()}
    kind = next(kind for kind in ("reset", "seek", "unload", "skip", "ttl") if of[kind])
    topic, partition = split_topic(of[kind] or "")
    return {
        "file": file, "at": at, "kind": kind, "done": of["request"] is None, "topic": topic, "partition": partition,
        "subscription": of["of_reset"] or of["of_seek"] or of["of_skip"] or of["of_ttl"],
        "to": of["to"] or of["sought"] or (_find_next_position(of["expired"]) if of["expired"] else None),
        "address": None if of["address"] is None else of["address"].rpartition("/")[2],
    }  # fmt: skip


def _find_next_position(position: str) -> str:
    """Return the position after a position."""
    ledger, entry = position.split(":")
    return f"{ledger}:{int(entry) + 1}"


def find_acts_in_file(path: Path) -> pa.Table:
    """Find the acts in a log file."""
    parts = (find_acts(part) for part in read_log_lines(path) if not isinstance(part, RejectedRow))
    return pa.concat_tables([ACTS.empty_table(), *parts])


def build_resets(found: pa.Table, topic: str, subscription: str, membership: pa.Table) -> list[dict[str, Any]]:
    """Build entries of ``topic.resets`` from the acts on a subscription. ``membership`` names consumers that made a
    seek."""
    of_topic = pc.and_(
        pc.equal(found["topic"], topic), pc.fill_null(pc.equal(found["subscription"], subscription), True)
    )
    rows = found.filter(of_topic).sort_by([("at", "ascending"), ("partition", "ascending")]).to_pylist()
    members = membership.filter(pc.equal(membership["subscription"], subscription))
    names = zip(members["instance"].to_pylist(), members["consumer"].to_pylist(), strict=True)
    consumers = {instance.rpartition("#")[0]: name for instance, name in names if instance}
    entries: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        if not row["done"]:
            continue
        begun = row if row["kind"] == "seek" else _find_request(row, rows)
        entry = {"at": format_instant(begun["at"] * 1_000_000), "kind": row["kind"]}
        if row["to"] is not None:
            entry["to"] = _build_target(row["to"], begun["at"])
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


def _find_request(row: Mapping[str, Any], rows: Sequence[dict[str, Any]]) -> Mapping[str, Any]:
    """Find the request of an act: the latest one of the whole topic, else of its partition, else the act itself."""
    same = [
        each for each in rows
        if all(each[name] == row[name] for name in ("kind", "subscription", "to"))
        and row["at"] - _MAX_REQUEST_MS <= each["at"] <= row["at"] and not (each["done"] and each["kind"] == "reset")
    ]  # fmt: skip
    for partition in (-1, row["partition"]):
        if requests := [each for each in same if each["partition"] == partition]:
            return requests[-1]
    return row


def _build_target(to: str, at: int) -> dict[str, Any] | str:
    """Build the target of ``topic.resets``. A time after the act (ms) or the largest position means latest."""
    first, *rest = map(int, to.split(":"))
    if first < 0 or (first == 0 and not rest):
        return "earliest"
    if first >= (_MAX_LEDGER if rest else at):
        return "latest"
    return {"ledger": first, "entry": max(rest[0], 0)} if rest else {"time": format_instant(first * 1_000_000)}
