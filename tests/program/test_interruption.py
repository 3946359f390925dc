"""A signal cancels what a command has begun elsewhere, for as long as it has not ended."""

import os
import signal
import threading

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


def test_a_signal_waits_for_java_to_have_started() -> None:
    """Java that is left while it starts does not end."""
    interruption, started = Interruption(), []

    def start() -> None:
        with interruption.expected(), interruption.deferred():
            signal.raise_signal(signal.SIGINT)
            started.append("Java")

    with pytest.raises(KeyboardInterrupt):
        start()
    assert started
    assert interruption.code == 130
