"""Read a recording of a real broker, dispatcher by dispatcher: its log, its consumers, their actions and the
broker's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import TypeAdapter

from subreplay.adapters.broker_log.operator_acts import find_acts_in_file
from subreplay.adapters.canonical import build_table, split_topic
from subreplay.adapters.jsonl import read_contract_rows
from subreplay.adapters.pulsar_recording.dead_letters import DeadLetter
from subreplay.adapters.pulsar_recording.pulsar_recording_adapter import (
    reject_backward_times,
    reject_divergent,
    sort_events,
)
from subreplay.adapters.pulsar_recording.recorded_events import (
    BrokerEvent,
    Created,
    Disconnected,
    Dispatch,
    RecordedReceipt,
    Subscribe,
    build_message_rows,
)
from subreplay.adapters.pulsar_recording.recorded_members import build_membership_rows
from subreplay.adapters.pulsar_recording.recording_scenario import PulsarScenario, read_scenario
from subreplay.adapters.pulsar_recording.scalable_topics import read_messages, read_receipts, read_segments
from subreplay.conformance.fidelity.broker_flow_log import LoggedPermitRequest, read_logged_flows
from subreplay.errors import ConfigError, InputError
from subreplay.hashing.profiles.releases import find_nearest_profile
from subreplay.rows.model.rows import Scope
from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.base import Policy
from subreplay.semantics.policies.pulsar.scalable_stream import StreamPolicy
from subreplay.semantics.timelines.membership import build_dispatcher_events
from subreplay.semantics.timelines.timeline import Timeline
from subreplay.simulation.pulsar.broker.broker_state import DispatcherOptions
from subreplay.simulation.pulsar.broker.dispatch_rules import MILLISECOND, DispatchSettings, parse_settings
from subreplay.simulation.pulsar.dispatcher_choice import build_options

DEFAULT_QUEUE_SIZE = 1000
"""A client's receiver queue size if the recording does not contain it (row D-FLOW-1)."""


class RecordedReset(NamedTuple):
    """A reset of the cursor that was requested ``at`` (ns), to the first message published at ``to`` (ns) or later; or
    an unload of the topic (``to`` is None), which keeps what is acknowledged."""

    at: int
    to: int | None


@dataclass(frozen=True, eq=False)
class RecordedDispatcher:
    """One subscription on one topic or partition, as recorded.

    ``settings`` are those of the recorded broker. ``rows`` are canonical messages in log order, ``events`` the broker's
    own events in order, and ``receipts`` the messages that applications took. ``dead`` are the positions (ledger,
    entry) that arrived on the dead letter topic, once per arrival. ``flows`` are the permit requests in the broker's
    log, in order, and ``resets`` the resets of the cursor there.
    """

    subscription: str
    scope: Scope
    type: str
    timeline: Timeline
    settings: DispatchSettings
    broker: DispatcherOptions
    rows: pa.Table
    events: tuple[Any, ...]
    receipts: tuple[RecordedReceipt, ...]
    queue_sizes: dict[str, int]
    dead: tuple[tuple[int, int], ...]
    flows: tuple[LoggedPermitRequest, ...]
    resets: tuple[RecordedReset, ...] = ()

    @property
    def policy(self) -> Policy:
        return self.timeline.policy


def find_recorded_profile(folder: Path) -> str:
    """Return the profile of the recorded broker's version; raises InputError if it is not named."""
    return find_nearest_profile("pulsar", find_recorded_version(folder))[0]


def find_recorded_version(folder: Path) -> str:
    """Return the version in ``scenario.json``, else the name of the recording's parent folder."""
    version = read_scenario(folder).version or folder.resolve().parent.name
    if not re.fullmatch(r"\d+(\.\d+)+", version):
        raise InputError(
            f"{folder}: the recording does not name the broker's version. Set it in scenario.json, or pass --profile."
        )
    return version


def read_recorded_dispatchers(folder: Path, profile: str) -> Iterator[RecordedDispatcher]:
    """Yield every dispatcher with a consumer, in order of subscription and topic.

    Raises InputError if a required file is missing or malformed, ConfigError for a profile without the policy.
    """
    scenario = read_scenario(folder)
    lines: Any = read_contract_rows(folder, "broker_events", TypeAdapter(BrokerEvent))
    messages = read_messages(folder, lines.rows.values())
    receipts = read_receipts(folder, scenario.subscription).rows.values()
    dead = read_contract_rows(folder, "dlq", TypeAdapter(DeadLetter), required=False).rows.values()
    reject_divergent(messages)
    reject_backward_times(lines)
    events, segments = sort_events(lines), {segment.id: segment for segment in read_segments(folder)}
    logged, settings = read_logged_flows(folder), _read_settings(folder, scenario, profile)
    table = build_table("messages", build_message_rows(messages.rows.values()))
    requests = {(e.cnx, e.topic, e.consumer_id): e for e in events if isinstance(e, Subscribe)}
    first: dict[tuple[str, str], Subscribe] = {}
    for event in events:
        if isinstance(event, Created) and (event.cnx, event.topic, event.consumer_id) in requests:
            request = requests[event.cnx, event.topic, event.consumer_id]
            first.setdefault((event.subscription, event.topic), request)
    for (subscription, topic), request in sorted(first.items(), key=lambda item: item[0]):
        scope = Scope(*split_topic(topic))
        options: dict[str, object] = {"allow_out_of_order": True} if request.allow_out_of_order else {}
        name = scenario.choose_policy(request.type, request.key_shared_mode, topic)
        if name == StreamPolicy.name and scope.partition in segments:
            options = {"buckets": segments[scope.partition].buckets}
        policy = make_policy(name, profile, **options)
        dispatcher_events = _select_events(events, subscription, topic)
        yield RecordedDispatcher(
            subscription,
            scope,
            request.type,
            _build_timeline(policy, scope, dispatcher_events),
            settings,
            build_options(policy, settings, batch_index_acks=True),  # as the recorded brokers are set
            table.filter((pc.field("topic") == scope.topic) & (pc.field("partition") == scope.partition)),
            dispatcher_events,
            tuple(r for r in receipts if r.topic == topic and r.subscription == subscription),
            scenario.queue_sizes,
            tuple(_list_origins(dead, topic)),
            tuple(flow for flow in logged if (flow.topic, flow.subscription) == (topic, subscription)),
            tuple(_list_resets(folder, subscription, scope)),
        )


def _list_resets(folder: Path, subscription: str, scope: Scope) -> Iterator[RecordedReset]:
    """Yield the completed resets to a time in a recording's log, with the time of their request, and the unloads."""
    log = folder / "broker.log.gz"
    requested: dict[str, int] = {}
    for act in find_acts_in_file(log).to_pylist() if log.exists() else ():
        if act["topic"] != scope.topic or act["partition"] not in (-1, scope.partition):
            continue
        if act["kind"] == "unload":
            yield RecordedReset(act["at"] * MILLISECOND, None)
        if act["kind"] != "reset" or act["subscription"] != subscription or not (act["to"] or "").isdecimal():
            continue
        requested.setdefault(act["to"], act["at"])
        if act["done"]:
            yield RecordedReset(requested.pop(act["to"]) * MILLISECOND, int(act["to"]) * MILLISECOND)


def _read_settings(folder: Path, scenario: PulsarScenario, profile: str) -> DispatchSettings:
    try:
        return parse_settings(scenario.broker_settings.by_name, profile)
    except ConfigError as error:
        raise InputError(
            f"{folder / 'scenario.json'}: broker_settings: {error}. Correct the setting, or remove it."
        ) from error


def _select_events(events: list[Any], subscription: str, topic: str) -> tuple[Any, ...]:
    """Return the events of a dispatcher; events with only a connection belong to the consumers created on it."""
    used = {e.cnx for e in events if isinstance(e, Created) and (e.topic, e.subscription) == (topic, subscription)}
    topic_events = [
        e for e in events if getattr(e, "topic", None) == topic or (isinstance(e, Disconnected) and e.cnx in used)
    ]
    others = {(e.cnx, e.consumer_id) for e in topic_events if isinstance(e, Created) and e.subscription != subscription}
    return tuple(
        event
        for event in topic_events
        if getattr(event, "subscription", subscription) == subscription
        and (getattr(event, "cnx", ""), getattr(event, "consumer_id", 0)) not in others
    )


def _build_timeline(policy: Policy, scope: Scope, events: tuple[Any, ...]) -> Timeline:
    rows = []
    for row in build_membership_rows(events, {}):
        exact = {name: row[name] * 1_000 + row[f"{name}_nanos"] for name in ("at", "since")}
        rows.append({"ranges": None} | row | exact)
    unnamed_instances = {event.consumer for event in events if isinstance(event, Dispatch) and event.instance is None}
    return Timeline.fold(
        policy, scope, build_dispatcher_events(rows, [(scope.topic, scope.partition)], unnamed_instances)[scope]
    )


def _list_origins(dead: Any, topic: str) -> Iterator[tuple[int, int]]:
    for letter in dead:
        if letter.origin and letter.origin[0].topic == topic:
            yield letter.origin[0][1:]
