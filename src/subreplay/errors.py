"""Errors a user can act on. Each carries the exit code that the command line returns for it."""

from __future__ import annotations


class SubreplayError(Exception):
    """Base of every error that is caught, printed in one message and turned into an exit code."""

    exit_code = 2


class ConfigError(SubreplayError):
    """The run's configuration is wrong: unknown key, illegal value, policy without that profile."""


class InputError(SubreplayError):
    """An input table or file cannot be used at all: missing, of another kind, or without a needed column."""


class EnvironmentFailed(SubreplayError):
    """What the run needs failed: a file that cannot be read or written, a full disk, Java, Spark, a missing package."""

    exit_code = 4


class NothingThere(SubreplayError):
    """The input tables have nothing of what the run asks for, so it could find nothing: *unknown*, and no report."""

    exit_code = 3


class ConsumerRejected(SubreplayError):
    """A policy refuses a joining consumer, as the broker would; its state is unchanged.

    ``kind`` is the upstream exception's simple class name (``ConsumerBusyException``,
    ``ConsumerAssignException``), the message is the broker's reason.
    """

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(kind, reason)  # both, so that it can be pickled
        self.kind = kind
        self.reason = reason

    def __str__(self) -> str:
        return self.reason
