"""Compare a recorded share group with its re-enactment."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from subreplay.adapters.kafka_recording.share_recording import ShareRecording, read_share_recording
from subreplay.adapters.kafka_recording.share_rows import ShareScenario
from subreplay.conformance.fidelity_groups.group_comparison import REQUIRED_PERCENT, MatchCounts
from subreplay.conformance.fidelity_share.partition_requests import sort_actions
from subreplay.conformance.fidelity_share.share_epochs import EpochReenactment, GroupTarget, list_recorded_targets
from subreplay.conformance.fidelity_share.share_reenactment import PartitionReenactment, StateChange, reenact_partition
from subreplay.conformance.fidelity_share.shared_log import build_logs
from subreplay.conformance.fidelity_share.start_offsets import find_start
from subreplay.semantics.policies.kafka.assignor import TopicPartition
from subreplay.simulation.kafka.share.share_window import MS, RecordState, ShareSettings

FREE_STATES: Final = {RecordState.AVAILABLE: "released", RecordState.ARCHIVED: "archived"}
"""The states whose records must be equal."""


@dataclass(frozen=True)
class ShareAgreement:
    """A recording compared with its re-enactment.

    ``acquired`` records match in member and delivery count. ``answers`` to acknowledgements match in whether the broker
    accepts them. ``released`` and ``archived`` records match in offset and delivery count, as do ``acknowledged`` ones.
    ``starts`` are the start offsets that the state topic contains, and ``targets`` the epochs with the partitions of
    each member. ``reordered`` decisions needed another order of simultaneous requests than that of their answers.
    """

    name: str
    acquired: MatchCounts
    answers: MatchCounts
    released: MatchCounts
    archived: MatchCounts
    acknowledged: MatchCounts
    starts: MatchCounts
    targets: MatchCounts
    reordered: int

    @property
    def same_acquisitions(self) -> float:
        """The percentage of recorded acquisitions with the same member and delivery count."""
        return 100 * self.acquired.both / self.acquired.recorded if self.acquired.recorded else 100.0

    @property
    def passed(self) -> bool:
        """Whether everything that must match does."""
        whole = self.released.same and self.archived.same and self.targets.same
        return whole and self.same_acquisitions >= REQUIRED_PERCENT


@dataclass
class LoggedStates:
    """What ``__share_group_state`` contains about one partition.

    ``hidden`` offsets ended with a write that is only visible as a snapshot, which replaces every 500th.
    """

    changes: list[StateChange] = field(default_factory=list)
    starts: set[int] = field(default_factory=set)
    hidden: set[int] = field(default_factory=set)


def measure_share_agreement(folder: Path) -> ShareAgreement:
    """Re-enact a recording and compare. Raises ``InputError`` as ``read_share_recording``."""
    recording = read_share_recording(folder)
    scenario, logs = recording.scenario, build_logs(recording)
    settings, logged = build_share_settings(scenario), read_logged_states(recording)
    reenacted: dict[TopicPartition, PartitionReenactment] = {}
    wrong_starts = 0
    for name, actions in sort_actions(recording).items():
        if name in logs:
            start, is_right = find_start(scenario, name, logs[name], actions)
            wrong_starts += not is_right
            reenacted[name] = reenact_partition(logs[name], settings, actions, start)
    changes = {state: _count_changes(reenacted, logged, state) for state in RecordState}
    starts = [(one.starts, states.starts) for name, states in logged.items() if (one := reenacted.get(name))]
    return ShareAgreement(
        scenario.name,
        _add_counts(one.acquired for one in reenacted.values()),
        _add_counts(one.answers for one in reenacted.values()),
        changes[RecordState.AVAILABLE],
        changes[RecordState.ARCHIVED],
        changes[RecordState.ACKNOWLEDGED],
        MatchCounts(
            *(sum(len(recorded) for _, recorded in starts),) * 2,
            sum(len(recorded & decided) for decided, recorded in starts) - wrong_starts,
        ),
        _compare_targets(list(list_recorded_targets(recording)), list(EpochReenactment(recording).list_targets())),
        sum(one.reordered for one in reenacted.values()),
    )


def build_share_settings(scenario: ShareScenario) -> ShareSettings:
    """Return the settings of a scenario's share partitions."""
    return ShareSettings(
        lock_duration=scenario.find_setting("record.lock.duration.ms", 30_000) * MS,
        max_locks=scenario.find_setting("partition.max.record.locks", 2_000),
        delivery_limit=scenario.find_setting("delivery.count.limit", 5),
        record_limit=scenario.consumers[0].props.get("share.acquire.mode") == "record_limit",
    )


def read_logged_states(recording: ShareRecording) -> Mapping[TopicPartition, LoggedStates]:
    """Return what the state topic contains about each partition."""
    topics = {topic_id: topic for topic, topic_id in recording.scenario.topic_ids.items()}
    result: dict[TopicPartition, LoggedStates] = defaultdict(LoggedStates)
    latest: dict[tuple[TopicPartition, int], tuple[int, int]] = {}
    for record in recording.share_state:
        key, value = record.decoded_key, record.decoded_value
        if key is None or value is None:
            continue
        name = TopicPartition(topics[key["topicId"]], key["partition"])
        states, start, is_snapshot = result[name], value["startOffset"], record.type == "ShareSnapshot"
        if is_snapshot:
            unseen = range(max(states.starts, default=0), start)
            states.hidden.update(o for o in unseen if latest.get((name, o), (0, 0))[0] == RecordState.AVAILABLE)
        if start >= 0:
            states.starts.add(start)
        for batch in value["stateBatches"]:
            state = batch["deliveryState"], batch["deliveryCount"]
            for offset in range(batch["firstOffset"], batch["lastOffset"] + 1):
                if not is_snapshot or latest.get((name, offset)) != state:
                    states.changes.append((offset, *state))
                latest[name, offset] = state
    return result


def _count_changes(
    reenacted: Mapping[TopicPartition, PartitionReenactment],
    logged: Mapping[TopicPartition, LoggedStates],
    state: RecordState,
) -> MatchCounts:
    """Count the records that got a state, by offset and delivery count."""
    decided: Counter[tuple[TopicPartition, int, int]] = Counter()
    recorded: Counter[tuple[TopicPartition, int, int]] = Counter()
    for counts, sides in ((decided, reenacted), (recorded, logged)):
        for name, side in sides.items():
            hidden = logged[name].hidden if name in logged else set()
            counts.update((name, o, n) for o, kind, n in side.changes if kind == state and o not in hidden)
    return MatchCounts(recorded.total(), decided.total(), (recorded & decided).total())


def _add_counts(counts: Iterable[Counter[str]]) -> MatchCounts:
    whole: Counter[str] = sum(counts, Counter())
    return MatchCounts(whole["recorded"], whole["replayed"], whole["both"])


def _compare_targets(recorded: Sequence[GroupTarget], decided: Sequence[GroupTarget]) -> MatchCounts:
    keys = [Counter((one.epoch, one.members) for one in side) for side in (recorded, decided)]
    return MatchCounts(len(recorded), len(decided), (keys[0] & keys[1]).total())
