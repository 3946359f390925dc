"""A dispatcher on a stage: ``stage.publish("k1 k2")`` and the like answer with what was dispatched because of it.

An answer reads ``"a:0,1 b:2"``: consumers by name, their entries in order.
"""

from __future__ import annotations

from itertools import groupby

import numpy as np

from subreplay.hashing.murmur3 import MASK_31, murmur3_32
from subreplay.rows.model.rows import Consumer, Scope
from subreplay.semantics.policies import make_policy
from subreplay.simulation.pulsar.broker.broker_loop import find_next_timer, fire_timer, run_tasks
from subreplay.simulation.pulsar.broker.broker_membership import join, leave
from subreplay.simulation.pulsar.broker.broker_operations import (
    acknowledge,
    acknowledge_some,
    acknowledge_up_to,
    expire,
    finish_acknowledgements,
    finish_rejections,
    flow,
    notify_published,
    publish,
    reject,
    reject_all,
)
from subreplay.simulation.pulsar.broker.broker_records import NO_CHUNK
from subreplay.simulation.pulsar.broker.broker_state import create_broker, grow_window
from subreplay.simulation.pulsar.broker.dispatch_rules import MILLISECOND, DispatcherKind, DispatchSettings
from subreplay.simulation.pulsar.dispatcher_choice import build_options

SHARED, FAILOVER, EXCLUSIVE = "pulsar.shared", "pulsar.failover", "pulsar.exclusive"
AUTO_SPLIT = "pulsar.key_shared.auto_split"


class Stage:
    def __init__(self, name, profile, *, ordered=True, batch_index_acks=None, partition=-1, **settings):
        self.policy = make_policy(name, profile, **({} if ordered else {"allow_out_of_order": True}))
        options = build_options(self.policy, DispatchSettings(**settings), batch_index_acks=batch_index_acks)
        self.slots_are_hashes = options.dispatcher == DispatcherKind.KEY_SHARED_DRAINING
        self.broker = create_broker(options, window=64)
        self.state = self.policy.start(Scope("persistent://public/default/t", partition))
        self.names: list[str] = []

    def join(self, name, permits=1000, priority=0):
        consumer = Consumer(len(self.names), name, priority)
        self.names.append(name)
        self.state = self.policy.join(self.state, consumer)
        self.broker = join(self.broker, consumer, self.state)
        return self.flow(name, permits) if permits else self.answer()

    def leave(self, name):
        consumer = next(member for member in self.state.members if member.name == name)
        self.state = self.policy.leave(self.state, consumer)
        self.broker = leave(self.broker, consumer, self.state)
        return self.answer()

    def publish(self, keys, messages=1, deliver_at=0, chunked=NO_CHUNK, chunk_id=0, chunks=0):
        """One entry a key; ``deliver_at`` in ms."""
        window_size = self.broker.state[0].end - self.broker.state[0].start
        self.broker = grow_window(self.broker, int(window_size) + len(keys.split()))
        for key in keys.split():
            hash_ = murmur3_32(key.encode())
            slot = int(self.policy.compute_slots(np.array([hash_], np.uint32))[0])
            sticky = slot if self.slots_are_hashes else hash_ & MASK_31
            publish(self.broker, sticky, slot, messages, deliver_at * MILLISECOND, chunked, chunk_id, chunks)
        notify_published(self.broker, False)
        return self.answer()

    def flow(self, name, permits):
        flow(self.broker, self._index(name), permits)
        return self.answer()

    def ack(self, *ordinals):
        for ordinal in ordinals:
            acknowledge(self.broker, ordinal)
        finish_acknowledgements(self.broker)
        return self.answer()

    def ack_some(self, ordinal, messages):
        acknowledge_some(self.broker, ordinal, messages)
        finish_acknowledgements(self.broker)
        return self.answer()

    def ack_up_to(self, ordinal):
        acknowledge_up_to(self.broker, ordinal)
        return self.answer()

    def nack(self, name, *ordinals):
        for ordinal in ordinals:
            reject(self.broker, self._index(name), ordinal)
        finish_rejections(self.broker, self._index(name))
        return self.answer()

    def redeliver_all(self, name):
        reject_all(self.broker, self._index(name))
        return self.answer()

    def expire(self, ordinal):
        expire(self.broker, ordinal)
        return self.answer()

    def wait(self, ms):
        """Let time pass; timers go off as they are due."""
        state = self.broker.state[0]
        until = int(state.now) + ms * MILLISECOND
        run_tasks(self.broker)
        while find_next_timer(self.broker) <= until:
            fire_timer(self.broker)
            run_tasks(self.broker)
        state.now = until
        return self.answer()

    def answer(self):
        run_tasks(self.broker)
        self.rows = self.broker.dispatched[: self.broker.state[0].dispatched].copy()
        self.broker.state[0].dispatched = 0
        by_consumer = sorted(self.rows.tolist(), key=lambda row: row[2])
        groups = groupby(by_consumer, key=lambda row: row[2])
        return " ".join(f"{self.names[c]}:{','.join(str(row[0]) for row in rows)}" for c, rows in groups)

    @property
    def redeliveries(self):
        """The redelivery count of each entry of the last answer."""
        return {int(row.ordinal): int(row.redeliveries) for row in self.rows}

    @property
    def mark_delete(self):
        return int(self.broker.state[0].mark_delete)

    def consumer(self, name):
        return self.broker.consumers[self._index(name)]

    def _index(self, name):
        return len(self.names) - 1 - self.names[::-1].index(name)
