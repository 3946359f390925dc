"""The queue that the dispatch replay is measured beside, as one writes it in SimPy.

Every message belongs to a consumer, who gets it in order while it has permits; it works on one message at a time, and
whenever it has taken half a receiver queue of messages it asks for as many more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import simpy


class Consumer:
    def __init__(self, env: simpy.Environment, number: int, service: int, queue: int) -> None:
        self.env, self.number, self.service, self.refill = env, number, service, queue // 2
        self.permits, self.taken = queue, 0
        self.queue = simpy.Store(env)
        self.waiting: deque[int] = deque()
        self.delivered: list[tuple[int, int, int]] = []
        env.process(self.work())

    def offer(self, message: int) -> None:
        self.waiting.append(message)
        self.deliver()

    def deliver(self) -> None:
        while self.waiting and self.permits > 0:
            message = self.waiting.popleft()
            self.permits -= 1
            self.delivered.append((message, self.number, self.env.now))
            self.queue.put(message)

    def work(self) -> Iterator[Any]:
        while True:
            yield self.queue.get()
            self.taken += 1
            if self.taken >= self.refill:
                self.permits += self.taken
                self.taken = 0
                self.deliver()
            yield self.env.timeout(self.service)


def publish(env: simpy.Environment, times: Sequence[int], owners: Sequence[int], to: list[Consumer]) -> Iterator[Any]:
    for message, (at, owner) in enumerate(zip(times, owners, strict=True)):
        if at > env.now:
            yield env.timeout(at - env.now)
        to[owner].offer(message)


def deliveries(
    times: Sequence[int], owners: Sequence[int], *, consumers: int, service: int, queue: int
) -> list[tuple[int, int, int]]:
    """(message, consumer, ns) of messages published at ``times`` (ns)."""
    env = simpy.Environment()
    all_of_them = [Consumer(env, number, service, queue) for number in range(consumers)]
    env.process(publish(env, times, owners, all_of_them))
    env.run()
    return [row for consumer in all_of_them for row in consumer.delivered]
