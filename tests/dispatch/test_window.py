"""The window of the log: it grows, moves on, and holds nothing that is done with."""

import numpy as np
import pytest

from subreplay.simulation.pulsar.broker.broker_state import grow_window
from tests.dispatch.stage import AUTO_SPLIT, SHARED, Stage


def test_memory_does_not_grow_with_the_log():
    stage = Stage(SHARED, "pulsar-4.0")
    stage.join("a", permits=10_000)
    for first in range(0, 5_000, 50):
        stage.publish("k " * 50)
        stage.ack(*range(first, first + 50))
    assert stage.mark_delete == 4_999
    assert len(stage.broker.log) == 64


def test_waiting_entries_survive_a_growing_window():
    stage = Stage(SHARED, "pulsar-3.2", max_read=1_000)
    stage.join("a", permits=40), stage.publish("k " * 40)
    stage.ack(*range(30))
    for _ in range(10):
        stage.publish("k " * 40)
    assert len(stage.broker.log) == 512
    stage.nack("a", 31, 39)
    assert stage.flow("a", 1_000) == "a:31,39," + ",".join(str(o) for o in range(40, 440))


@pytest.mark.parametrize("seed", range(3))
def test_a_wide_window_changes_nothing(seed):
    """Random histories under a window that starts small and one that never grows."""
    assert answers(seed, wide=False) == answers(seed, wide=True)


def answers(seed, wide):
    rng = np.random.default_rng(seed)
    stage = Stage(AUTO_SPLIT, "pulsar-4.0", max_read=10, look_ahead_per_consumer=40)
    if wide:
        stage.broker = grow_window(stage.broker, 8_192)
    outputs = [stage.join("a", permits=20), stage.join("b", permits=5)]
    in_flight = []
    for _ in range(300):
        command = rng.integers(5)
        if command == 0:
            outputs.append(stage.publish(" ".join(f"k{k}" for k in rng.integers(12, size=9))))
        elif command == 1:
            outputs.append(stage.flow("ab"[rng.integers(2)], int(rng.integers(1, 12))))
        elif command == 2 and in_flight:
            outputs.append(stage.ack(*[in_flight.pop(0) for _ in range(min(len(in_flight), 6))]))
        elif command == 3 and in_flight:
            outputs.append(stage.nack("a", in_flight[rng.integers(len(in_flight))]))
        else:
            outputs.append(stage.wait(20))
        in_flight += [int(part) for word in outputs[-1].split() for part in word.split(":")[1].split(",")]
    return outputs
