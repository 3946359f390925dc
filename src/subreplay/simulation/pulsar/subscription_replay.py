"""Predict: the log and the members are given; a model of the consumers says what they do, the dispatcher who gets what.

Entries come as a stream of arrays and are read no further than they are needed, so that memory holds what is in flight.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from subreplay.rows.model.range_table import NOBODY
from subreplay.semantics.timelines.timeline import Timeline
from subreplay.simulation.pulsar.broker.broker_membership import join, leave
from subreplay.simulation.pulsar.broker.broker_operations import room
from subreplay.simulation.pulsar.broker.broker_records import NEVER, Records, copied, empty_records
from subreplay.simulation.pulsar.broker.broker_state import Broker, new_broker, with_window
from subreplay.simulation.pulsar.broker.dispatch_rules import Settings
from subreplay.simulation.pulsar.clients.client_permits import ask
from subreplay.simulation.pulsar.clients.client_state import (
    WAIT,
    Clients,
    new_clients,
    with_client,
    with_intervals,
    with_marks,
    with_messages,
    with_origins,
    with_producers,
    with_rows,
    with_timers,
)
from subreplay.simulation.pulsar.clients.in_flight import keep_time
from subreplay.simulation.pulsar.clients.log_intake import PUBLISHED
from subreplay.simulation.pulsar.clients.recorded_waits import open_waits
from subreplay.simulation.pulsar.clients.redeliveries import give_up_client
from subreplay.simulation.pulsar.consumer_model import Prediction, nack_rule
from subreplay.simulation.pulsar.dispatcher_choice import options_of
from subreplay.simulation.pulsar.event_loop import Need, play
from subreplay.simulation.pulsar.pending_rows import give_up_held, tell_pending
from subreplay.simulation.pulsar.reenact import Change, changes


class Backlog(NamedTuple):
    """What happened in each interval in which anything did, retry letters included.

    The backlog after one is the sum up to it of the difference of the two counts.
    """

    starts: NDArray[np.int64]  # ns
    published: NDArray[np.int64]  # messages
    settled: NDArray[np.int64]


class Replay:
    """One subscription on one topic or partition, under a timeline of its members.

    ``entries`` are arrays of ``PUBLISHED`` in order. Draw ``deliveries`` first: what else is asked for is complete when
    they are. Memory holds what is in flight, two numbers for each interval, and the waits.
    """

    def __init__(
        self, timeline: Timeline, entries: Iterable[Records], prediction: Prediction, settings: Settings = Settings()
    ) -> None:
        self.timeline, self.prediction = timeline, prediction
        self.broker: Broker = new_broker(
            options_of(timeline.policy, settings, batch_index_acks=prediction.batch_index_acks)
        )
        filters = timeline.policy.serving == "filtered"
        nacks = nack_rule(timeline.policy.profile)
        self.clients: Clients = new_clients(prediction, nacks, filters, len(self.broker.log))
        self._entries = iter(entries)
        self._rows = empty_records(0, PUBLISHED)
        self._cursor = np.zeros(3, np.int64)  # the next row; its ordinal; whether these rows are the last
        self._until = NEVER
        self._waits: list[Records] = [empty_records(0, WAIT)]
        self._published: Counter[int] = Counter()  # messages by interval

    def deliveries(self, until: int = NEVER) -> Iterator[Records]:
        """Arrays of ``DELIVERED``, each row when its delivery is over, and in the end what is pending.

        What happens before ``until`` (ns) is told; by default, all that can happen.
        """
        self._until = until
        for change in changes(self.timeline):
            if change.at >= until:
                break
            yield from self._play(change.at)
            yield from self._change(change)
        yield from self._play(until)
        yield from self._end()

    def waits(self) -> Records:
        """``WAIT`` rows: who waited for whom. A wait that was not over counts up to the end."""
        return np.concatenate(self._waits).view(np.recarray)

    def backlog(self) -> Backlog:
        """Messages that were published and settled, by interval."""
        width, counts = self.prediction.interval, self.clients.counts[: self.clients.totals[0].interval_at + 1]
        intervals = counts.interval.tolist()
        settled, letters = (dict(zip(intervals, counts[name].tolist(), strict=True)) for name in ("settled", "letters"))
        published = self._published + Counter(letters)
        at = sorted(interval for interval in {*settled, *published} if settled.get(interval) or published[interval])
        columns = [[count.get(interval, 0) for interval in at] for count in (published, settled)]
        return Backlog(np.array(at, np.int64) * width, *np.array(columns, np.int64).reshape(2, -1))

    def first_needed(self) -> int:
        """No more rows come of entries before this ordinal."""
        c, state = self.clients, self.broker.state[0]
        window = np.arange(state.start, state.end) & (len(c.origins) - 1)
        held = c.messages.ordinal[c.messages.used]
        return int(min(held.min(initial=NEVER), c.origins.ordinal[window].min(initial=NEVER), self._cursor[1]))

    def _play(self, until: int) -> Iterator[Records]:
        while (need := play(self.broker, self.clients, self._rows, self._cursor, until)) != Need.NOTHING:
            if need == Need.ENTRIES:
                self._next_entries()
            else:
                yield from self._make_room()
        if until != NEVER:
            self.broker.state[0].now = now = max(int(self.broker.state[0].now), until)
            while not keep_time(self.clients, now):
                yield from self._make_room()

    def _change(self, change: Change) -> Iterator[Records]:
        consumer, before = change.consumer, self._blocking_hashes()
        if change.joined:
            model = self.prediction.of(consumer.name)
            self.broker = join(self.broker, consumer, change.state)
            self.clients = with_client(self.clients, consumer.index, model, change.at)
            ask(self.broker, self.clients, consumer.index, max(model.receiver_queue_size, 1))
        else:
            give_up_client(self.broker, self.clients, consumer.index)
            self.broker = leave(self.broker, consumer, change.state)
        yield from self._make_room()
        if not self.prediction.persistent:
            self.broker.state[0].tasks = 0
        after = self._blocking_hashes()
        freed = [
            (since, change.at, hash_, self._owner(hash_), blocker, entries)
            for hash_, (blocker, since, entries) in before.items()
            if hash_ not in after
        ]
        self._waits.append(np.array(freed, WAIT).view(np.recarray))

    def _blocking_hashes(self) -> dict[int, tuple[int, int, int]]:
        """Hashes that wait for a former consumer: for whom, since when, and how many entries."""
        if self.broker.state[0].drains == 0:
            return {}
        tracker = self.broker.tracker
        blocking = tracker[(tracker.hash != NOBODY) & (tracker.drainer != NOBODY) & tracker.blocked]
        columns = (blocking.hash, blocking.drainer, blocking.blocked_at, blocking.waiting)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return {hash_: (blocker, since, entries) for hash_, blocker, since, entries in rows}

    def _owner(self, slot: int) -> int:
        ranges = self.broker.ranges
        at = int(np.searchsorted(ranges.end, slot))
        return int(ranges[at].owner) if at < len(ranges) and ranges[at].start <= slot else NOBODY

    def _end(self) -> Iterator[Records]:
        yield from self._make_room()
        give_up_held(self.broker, self.clients)
        done = np.zeros(1, np.int64)
        while True:
            if not tell_pending(self.broker, self.clients, self._rows, self._cursor, self._until, done):
                yield from self._make_room()
            elif self._cursor[2] == 0 and self._cursor[0] == len(self._rows):
                self._next_entries()
            else:
                break
        yield from self._make_room()
        open_waits(self.broker, self.clients)
        now = int(self.broker.state[0].now)
        still = [
            (since, now, hash_, self._owner(hash_), blocker, entries)
            for hash_, (blocker, since, entries) in self._blocking_hashes().items()
        ]
        self._waits.append(np.array(still, WAIT).view(np.recarray))
        yield from self._take_rows()

    def _next_entries(self) -> None:
        rows = next(chain(self._entries, [None]))
        self._cursor[0], self._cursor[2] = 0, rows is None
        self._rows = empty_records(0, PUBLISHED) if rows is None else rows.view(np.recarray)
        if not len(self._rows):
            return
        self.clients = with_producers(self.clients, int(self._rows.producer.max()) + 1)
        seen = self._rows[: np.searchsorted(self._rows.at, self._until)]
        interval = seen.at // self.prediction.interval
        firsts = np.flatnonzero(np.diff(interval, prepend=-1))
        for first, messages in zip(firsts, np.add.reduceat(seen.messages, firsts, dtype=np.int64), strict=True):
            self._published[int(interval[first])] += int(messages)

    def _take_rows(self) -> Iterator[Records]:
        t, c = self.clients.totals[0], self.clients
        if t.waits:
            self._waits.append(copied(c.waits[: t.waits]))
            t.waits = 0
        if t.rows:
            yield copied(c.rows[: t.rows])
            t.rows = 0

    def _make_room(self) -> Iterator[Records]:
        """Hand out what is there, and let grow what is too small."""
        yield from self._take_rows()
        t, state = self.clients.totals[0], self.broker.state[0]
        coming = max(int(t.wanted), self._largest_next(), int(t.largest))
        if t.used + coming > len(self.clients.messages):
            self.clients = with_messages(self.clients, coming)
        covered = int(state.end - state.mark_delete) * int(t.largest) if t.covers else 0
        self.clients = with_rows(self.clients, covered + coming)
        if 2 * t.timers > len(self.clients.timers):
            self.clients = with_timers(self.clients)
        if t.interval_at + 1 == len(self.clients.counts):
            self.clients = with_intervals(self.clients)
        if room(self.broker) <= self.broker.rule[0].max_read:
            self.broker = with_window(self.broker, int(state.end - state.start) + self.broker.rule[0].max_read + 1)
            self.clients = with_origins(self.clients, len(self.broker.log), int(state.start), int(state.end))
        first = self._first_mark()
        while coming > 1 and t.mark_end - first + coming > len(self.clients.marks):
            self.clients = with_marks(self.clients, first)

    def _largest_next(self) -> int:
        coming = self._rows.messages[self._cursor[0] :][: int(self.broker.rule[0].max_read)]
        return int(coming.max(initial=0))

    def _first_mark(self) -> int:
        state, origins = self.broker.state[0], self.clients.origins
        here = state.start < state.end
        return int(origins[state.start & (len(origins) - 1)].first if here else self.clients.totals[0].mark_end)
