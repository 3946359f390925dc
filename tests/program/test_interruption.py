"""A signal cancels what a command has begun elsewhere, for as long as it has not ended."""

import os
import signal
import sys
import threading
from collections.abc import Iterator

import pytest

from subreplay.program.interruption import Interruption


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_what_begins_after_the_first_cancelling_is_cancelled_too(number, code):
    cancelled, again = [], threading.Event()

    def cancel():
        cancelled.append(threading.current_thread())
        if len(cancelled) > 1:
            again.set()

    with Interruption().expected() as interruption:
        interruption.cancelling(cancel)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
        assert again.wait(30)
        assert interruption.code == code
    cancelled[0].join(30)
    assert not cancelled[0].is_alive()


def test_who_cannot_be_asked_is_not_waited_for():
    def cancel():
        raise ConnectionError

    with Interruption().expected() as interruption:
        interruption.cancelling(cancel)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def start(interruption: Interruption, *signals: int, fails: bool = False) -> Iterator[str]:
    """What there is of Java after each signal that arrives while it starts."""
    with interruption.expected(), interruption.deferred():
        for number in signals:
            signal.raise_signal(number)
            yield "a part of Java"
        if fails:
            raise OSError


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("times", [1, 2])
def test_signals_wait_for_java_to_have_started(number: int, times: int):
    """Java that is left while it starts does not end."""
    interruption, started = Interruption(), []
    with pytest.raises(KeyboardInterrupt):
        started.extend(start(interruption, *[number] * times))
    assert started == ["a part of Java"] * times
    assert interruption.code == 128 + number


def test_java_that_does_not_start_hides_no_signal():
    interruption = Interruption()
    with pytest.raises(KeyboardInterrupt):
        list(start(interruption, signal.SIGINT, fails=True))
    assert interruption.code == 130


class HalfMade:
    def __del__(self):
        raise AttributeError


def test_what_was_half_made_says_nothing_after_a_signal(monkeypatch):
    said: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    with Interruption().expected():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        HalfMade()
    assert not said
    HalfMade()
    assert said
