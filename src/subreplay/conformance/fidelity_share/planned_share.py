"""Build the share group of a recorded scenario's plan: joins, leaves, actions, and the clients' settings.

Nothing else of the recording is used, except the log (which record was produced when, in which batch) and the names
that a live cluster draws at random: member ids and topic ids, by which the assignor sorts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from subreplay.adapters.kafka_recording.share_recording import ShareRecording
from subreplay.adapters.kafka_recording.share_rows import (
    AcknowledgementRule,
    ShareAction,
    ShareApplication,
    ShareScenario,
)
from subreplay.conformance.fidelity_groups.service_times import build_service
from subreplay.conformance.fidelity_share.share_comparison import build_share_settings
from subreplay.conformance.fidelity_share.share_epochs import build_share_partitions, build_share_policy
from subreplay.conformance.fidelity_share.shared_log import SharedLog, build_logs
from subreplay.rows.model.rows import Instant, MembershipEvent, Scope
from subreplay.semantics.policies.kafka.assignor import Partitions, TopicPartition
from subreplay.simulation.kafka.group_state import LOGGED
from subreplay.simulation.kafka.share.share_parameters import (
    ClosingInHand,
    OffsetRule,
    ShareMemberModel,
    ShareParameters,
)
from subreplay.simulation.kafka.share.share_replay import ShareReplay
from subreplay.simulation.kafka.share.share_window import MS
from subreplay.simulation.kafka.simulation_parameters import Enlargement, Resubscription, Stall
from subreplay.simulation.pulsar.broker.broker_records import Records, create_records

SECOND: Final = 1_000 * MS
START_TIME: Final = 16 * MS
"""From the planned start of a consumer to its first heartbeat (median)."""
INITIALISE_TIME: Final = 2_400 * MS
"""From the first heartbeat until the first share state is written, with its topic (median; 1.8 to 3.1 s)."""
SECOND_BEAT: Final = 190 * MS
"""From a member's first heartbeat to the second one (median)."""
ANSWER_TIME: Final = 7 * MS
"""From a heartbeat that assigns partitions to the first fetch (median)."""
POLL_TIME: Final = 4 * MS
"""From the end of a batch until the next poll returns, if there are records (median)."""
COMMIT_TIME: Final = 4 * MS
"""How long a commitSync lasts (median)."""
MAX_WAIT: Final = 503 * MS
"""From one fetch without an answer to the next one."""
APPEND_TIME: Final = 3 * MS
"""From the send of a record without linger until it can be read (median)."""
DEFAULT_LINGER_MS: Final = 5
START_DEVIATION: Final = 0.6
"""How these times vary from run to run: the standard deviation of their logarithms."""


@dataclass(frozen=True)
class PlannedShareGroup:
    """A share group with its log, ready for replay."""

    replay: ShareReplay
    partitions: Partitions


def list_share_runs(recording: ShareRecording, count: int) -> Iterator[PlannedShareGroup]:
    """Yield so many replays of a scenario's plan: the first one with median start times, the others with random
    ones."""
    scenario, partitions = recording.scenario, build_share_partitions(recording.scenario)
    log, hidden = build_share_log(recording, partitions)
    members = _find_member_ids(recording)
    for run in range(count):
        factors = np.exp(START_DEVIATION * np.random.default_rng(run).normal(size=1 + len(scenario.consumers)))
        if run == 0:
            factors[:] = 1.0
        events = list(_list_events(scenario, members, factors[1:].tolist()))
        replay = ShareReplay(
            build_share_policy(scenario),
            partitions,
            events,
            [log.copy().view(np.recarray)],
            _build_parameters(recording, run, float(factors[0]), 2 * len(log)),
            list(_list_client_actions(scenario)),
            hidden,
        )
        yield PlannedShareGroup(replay, partitions)


def build_share_log(recording: ShareRecording, partitions: Partitions) -> tuple[Records, NDArray[np.bool_]]:
    """Return the log as input of a replay, and which of its records a member never receives.

    Control records and, for a group that reads committed ones, aborted records take their place in the log.
    """
    parts, hidden = [], []
    sizes = {(row.topic, row.partition, row.offset): row for row in recording.records}
    logs = build_logs(recording)
    sent = _find_send_times(logs, _find_linger(recording))
    for name, log in logs.items():
        rows = create_records(len(log.batch_ends), LOGGED)
        rows["partition"] = partitions.find_number(Scope(name.topic, name.partition))
        rows.entry = np.arange(len(rows))
        rows.batch_index = -1
        rows.ready = np.maximum.accumulate(sent[name]) + APPEND_TIME
        records = [sizes.get((name.topic, name.partition, offset)) for offset in range(len(rows))]
        rows.at = [ready if row is None else row.produced_at for row, ready in zip(records, rows.ready, strict=True)]
        rows["size"] = [0 if row is None else row.size for row in records]
        parts.append(rows)
        hidden.append(log.hidden | np.array([row is None for row in records]))
    whole = np.concatenate(parts).view(np.recarray)
    order = np.argsort(whole.ready, kind="stable")
    return whole[order].view(np.recarray), np.concatenate(hidden)[order]


def _find_send_times(
    logs: Mapping[TopicPartition, SharedLog], linger: int
) -> Mapping[TopicPartition, NDArray[np.int64]]:
    """Return when each record's batch was sent.

    A producer sends all its open batches of a broker together, when the first of them has waited for ``linger``
    (``RecordAccumulator.drain``). So one fetch gets records of several partitions.
    """
    batches = sorted(
        (int(log.created_at[first]), int(log.sent_at[first]), name, first)
        for name, log in logs.items()
        for first in np.unique(np.searchsorted(log.batch_ends, log.batch_ends, "left")).tolist()
    )
    sent = {name: np.zeros(len(log.batch_ends), np.int64) for name, log in logs.items()}
    at = -1
    for created, complete, name, first in batches:
        if created > at or complete > at:
            at = max(created + linger, complete)
        sent[name][first : logs[name].batch_ends[first]] = at
    return sent


def _find_linger(recording: ShareRecording) -> int:
    return int(recording.scenario.producer.get("props", {}).get("linger.ms", DEFAULT_LINGER_MS)) * MS


def _find_member_ids(recording: ShareRecording) -> Mapping[str, str]:
    ids: dict[str, str] = {}
    for row in sorted(recording.requests, key=lambda row: row.received_at):
        ids.setdefault(row.consumer, row.member_id)
    return ids


def _list_events(
    scenario: ShareScenario, members: Mapping[str, str], factors: Sequence[float]
) -> Iterator[MembershipEvent]:
    timed = []
    for one, factor in zip(scenario.consumers, factors, strict=True):
        timed.append((scenario.t0 + round(one.start_s * SECOND + START_TIME * factor), "join", one))
        timed += [
            (_find_time(scenario, action), "leave" if action.do == "close" else "crash", one)
            for action in one.actions
            if action.do in ("close", "kill")
        ]
    for seq, (at, kind, one) in enumerate(sorted(timed, key=lambda event: event[0])):
        instant = Instant(at, seq)
        yield MembershipEvent(
            Scope(""), kind, one.name, instant, instant, topics=one.subscribe, alias=members.get(one.name),  # type: ignore[arg-type]
        )  # fmt: skip


def _list_client_actions(scenario: ShareScenario) -> Iterator[Resubscription | Enlargement]:
    for one in scenario.consumers:
        for action in one.actions:
            if action.do in ("subscribe", "unsubscribe"):
                yield Resubscription(_find_time(scenario, action), one.name, action.topics)
    for action in scenario.actions:
        if action.topic is not None and action.to is not None:
            yield Enlargement(_find_time(scenario, action), action.topic, action.to)


def _find_time(scenario: ShareScenario, action: ShareAction) -> int:
    return scenario.t0 + round(action.at_s * SECOND)


def _build_parameters(recording: ShareRecording, run: int, factor: float, records: int) -> ShareParameters:
    scenario = recording.scenario
    reset = scenario.get_group_setting("auto.offset.reset", "latest")
    return ShareParameters(
        others={one.name: _build_model(scenario, one, records) for one in scenario.consumers},
        settings=build_share_settings(scenario),
        max_poll_records=int(scenario.consumers[0].props.get("max.poll.records", 500)),
        heartbeat_interval=scenario.find_setting("heartbeat.interval.ms", 5_000) * MS,
        assignment_interval=scenario.find_setting("assignment.interval.ms", 1_000) * MS,
        initialise_time=round(INITIALISE_TIME * factor ** (1 / 3)),
        second_beat=SECOND_BEAT,
        answer_time=ANSWER_TIME,
        max_wait=MAX_WAIT,
        committed=scenario.get_group_setting("isolation.level", "") == "read_committed",
        reset="latest" if reset == "latest" else "earliest",
        seed=run,
    )


def _build_model(scenario: ShareScenario, one: ShareApplication, records: int) -> ShareMemberModel:
    explicit = one.props.get("share.acknowledgement.mode", "implicit") == "explicit"
    closing = next((action for action in one.actions if action.do == "close_in_hand"), None)
    return ShareMemberModel(
        service=build_service(one.service_us, one.seed, records),
        stalls=tuple(
            Stall(_find_time(scenario, action), action.ms * MS, action.min)
            for action in one.actions
            if action.do == "stall"
        ),
        explicit=explicit,
        commits=one.commit == "sync",
        rule=None if one.ack is None else _build_rule(one.ack),
        renew_works=one.ack is None or one.ack.renew_work,
        overhead=POLL_TIME + (COMMIT_TIME if one.commit == "sync" else 0),
        closing=None if closing is None else ClosingInHand(_find_time(scenario, closing), closing.done, closing.min),
    )


def _build_rule(rule: AcknowledgementRule) -> OffsetRule:
    return OffsetRule(rule.mod, frozenset(rule.reject), dict(rule.release), dict(rule.renew))
