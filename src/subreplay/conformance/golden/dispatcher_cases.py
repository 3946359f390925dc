"""Golden vectors of the dispatchers: the entries sent to each consumer after each operation, and the resulting
state."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from subreplay.conformance.golden.golden_cases import (
    GOLDEN_SCOPE,
    Case,
    apply_event,
    find_difference,
    find_first,
    format_error,
)
from subreplay.hashing.murmur3 import MASK_31, murmur3_32
from subreplay.hashing.sticky_key import compute_sticky_key
from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.base import Policy
from subreplay.simulation.pulsar.broker.broker_loop import find_next_timer, fire_timer, run_tasks
from subreplay.simulation.pulsar.broker.broker_membership import join, leave
from subreplay.simulation.pulsar.broker.broker_operations import (
    acknowledge,
    finish_acknowledgements,
    finish_rejections,
    flow,
    notify_published,
    publish,
    reject,
    reject_all,
)
from subreplay.simulation.pulsar.broker.broker_records import NEVER, NO_CHUNK
from subreplay.simulation.pulsar.broker.broker_state import Broker, create_broker, grow_window
from subreplay.simulation.pulsar.broker.dispatch_rules import DispatcherKind, DispatchSettings
from subreplay.simulation.pulsar.dispatcher_choice import build_options

POLICY_BY_NAME = {
    "shared": "pulsar.shared",
    "auto_split_ranges": "pulsar.key_shared.auto_split",
    "auto_split_consistent_hashing": "pulsar.key_shared.consistent_hash",
    "sticky": "pulsar.key_shared.sticky",
}
"""The policy of a script's ``policy``."""
MAX_TIMERS = 120
"""How many timers of the recorded brokers could fire after each operation."""


def judge_shared_dispatch_case(case: Case, profile: str) -> str | None:
    """Judge one script for a Shared dispatcher."""
    return find_first(_judge_steps(case, make_policy(POLICY_BY_NAME[case["policy"]], profile)))


def judge_key_shared_dispatch_case(case: Case, profile: str) -> str | None:
    """Judge one script for a Key_Shared dispatcher."""
    policy = make_policy(POLICY_BY_NAME[case["policy"]], profile, allow_out_of_order=case["allow_out_of_order"])
    return find_first(_judge_steps(case, policy))


def _judge_steps(case: Case, policy: Policy) -> Iterator[str | None]:
    script = _ScriptedDispatcher(case, policy)
    for step, event in enumerate(case["events"]):
        error = script.apply(event)
        actual = {"error": error, "delivered": script.list_delivered(), **script.describe_state()}
        expected = {"error": None, "delivered": event["delivered"], **event["state"]}
        if "error" in event:
            expected["error"] = _remove_connection(event["error"])
        yield find_difference(f"event {step} ({event['op']} {event.get('c', '')}), ", expected, actual)


def _remove_connection(error: Case) -> Case:
    """Remove the subscription and connection of the conflicting consumer from a recorded rejection."""
    return error | {"message": _CONNECTION.sub("", error["message"])}


_CONNECTION = re.compile(r"subscription=sub, |, address=[^}]*")


class _ScriptedDispatcher:
    """A dispatcher that runs a recorded script."""

    def __init__(self, case: Case, policy: Policy) -> None:
        self.policy, self.producer = policy, case["producer_name"]
        settings = DispatchSettings(
            max_read=case["dispatcher_max_read_batch_size"],
            max_turn=case["dispatcher_max_round_robin_batch_size"],
            max_unacked_per_consumer=case["max_unacked_per_consumer"],
            max_unacked_per_subscription=case["max_unacked_per_subscription"],
        )
        self.broker: Broker = create_broker(build_options(policy, settings), window=64)
        self.members = policy.start(GOLDEN_SCOPE)

    def apply(self, event: Case) -> Case | None:
        """Run an operation and everything that follows from it; return why a join was rejected."""
        error = None
        if event["op"] == "add":
            error = self._add(event)
        else:
            getattr(self, f"_{event['op']}")(event)
        run_tasks(self.broker)
        for _ in range(MAX_TIMERS):
            if find_next_timer(self.broker) == NEVER:
                break
            fire_timer(self.broker)
            run_tasks(self.broker)
        return error

    def _add(self, event: Case) -> Case | None:
        requested = event.get("ranges")
        members, rejection = apply_event(self.policy, self.members, {**event, "requested": requested})
        if rejection:
            return format_error(rejection)
        consumer = next(member for member in members.members if member.index == event["c"])
        self.broker, self.members = join(self.broker, consumer, members), members
        if event.get("permits"):
            flow(self.broker, event["c"], event["permits"])
        return None

    def _remove(self, event: Case) -> None:
        leaving = [member for member in self.members.members if member.index == event["c"]]
        self.members, _ = apply_event(self.policy, self.members, {"op": "remove", "c": event["c"]})
        self.broker = leave(self.broker, leaving[0], self.members)

    def _publish(self, event: Case) -> None:
        self.broker = grow_window(self.broker, self.broker.state[0].end + len(event["key_batchsize"]))
        for key, messages in event["key_batchsize"]:
            slot, hash_ = self._hash_key(key)
            publish(self.broker, hash_, slot, messages, 0, NO_CHUNK, 0, 0)
        notify_published(self.broker, False)

    def _hash_key(self, key: str | None) -> tuple[int, int]:
        sequence = int(self.broker.state[0].end)
        sticky_key = compute_sticky_key(
            None, None if key is None else key.encode(), False, self.producer, sequence, self.policy.profile
        )
        hash_ = murmur3_32(sticky_key or b"")
        slot = int(self.policy.compute_slots(np.array([hash_], np.uint32))[0])
        draining = self.broker.rule[0].dispatcher == DispatcherKind.KEY_SHARED_DRAINING
        return slot, slot if draining else hash_ & MASK_31

    def _flow(self, event: Case) -> None:
        flow(self.broker, event["c"], event["permits"])

    def _ack(self, event: Case) -> None:
        for entry in event["entries"]:
            acknowledge(self.broker, entry)
        finish_acknowledgements(self.broker)

    def _nack(self, event: Case) -> None:
        if not event["entries"]:  # the recording's client sent nothing
            return
        for entry in event["entries"]:
            reject(self.broker, event["c"], entry)
        finish_rejections(self.broker, event["c"])

    def _redeliver_all(self, event: Case) -> None:
        reject_all(self.broker, event["c"])

    def list_delivered(self) -> Case:
        """Return the entries sent since the last call, by consumer."""
        sent: Case = {}
        state = self.broker.state[0]
        rows = self.broker.dispatched[: state.dispatched][["consumer", "ordinal", "redeliveries"]]
        for consumer, ordinal, redeliveries in rows.tolist():
            sent.setdefault(str(consumer), []).append([ordinal, redeliveries])
        state.dispatched = 0
        return sent

    def describe_state(self) -> Case:
        """Return the state of the dispatcher in the format of the golden files."""
        b, state = self.broker, self.broker.state[0]
        members = sorted(member.index for member in self.members.members)
        of_each = b.consumers[["permits", "unacked", "blocked"]].tolist()
        window = np.arange(state.start, state.end)
        at = window & (len(b.log) - 1)
        waits = b.words[at >> 6] >> (at & 63).astype(np.uint64) & np.uint64(1)
        golden_state = {
            "mark_delete": int(state.mark_delete),
            "read_position": int(state.read_position),
            "individually_acked": window[(window > state.mark_delete) & b.log.acked[at]].tolist(),
            "replay": window[waits == 1].tolist(),
            "consumers_permits_unacked_blocked": {str(m): [*of_each[m]] for m in members},
        }
        if b.rule[0].dispatcher == DispatcherKind.KEY_SHARED_JOINED and b.rule[0].ordered:
            order, joined_at = b.consumers.joined[: state.joined].tolist(), b.consumers.joined_at.tolist()
            golden_state["recently_joined"] = {str(c): joined_at[c] for c in order}
        if b.rule[0].drains:
            drained = b.tracker[b.tracker.drainer >= 0][["hash", "drainer", "draining"]].tolist()
            golden_state["draining_hash_consumer_refcount"] = {
                str(hash_): [*of_hash] for hash_, *of_hash in sorted(drained) if hash_ >= 0
            }
        return golden_state
