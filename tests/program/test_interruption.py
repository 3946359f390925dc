"""A signal cancels what a command has begun elsewhere, for as long as it has not ended."""

import os
import signal
import sys
import threading
from contextlib import suppress

import pytest

from subreplay.cli.interruption import Interruption


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_what_begins_after_the_first_cancelling_is_cancelled_too(number, code):
    cancelled, again = [], threading.Event()

    def cancel():
        cancelled.append(threading.current_thread())
        if len(cancelled) > 1:
            again.set()

    with Interruption().handle_signals() as interruption:
        interruption.cancel_with(cancel)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
        assert again.wait(30)
        assert interruption.code == code
    cancelled[0].join(30)
    assert not cancelled[0].is_alive()


def test_the_next_command_of_the_process_is_not_cancelled():
    cancelled, interruption = [], Interruption()
    with interruption.handle_signals():
        interruption.cancel_with(lambda: cancelled.append(threading.current_thread()))
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    with interruption.handle_signals():
        cancelled[0].join(30)
        assert not cancelled[0].is_alive()


def test_an_engine_that_cannot_be_interrupted_is_not_waited_for():
    def cancel():
        raise ConnectionError

    with Interruption().handle_signals() as interruption:
        interruption.cancel_with(cancel)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def start(interruption: Interruption, *signals: int, fails: bool = False) -> list[str]:
    """What there is of Java after each signal that arrives while it starts."""
    started = []

    def work() -> None:
        for number in signals:
            os.kill(os.getpid(), number)
            started.append("a part of Java")
        if fails:
            raise OSError

    with suppress(KeyboardInterrupt), interruption.handle_signals():
        interruption.run_uninterrupted(work)
    return started


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("times", [1, 2])
def test_signals_wait_for_java_to_have_started(number: int, times: int):
    """Java that is left while it starts does not end."""
    interruption = Interruption()
    assert start(interruption, *[number] * times) == ["a part of Java"] * times
    assert interruption.code == 128 + number


def test_java_that_does_not_start_hides_no_signal():
    interruption = Interruption()
    assert start(interruption, signal.SIGINT, fails=True) == ["a part of Java"]
    assert interruption.code == 130


def test_nobody_puts_another_handler_in_place_while_java_starts():
    """As pyspark does in the main thread, where it calls Java, which is being called already."""

    def as_pyspark() -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.kill(os.getpid(), signal.SIGINT)

    interruption = Interruption()
    with pytest.raises(KeyboardInterrupt), interruption.handle_signals():
        interruption.run_uninterrupted(as_pyspark)
    assert interruption.code == 130


class HalfMade:
    def __del__(self):
        raise AttributeError


def test_what_was_half_made_says_nothing_after_a_signal(monkeypatch):
    said: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    with Interruption().handle_signals():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        HalfMade()
    assert not said
    HalfMade()
    assert said
