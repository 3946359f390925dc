"""Errors that a user can fix. Each has the exit code that the command line returns."""

from __future__ import annotations


class SubreplayError(Exception):
    """The base of every error that is caught, printed as one message and turned into an exit code."""

    exit_code = 2


class ConfigError(SubreplayError):
    """The run's configuration is wrong: unknown key, illegal value, policy without that profile."""


class InputError(SubreplayError):
    """An input table or file cannot be used at all: missing, of another kind, or without a needed column."""


class EnvironmentFailed(SubreplayError):
    """The environment failed: an unreadable file, a full disk, Java, Spark, or a missing package."""

    exit_code = 4


class NoMatchingRows(SubreplayError):
    """The input tables contain no row that the run needs. The verdict is *unknown*, and there is no report."""

    exit_code = 3


class ConsumerRejected(SubreplayError):
    """A policy refuses a joining consumer, as the broker would. The state of the policy is unchanged.

    ``kind`` is the upstream exception's simple class name (``ConsumerBusyException``,
    ``ConsumerAssignException``), the message is the broker's reason.
    """

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(kind, reason)  # both, so that it can be pickled
        self.kind = kind
        self.reason = reason

    def __str__(self) -> str:
        return self.reason
