"""Adapter ``pulsar-recording``: one session of a real broker, recorded by an interceptor inside it.

A recording is a folder of gzip JSON lines: ``messages`` and ``broker_events``; optional are ``deliveries``,
``membership``, ``dlq`` (messages on the dead letter topic) and ``scenario.json``. Dispatches, their order (``seq``),
acknowledgements, redelivery requests and membership come from the broker's own events. The client's ``deliveries`` only
add when the application received a message and negatively acknowledged it, because a client's times are of calls, not
of their effects. The broker's log beside them contains resets, seeks and unloads. Polled statistics (``topic_stats``)
show limits and consumers that hang. A recording is one bounded capture, so it is read into memory as a whole.
"""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter

from subreplay.adapters.base import Reason, SourceTables
from subreplay.adapters.broker_log.operator_acts import ACTS, build_resets, find_acts_in_file
from subreplay.adapters.canonical import build_table, split_topic
from subreplay.adapters.jsonl import ContractRows, read_contract_rows
from subreplay.adapters.pulsar_recording.dead_letters import (
    DeadLetter,
    build_dead_letter_rows,
    infer_dead_letter_policy,
)
from subreplay.adapters.pulsar_recording.receipts import add_receipts
from subreplay.adapters.pulsar_recording.recorded_deliveries import DeliveryReplayer
from subreplay.adapters.pulsar_recording.recorded_events import (
    BrokerEvent,
    Created,
    Disconnected,
    Dispatch,
    RecordedMessage,
    RecordedReceipt,
    Redeliver,
    Subscribe,
    build_message_rows,
)
from subreplay.adapters.pulsar_recording.recorded_members import build_membership_rows, insert_missing_closes
from subreplay.adapters.pulsar_recording.recording_scenario import PulsarScenario, read_scenario
from subreplay.adapters.pulsar_recording.scalable_topics import (
    describe_segment,
    read_messages,
    read_receipts,
    read_segments,
)
from subreplay.adapters.pulsar_stats.limits_and_silences import describe_silent_consumers, infer_limits
from subreplay.adapters.pulsar_stats.stats_adapter import count_files, read_stats
from subreplay.hashing.profiles.releases import find_nearest_profile
from subreplay.semantics.policies.pulsar.scalable_stream import BUCKET_BUDGET, StreamPolicy

_POLLS = "topic_stats.jsonl.gz", "topic_stats.jsonl"
IN_FLIGHT_NANOS = 10_000_000
"""The time (ns) for which a broker may still write to a closed connection; it notices within a millisecond."""


class _RecorderNote(BaseModel):
    """A row of the recorder's own membership file. Only its joins are compared with the broker's."""

    model_config = ConfigDict(extra="ignore")
    event: str
    consumer: str | None = None
    t_ns: int


def read_tables(folder: Path) -> SourceTables:
    """Read one recording. Raises ``InputError`` where a needed file is missing, unreadable or malformed."""
    scenario = read_scenario(folder)
    events: ContractRows[Any] = read_contract_rows(folder, "broker_events", TypeAdapter(BrokerEvent))
    messages = read_messages(folder, events.rows.values())
    receipts = read_receipts(folder, scenario.subscription)
    notes = read_contract_rows(folder, "membership", TypeAdapter(_RecorderNote), required=False)
    letters = read_contract_rows(folder, "dlq", TypeAdapter(DeadLetter), required=False)

    reject_divergent(messages)
    reject_divergent(letters)
    reject_backward_times(events)
    reject_early_ends(receipts)
    reject_unknown_joins(events, {n.consumer for n in notes.rows.values() if n.event == "join" and n.consumer})

    ordered = sort_events(events)
    deliveries = fold_deliveries(messages, ordered, receipts)
    tables = {
        "messages": build_table(
            "messages", [*build_message_rows(messages.rows.values()), *build_dead_letter_rows(letters.rows.values())]
        ),
        "membership": build_table("membership", build_membership_rows(ordered, scenario.queue_sizes)),
        "deliveries": build_table("deliveries", deliveries),
    }
    files: list[ContractRows[Any]] = [messages, events, receipts, notes, letters]
    rejected = tuple(r for lines in files for _, r in sorted(lines.rejected.items()))
    counts = tuple(f.count for f in files if f.count.rows_in)
    run, differs = build_run(events, scenario)
    named = run.get("subscription", {})
    if policy := infer_dead_letter_policy(letters.rows.values(), deliveries, named.get("topic")):
        run["topic"] = {"dead_letter": policy}
    if segments := read_segments(folder):
        run.setdefault("topic", {})["segments"] = [describe_segment(segment) for segment in segments]
        buckets = math.lcm(*(segment.buckets for segment in segments))
        if run.get("subscription", {}).get("policy") == StreamPolicy.name and buckets != BUCKET_BUDGET:
            run["subscription"]["options"] = {"buckets": buckets}  # each segment's buckets consist of whole ones
    log = folder / "broker.log.gz"
    acts = find_acts_in_file(log) if named and log.exists() else ACTS.empty_table()
    if len(acts) and (found := build_resets(acts, named["topic"], named["name"], tables["membership"])):
        run.setdefault("topic", {})["resets"] = found
    polls = next((path for path in map(folder.joinpath, _POLLS) if path.exists()), None)
    sentences: tuple[str, ...] = (differs,) if differs else ()
    concluded: dict[str, int] = {}
    if named and polls is not None:
        polled = read_stats(polls, topics=[named["topic"]], subscriptions=[named["name"]])
        known = scenario.broker_settings.limits
        concluded, notes_of_limits = infer_limits(polled.found, named["name"], named["topic"], known)
        sentences = (*sentences, *notes_of_limits, *describe_silent_consumers(polled.found))
        rejected, counts = (*rejected, *polled.rejected), (*counts, *count_files(polled))
    if limits := concluded | scenario.broker_settings.limits:
        run["liveness"] = limits
    others = {(e.subscription, split_topic(e.topic)[0]) for e in ordered if isinstance(e, Created)}
    rest = tuple(sorted(others - {(named.get("name"), named.get("topic"))}))
    return SourceTables(tables, rejected, counts, run, rest, sentences)


def reject_divergent(messages: ContractRows[Any]) -> None:
    """Reject all messages of a position with different messages, because it is unclear which is right; keep one of
    equal messages."""
    places: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for line, m in messages.rows.items():
        places[(*m.position, m.batch_index)].append(line)
    for place, lines in places.items():
        if len(lines) < 2:
            continue
        equal = all(messages.rows[line] == messages.rows[lines[0]] for line in lines)
        unequal = f"the messages at one position must be equal (rows {', '.join(map(str, lines))})"
        rule = f"a position must occur once (see row {lines[0]})" if equal else unequal
        value = ":".join(map(str, place[1:]))
        for line in lines[1:] if equal else lines:
            reason = Reason("ledger, entry, batch_index", value, rule, "keep the row that equals the topic's message")
            messages.reject(line, messages.rows[line].model_dump_json(), reason)


def reject_backward_times(events: ContractRows[Any]) -> None:
    """Reject the fewest events whose times decrease in broker order (``seq``)."""
    lines = sorted(events.rows, key=lambda line: events.rows[line].seq)
    times = [events.rows[line].t_ns for line in lines]
    if all(a <= b for a, b in pairwise(times)):
        return
    for i in sorted(set(range(len(times))) - set(_find_longest_rising(times))):
        event = events.rows[lines[i]]
        rule = f"times must not decrease in the broker's order (seq {event.seq})"
        reason = Reason("t_ns", str(event.t_ns), rule, "correct the clock or the order of the recording")
        events.reject(lines[i], event.model_dump_json(), reason)


def fold_deliveries(
    messages: ContractRows[RecordedMessage], events: list[Any], receipts: ContractRows[RecordedReceipt]
) -> list[dict[str, Any]]:
    """Fold the events of each subscription into canonical deliveries. Each has its own cursor and acknowledgements.

    A dispatch to a connection that was closed just before never arrives, so it is not a delivery.
    """
    subscription_of: dict[tuple[str, str, int], str] = {}  # for redelivery requests, which name only a connection
    replayers = {
        name: DeliveryReplayer(messages.rows.values()) for name in {r.subscription for r in receipts.rows.values()}
    }
    closed: dict[str, int] = {}  # closing times by connection
    for event in events:
        name = getattr(event, "subscription", None)
        if isinstance(event, Subscribe | Created):
            subscription_of[event.cnx, event.topic, event.consumer_id] = event.subscription
            closed.pop(event.cnx, None)  # a new connection reuses the address
        elif isinstance(event, Disconnected):
            closed[event.cnx] = event.t_ns
        elif isinstance(event, Dispatch) and event.t_ns < closed.get(event.cnx, -IN_FLIGHT_NANOS) + IN_FLIGHT_NANOS:
            continue
        elif isinstance(event, Redeliver):
            name = subscription_of.get((event.cnx, event.topic, event.consumer_id))
        if name is not None:
            if name not in replayers:
                replayers[name] = DeliveryReplayer(messages.rows.values())
            replayers[name].apply(event)
    for name, replayer in replayers.items():
        add_receipts(replayer.deliveries, receipts, name)
    return [row for name in sorted(replayers) for row in replayers[name].build_rows()]


def sort_events(events: ContractRows[Any]) -> list[Any]:
    """Sort events in the broker's order, and make times strictly increasing by adding nanoseconds. Insert the closes
    that the broker did not report (see ``recorded_members``)."""
    ordered: list[Any] = []
    for event in sorted(events.rows.values(), key=lambda e: e.seq):
        earliest = ordered[-1].t_ns + 1 if ordered else event.t_ns
        ordered.append(event if event.t_ns >= earliest else event.model_copy(update={"t_ns": earliest}))
    return insert_missing_closes(ordered)


def _find_longest_rising(values: list[int]) -> list[int]:
    """Return the indexes of a longest non-decreasing subsequence (patience sorting, O(n log n))."""
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


def reject_early_ends(receipts: ContractRows[RecordedReceipt]) -> None:
    """Reject receipts whose acknowledgement or negative acknowledgement precedes the receipt."""
    remedy = "correct the client's clock"
    for line, receipt in list(receipts.rows.items()):
        early = [
            Reason(column, str(value), f"{column} must not be before recv_ns {receipt.recv_ns}", remedy)
            for column, value in (("ack_ns", receipt.ack_ns), ("nack_ns", receipt.nack_ns))
            if value is not None and value < receipt.recv_ns
        ]
        if early:
            receipts.reject(line, receipt.model_dump_json(), *early)


def reject_unknown_joins(events: ContractRows[Any], joined: set[str]) -> None:
    """Reject consumers that the broker created but the recorder's own list of joins lacks, if there is such a list. The
    list calls the second consumer with a name ``name#2``."""
    joined = joined | {name.rpartition("#")[0] for name in joined if "#" in name}
    for line, event in list(events.rows.items()):
        if joined and isinstance(event, Created) and event.consumer not in joined:
            reason = Reason(
                "consumer",
                event.consumer,
                "the recorder's membership file must have a join of the consumer",
                "take both files from the same session",
            )
            events.reject(line, event.model_dump_json(), reason)


def build_run(events: ContractRows[Any], scenario: PulsarScenario) -> tuple[dict[str, Any], str]:
    """Build the run for an audit of this recording: subscription, topic, policy and profile. The second result says how
    the broker may differ from the profile, or is empty."""
    rows = sorted(events.rows.values(), key=lambda e: e.seq)
    first = next((e for kind in (Subscribe, Created, Dispatch) for e in rows if isinstance(e, kind)), None)
    if first is None:
        return {}, ""
    kind = getattr(first, "type", "Key_Shared")
    policy = scenario.choose_policy(kind, getattr(first, "key_shared_mode", None), first.topic)
    subscription: dict[str, Any] = {"name": first.subscription, "topic": split_topic(first.topic)[0], "policy": policy}
    differs = ""
    if scenario.version:
        subscription["profile"], differs = find_nearest_profile("pulsar", scenario.version)
    if getattr(first, "allow_out_of_order", None):
        subscription["options"] = {"allow_out_of_order": True}
    return {"subscription": subscription}, differs
