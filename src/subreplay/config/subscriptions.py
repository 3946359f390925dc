"""Section ``subscriptions``: which subscriptions of the tables one run audits, and their own settings."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field

from subreplay.audit.terms import Isolation
from subreplay.config.fields import INT_31, Duration, Model, Name, PolicyName, ProfileName

ALL: Final = "all"
MOST: Final = 1_000
"""Entries of the list."""
_WILDCARDS: Final = frozenset("*?[")


class Thresholds(Model):
    """The keys of section ``liveness`` in which a subscription differs."""

    stalled_after: Duration | None = None
    stuck_after: Duration | None = None
    starved_after: Duration | None = None
    late_after: Duration | None = None
    max_unacked_per_consumer: Annotated[int, Field(ge=0, le=INT_31)] = 0
    max_unacked_per_subscription: Annotated[int, Field(ge=0, le=INT_31)] = 0


class SubscriptionEntry(Model, defer_build=False):
    """Subscriptions whose names and topics match two patterns (``*``, ``?``, ``[…]``), and the settings that replace
    those of sections ``subscription`` and ``liveness`` for them. ``owner``: who answers for them."""

    name: Name = "*"
    topic: Name = "*"
    owner: str = ""
    policy: PolicyName | None = None
    profile: ProfileName | None = None
    options: dict[str, Any] | None = None
    isolation: Isolation | None = None
    liveness: Thresholds = Thresholds()

    def matches(self, name: str, topic: str) -> bool:
        """Return whether a subscription of the tables is one of these."""
        return fnmatchcase(name, self.name) and fnmatchcase(topic, self.topic)

    @property
    def changes(self) -> dict[str, Any]:
        """The keys of section ``subscription`` that it replaces. Another policy has no options of the run's policy."""
        keys = ("policy", "profile", "options", "isolation")
        found = {key: getattr(self, key) for key in keys if key in self.model_fields_set}
        return {"options": {}, **found} if "policy" in found else found

    @property
    def thresholds(self) -> dict[str, Any]:
        """The keys of section ``liveness`` that it replaces."""
        return {key: getattr(self.liveness, key) for key in self.liveness.model_fields_set}

    @property
    def words(self) -> str:
        """Its patterns, in words."""
        return self.name if self.topic == "*" else f"{self.name} on {self.topic}"

    @property
    def is_name(self) -> bool:
        """Whether it names one subscription, and no pattern."""
        return not _WILDCARDS & {*self.name}


def _parse_entries(given: Any) -> Any:
    """Convert ``all`` to a list, and each text of a list to an entry with that pattern of names."""
    if given == ALL:
        return [{}]
    if given is None or isinstance(given, tuple):
        return given
    if not isinstance(given, list) or not given:
        raise ValueError(f"must be {ALL!r}, or a list of names, patterns and settings: lines that begin with -")
    return [{"name": entry} if isinstance(entry, str) else entry for entry in given]


_Entries = Annotated[list[Name | SubscriptionEntry], Field(min_length=1, max_length=MOST)]
Subscriptions = Annotated[
    tuple[SubscriptionEntry, ...],
    Field(max_length=MOST),
    BeforeValidator(_parse_entries, json_schema_input_type=Literal["all"] | _Entries | None),
]
