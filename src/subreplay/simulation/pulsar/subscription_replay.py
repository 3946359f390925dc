"""Predict deliveries from the log and the members: a model says what consumers do, and the dispatcher what they
receive.

Entries are a stream of arrays that is read only as far as needed, so that memory holds the in-flight messages.
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
from subreplay.simulation.pulsar.broker.broker_operations import count_free_window
from subreplay.simulation.pulsar.broker.broker_records import NEVER, Records, copy_records, create_records
from subreplay.simulation.pulsar.broker.broker_state import Broker, create_broker, grow_window
from subreplay.simulation.pulsar.broker.dispatch_rules import DispatchSettings
from subreplay.simulation.pulsar.clients.client_permits import request_permits
from subreplay.simulation.pulsar.clients.client_state import (
    WAIT,
    Clients,
    add_client,
    create_clients,
    grow_intervals,
    grow_marks,
    grow_messages,
    grow_origins,
    grow_producers,
    grow_rows,
    grow_timers,
)
from subreplay.simulation.pulsar.clients.in_flight import advance_interval
from subreplay.simulation.pulsar.clients.log_intake import PUBLISHED
from subreplay.simulation.pulsar.clients.recorded_waits import write_open_waits
from subreplay.simulation.pulsar.clients.redeliveries import remove_client
from subreplay.simulation.pulsar.consumer_model import Prediction, find_nack_rule
from subreplay.simulation.pulsar.dispatcher_choice import build_options
from subreplay.simulation.pulsar.event_loop import ReplayLoopStop, run_until
from subreplay.simulation.pulsar.pending_rows import write_in_flight, write_pending
from subreplay.simulation.pulsar.reenact import MemberChange, iterate_changes


class BacklogCounts(NamedTuple):
    """Counts of each interval in which anything happened, including retry letters.

    The backlog after an interval is the sum, up to it, of the differences of the two counts.
    """

    starts: NDArray[np.int64]  # ns
    published: NDArray[np.int64]  # messages
    settled: NDArray[np.int64]


class SubscriptionReplay:
    """The replay of one subscription on one topic or partition, under a timeline of its members.

    ``entries`` are arrays of ``PUBLISHED`` in order. Draw ``predict_deliveries`` first; all other results are complete
    after it. Memory holds the in-flight messages, two numbers for each interval, and the waits.
    """

    def __init__(
        self,
        timeline: Timeline,
        entries: Iterable[Records],
        prediction: Prediction,
        settings: DispatchSettings | None = None,
    ) -> None:
        self.timeline, self.prediction = timeline, prediction
        self.broker: Broker = create_broker(
            build_options(timeline.policy, settings, batch_index_acks=prediction.batch_index_acks)
        )
        filters = timeline.policy.serving == "filtered"
        nacks = find_nack_rule(timeline.policy.profile)
        self.clients: Clients = create_clients(prediction, nacks, filters, len(self.broker.log))
        self._entries = iter(entries)
        self._rows = create_records(0, PUBLISHED)
        self._cursor = np.zeros(3, np.int64)  # the next row; its ordinal; whether these rows are the last ones
        self._until = NEVER
        self._waits: list[Records] = [create_records(0, WAIT)]
        self._published: Counter[int] = Counter()  # messages by interval

    def predict_deliveries(self, until: int = NEVER) -> Iterator[Records]:
        """Yield arrays of ``DELIVERED``: each row when its delivery has ended, and pending ones at the end.

        ``until`` (ns) ends the replay early; by default everything that can happen is included.
        """
        self._until = until
        for change in iterate_changes(self.timeline):
            if change.at >= until:
                break
            yield from self._run_until(change.at)
            yield from self._apply_change(change)
        yield from self._run_until(until)
        yield from self._finish()

    def collect_waits(self) -> Records:
        """Return ``WAIT`` rows: which consumer waited for which. A wait that has not ended counts up to the end."""
        return np.concatenate(self._waits).view(np.recarray)

    def compute_backlog(self) -> BacklogCounts:
        """Return the messages published and settled, by interval."""
        width, counts = self.prediction.interval, self.clients.counts[: self.clients.totals[0].interval_at + 1]
        intervals = counts.interval.tolist()
        settled, letters = (dict(zip(intervals, counts[name].tolist(), strict=True)) for name in ("settled", "letters"))
        published = self._published + Counter(letters)
        at = sorted(interval for interval in {*settled, *published} if settled.get(interval) or published[interval])
        columns = [[count.get(interval, 0) for interval in at] for count in (published, settled)]
        return BacklogCounts(np.array(at, np.int64) * width, *np.array(columns, np.int64).reshape(2, -1))

    def find_first_needed(self) -> int:
        """Return the first entry ordinal that later rows may still be about."""
        c, state = self.clients, self.broker.state[0]
        window = np.arange(state.start, state.end) & (len(c.origins) - 1)
        ordinals = c.messages.ordinal[c.messages.used]
        return int(min(ordinals.min(initial=NEVER), c.origins.ordinal[window].min(initial=NEVER), self._cursor[1]))

    def _run_until(self, until: int) -> Iterator[Records]:
        while (need := run_until(self.broker, self.clients, self._rows, self._cursor, until)) != ReplayLoopStop.NOTHING:
            if need == ReplayLoopStop.ENTRIES:
                self._read_next_entries()
            else:
                yield from self._grow_arrays()
        if until != NEVER:
            self.broker.state[0].now = now = max(int(self.broker.state[0].now), until)
            while not advance_interval(self.clients, now):
                yield from self._grow_arrays()

    def _apply_change(self, change: MemberChange) -> Iterator[Records]:
        consumer, before = change.consumer, self._find_blocking_hashes()
        if change.joined:
            model = self.prediction.find_model(consumer.name)
            self.broker = join(self.broker, consumer, change.state)
            self.clients = add_client(self.clients, consumer.index, model, change.at)
            request_permits(self.broker, self.clients, consumer.index, max(model.receiver_queue_size, 1))
        else:
            remove_client(self.broker, self.clients, consumer.index)
            self.broker = leave(self.broker, consumer, change.state)
        yield from self._grow_arrays()
        if not self.prediction.persistent:
            self.broker.state[0].tasks = 0
        after = self._find_blocking_hashes()
        ended_waits = [
            (since, change.at, hash_, self._find_owner(hash_), blocker, entries)
            for hash_, (blocker, since, entries) in before.items()
            if hash_ not in after
        ]
        self._waits.append(np.array(ended_waits, WAIT).view(np.recarray))

    def _find_blocking_hashes(self) -> dict[int, tuple[int, int, int]]:
        """Return hashes that wait for a previous consumer: the consumer, since when, and how many entries."""
        if self.broker.state[0].drains == 0:
            return {}
        tracker = self.broker.tracker
        blocking = tracker[(tracker.hash != NOBODY) & (tracker.drainer != NOBODY) & tracker.blocked]
        columns = (blocking.hash, blocking.drainer, blocking.blocked_at, blocking.waiting)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return {hash_: (blocker, since, entries) for hash_, blocker, since, entries in rows}

    def _find_owner(self, slot: int) -> int:
        ranges = self.broker.ranges
        at = int(np.searchsorted(ranges.end, slot))
        return int(ranges[at].owner) if at < len(ranges) and ranges[at].start <= slot else NOBODY

    def _finish(self) -> Iterator[Records]:
        yield from self._grow_arrays()
        write_in_flight(self.broker, self.clients)
        done = np.zeros(1, np.int64)
        while True:
            if not write_pending(self.broker, self.clients, self._rows, self._cursor, self._until, done):
                yield from self._grow_arrays()
            elif self._cursor[2] == 0 and self._cursor[0] == len(self._rows):
                self._read_next_entries()
            else:
                break
        yield from self._grow_arrays()
        write_open_waits(self.broker, self.clients)
        now = int(self.broker.state[0].now)
        open_waits = [
            (since, now, hash_, self._find_owner(hash_), blocker, entries)
            for hash_, (blocker, since, entries) in self._find_blocking_hashes().items()
        ]
        self._waits.append(np.array(open_waits, WAIT).view(np.recarray))
        yield from self._take_rows()

    def _read_next_entries(self) -> None:
        rows = next(chain(self._entries, [None]))
        self._cursor[0], self._cursor[2] = 0, rows is None
        self._rows = create_records(0, PUBLISHED) if rows is None else rows.view(np.recarray)
        if not len(self._rows):
            return
        self.clients = grow_producers(self.clients, int(self._rows.producer.max()) + 1)
        seen = self._rows[: np.searchsorted(self._rows.at, self._until)]
        interval = seen.at // self.prediction.interval
        firsts = np.flatnonzero(np.diff(interval, prepend=-1))
        for first, messages in zip(firsts, np.add.reduceat(seen.messages, firsts, dtype=np.int64), strict=True):
            self._published[int(interval[first])] += int(messages)

    def _take_rows(self) -> Iterator[Records]:
        t, c = self.clients.totals[0], self.clients
        if t.waits:
            self._waits.append(copy_records(c.waits[: t.waits]))
            t.waits = 0
        if t.rows:
            yield copy_records(c.rows[: t.rows])
            t.rows = 0

    def _grow_arrays(self) -> Iterator[Records]:
        """Yield finished rows and enlarge the arrays that are too small."""
        yield from self._take_rows()
        t, state = self.clients.totals[0], self.broker.state[0]
        messages_needed = max(int(t.wanted), self._find_largest_next(), int(t.largest))
        if t.used + messages_needed > len(self.clients.messages):
            self.clients = grow_messages(self.clients, messages_needed)
        covered = int(state.end - state.mark_delete) * int(t.largest) if t.covers else 0
        self.clients = grow_rows(self.clients, covered + messages_needed)
        if 2 * t.timers > len(self.clients.timers):
            self.clients = grow_timers(self.clients)
        if t.interval_at + 1 == len(self.clients.counts):
            self.clients = grow_intervals(self.clients)
        if count_free_window(self.broker) <= self.broker.rule[0].max_read:
            self.broker = grow_window(self.broker, int(state.end - state.start) + self.broker.rule[0].max_read + 1)
            self.clients = grow_origins(self.clients, len(self.broker.log), int(state.start), int(state.end))
        first = self._find_first_mark()
        while messages_needed > 1 and t.mark_end - first + messages_needed > len(self.clients.marks):
            self.clients = grow_marks(self.clients, first)

    def _find_largest_next(self) -> int:
        messages_needed = self._rows.messages[self._cursor[0] :][: int(self.broker.rule[0].max_read)]
        return int(messages_needed.max(initial=0))

    def _find_first_mark(self) -> int:
        state, origins = self.broker.state[0], self.clients.origins
        is_nonempty = state.start < state.end
        return int(origins[state.start & (len(origins) - 1)].first if is_nonempty else self.clients.totals[0].mark_end)
