"""Adapter ``pulsar-recording``: what a real broker did in one session, recorded by an interceptor inside it.

A recording is a folder of gzip JSON lines (``messages``, ``broker_events``; optional ``deliveries``, ``membership``,
``dlq``: what arrived on the dead letter topic, ``scenario.json``). Dispatches, their order (``seq``), acknowledgements,
redelivery requests and membership come from the broker's own events; the client's ``deliveries`` only add when the
application took a message and gave it back, since a client's times are calls, not effects. The broker's log beside them
names resets, seeks and unloads; polled statistics (``topic_stats``) show limits and consumers that hang. A recording is
one bounded capture, so it is read whole; tables of a data lake need no such adapter.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter

from subreplay.adapters.base import Ingested, Reason
from subreplay.adapters.broker_log.acts import ACTS, acts_of_file, resets
from subreplay.adapters.canonical import base_topic, to_table
from subreplay.adapters.jsonl import Lines, read_lines
from subreplay.adapters.pulsar_recording.dead_letters import DeadLetter, dead_letter_rows, recorded_policy
from subreplay.adapters.pulsar_recording.deliveries import Replayer
from subreplay.adapters.pulsar_recording.membership import membership_rows, with_unrecorded_closes
from subreplay.adapters.pulsar_recording.receipts import add_receipts
from subreplay.adapters.pulsar_recording.rows import (
    BrokerEvent,
    Created,
    Disconnected,
    Dispatch,
    Message,
    Receipt,
    Redeliver,
    Subscribe,
    message_rows,
)
from subreplay.adapters.pulsar_recording.scenario import Scenario, read_scenario
from subreplay.adapters.pulsar_stats.adapter import counted, stats
from subreplay.adapters.pulsar_stats.evidence import concluded_limits, silent
from subreplay.hashing.profiles.releases import find_nearest_profile

_POLLS = "topic_stats.jsonl.gz", "topic_stats.jsonl"
UNDER_WAY = 10_000_000
"""How long (ns) a broker may still write to a connection that is closed; it takes a millisecond to notice."""


class _Note(BaseModel):
    """A row of the recorder's own membership file; only its joins are compared with the broker's."""

    model_config = ConfigDict(extra="ignore")
    event: str
    consumer: str | None = None
    t_ns: int


def read(folder: Path) -> Ingested:
    """Read one recording; raises ``InputError`` where a needed file is missing, unreadable or of another shape."""
    messages = read_lines(folder, "messages", TypeAdapter(Message))
    events: Lines[Any] = read_lines(folder, "broker_events", TypeAdapter(BrokerEvent))
    receipts = read_lines(folder, "deliveries", TypeAdapter(Receipt), required=False)
    notes = read_lines(folder, "membership", TypeAdapter(_Note), required=False)
    letters = read_lines(folder, "dlq", TypeAdapter(DeadLetter), required=False)
    scenario = read_scenario(folder)

    reject_divergent(messages)
    reject_divergent(letters)
    reject_backward_times(events)
    reject_early_ends(receipts)
    reject_unknown_joins(events, {n.consumer for n in notes.rows.values() if n.event == "join" and n.consumer})

    ordered = in_broker_order(events)
    deliveries = replay(messages, ordered, receipts)
    tables = {
        "messages": to_table(
            "messages", [*message_rows(messages.rows.values()), *dead_letter_rows(letters.rows.values())]
        ),
        "membership": to_table("membership", membership_rows(ordered, scenario.queue_sizes)),
        "deliveries": to_table("deliveries", deliveries),
    }
    files: list[Lines[Any]] = [messages, events, receipts, notes, letters]
    rejected = tuple(r for lines in files for _, r in sorted(lines.rejected.items()))
    counts = tuple(f.count for f in files if f.count.rows_in)
    run, differs = suggested_run(events, scenario)
    named = run.get("subscription", {})
    if policy := recorded_policy(letters.rows.values(), deliveries, named.get("topic")):
        run["topic"] = {"dead_letter": policy}
    log = folder / "broker.log.gz"
    acts = acts_of_file(log) if named and log.exists() else ACTS.empty_table()
    if len(acts) and (found := resets(acts, named["topic"], named["name"], tables["membership"])):
        run.setdefault("topic", {})["resets"] = found
    polls = next((path for path in map(folder.joinpath, _POLLS) if path.exists()), None)
    sentences: tuple[str, ...] = (differs,) if differs else ()
    concluded: dict[str, int] = {}
    if named and polls is not None:
        polled = stats(polls, topics=[named["topic"]], subscriptions=[named["name"]])
        known = scenario.broker_settings.limits
        concluded, notes_of_limits = concluded_limits(polled.found, named["name"], named["topic"], known)
        sentences = (*sentences, *notes_of_limits, *silent(polled.found))
        rejected, counts = (*rejected, *polled.rejected), (*counts, *counted(polled))
    if limits := concluded | scenario.broker_settings.limits:
        run["liveness"] = limits
    others = {(e.subscription, base_topic(e.topic)[0]) for e in ordered if isinstance(e, Created)}
    rest = tuple(sorted(others - {(named.get("name"), named.get("topic"))}))
    return Ingested(tables, rejected, counts, run, rest, sentences)


def reject_divergent(messages: Lines[Any]) -> None:
    """One position, two contents: nobody can tell which is right, so all are rejected. Of equal rows one stays."""
    places: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for line, m in messages.rows.items():
        places[(*m.position, m.batch_index)].append(line)
    for place, lines in places.items():
        if len(lines) < 2:
            continue
        equal = all(messages.rows[line] == messages.rows[lines[0]] for line in lines)
        twice = f"one position, two contents (rows {', '.join(map(str, lines))})"
        rule = f"the position is there already (row {lines[0]})" if equal else twice
        value = ":".join(map(str, place[1:]))
        for line in lines[1:] if equal else lines:
            reason = Reason("ledger, entry, batch_index", value, rule, "keep the one row that the topic really holds")
            messages.reject(line, messages.rows[line].model_dump_json(), reason)


def reject_backward_times(events: Lines[Any]) -> None:
    """In broker order (``seq``) time never runs backwards; the fewest rows that break this are rejected."""
    lines = sorted(events.rows, key=lambda line: events.rows[line].seq)
    times = [events.rows[line].t_ns for line in lines]
    if all(a <= b for a, b in pairwise(times)):
        return
    for i in sorted(set(range(len(times))) - set(_longest_rising(times))):
        event = events.rows[lines[i]]
        rule = f"time runs backwards against the broker's own order at seq {event.seq}"
        reason = Reason("t_ns", str(event.t_ns), rule, "correct the clock or the order of the recording")
        events.reject(lines[i], event.model_dump_json(), reason)


def replay(messages: Lines[Message], events: list[Any], receipts: Lines[Receipt]) -> list[dict[str, Any]]:
    """Canonical deliveries, subscription by subscription: each has its own cursor and its own acknowledgements.

    What a broker still writes to a connection that has just been closed never arrives, and is no delivery.
    """
    subscription_of: dict[tuple[str, str, int], str] = {}  # a redelivery request names its connection only
    replayers = {name: Replayer(messages.rows.values()) for name in {r.subscription for r in receipts.rows.values()}}
    closed: dict[str, int] = {}  # when each connection was
    for event in events:
        name = getattr(event, "subscription", None)
        if isinstance(event, Subscribe | Created):
            subscription_of[event.cnx, event.topic, event.consumer_id] = event.subscription
            closed.pop(event.cnx, None)  # an address is used again
        elif isinstance(event, Disconnected):
            closed[event.cnx] = event.t_ns
        elif isinstance(event, Dispatch) and event.t_ns < closed.get(event.cnx, -UNDER_WAY) + UNDER_WAY:
            continue
        elif isinstance(event, Redeliver):
            name = subscription_of.get((event.cnx, event.topic, event.consumer_id))
        if name is not None:
            if name not in replayers:
                replayers[name] = Replayer(messages.rows.values())
            replayers[name].apply(event)
    for name, replayer in replayers.items():
        add_receipts(replayer.deliveries, receipts, name)
    return [row for name in sorted(replayers) for row in replayers[name].rows()]


def in_broker_order(events: Lines[Any]) -> list[Any]:
    """Events in the broker's order, each later than the one before: those of one instant are set apart by a
    nanosecond. With them come the closes that the broker did not report (see ``membership``)."""
    ordered: list[Any] = []
    for event in sorted(events.rows.values(), key=lambda e: e.seq):
        earliest = ordered[-1].t_ns + 1 if ordered else event.t_ns
        ordered.append(event if event.t_ns >= earliest else event.model_copy(update={"t_ns": earliest}))
    return with_unrecorded_closes(ordered)


def _longest_rising(values: list[int]) -> list[int]:
    """Indexes of a longest non-decreasing subsequence (patience sorting, O(n log n))."""
    tails: list[int] = []
    at: list[int] = []
    before: list[int] = []
    for i, value in enumerate(values):
        k = bisect.bisect_right(tails, value)
        before.append(at[k - 1] if k else -1)
        tails[k : k + 1] = [value]
        at[k : k + 1] = [i]
    chain, i = [], at[-1] if at else -1
    while i >= 0:
        chain.append(i)
        i = before[i]
    return chain[::-1]


def reject_early_ends(receipts: Lines[Receipt]) -> None:
    """A client acknowledges or nacks a message after it received it."""
    remedy = "correct the client's clock"
    for line, receipt in list(receipts.rows.items()):
        early = [
            Reason(column, str(value), f"time runs backwards: before recv_ns {receipt.recv_ns}", remedy)
            for column, value in (("ack_ns", receipt.ack_ns), ("nack_ns", receipt.nack_ns))
            if value is not None and value < receipt.recv_ns
        ]
        if early:
            receipts.reject(line, receipt.model_dump_json(), *early)


def reject_unknown_joins(events: Lines[Any], joined: set[str]) -> None:
    """Where the recorder kept its own list of joins, a consumer created at the broker must be on it; of those that
    share a name the list calls the second one ``name#2``."""
    joined = joined | {name.rpartition("#")[0] for name in joined if "#" in name}
    for line, event in list(events.rows.items()):
        if joined and isinstance(event, Created) and event.consumer not in joined:
            reason = Reason("consumer", event.consumer, "the recorder's membership file knows no join of this consumer",
                            "take both files from the same session")  # fmt: skip
            events.reject(line, event.model_dump_json(), reason)


def suggested_run(events: Lines[Any], scenario: Scenario) -> tuple[dict[str, Any], str]:
    """What an audit of this recording needs: subscription, topic, policy, profile, as the broker was set; and in what
    the broker may differ from the profile, else ""."""
    rows = sorted(events.rows.values(), key=lambda e: e.seq)
    first = next((e for kind in (Subscribe, Created, Dispatch) for e in rows if isinstance(e, kind)), None)
    if first is None:
        return {}, ""
    kind = getattr(first, "type", "Key_Shared")
    policy = scenario.policy_of(kind, getattr(first, "key_shared_mode", None))
    subscription: dict[str, Any] = {"name": first.subscription, "topic": base_topic(first.topic)[0], "policy": policy}
    differs = ""
    if scenario.version:
        subscription["profile"], differs = find_nearest_profile("pulsar", scenario.version)
    if getattr(first, "allow_out_of_order", None):
        subscription["options"] = {"allow_out_of_order": True}
    return {"subscription": subscription}, differs
