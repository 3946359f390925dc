"""Named behaviours: the differences between the documents and the releases, as data.

A profile is the name of one consistent behaviour, and never a version to compare with. A rule that only one policy
needs (such as the ring of consistent hashing) is in a ``ProfileTable`` of that policy. A release that is based on
another one has an entry only where it deviates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from subreplay.errors import ConfigError

DOCUMENTED = "documented"
PULSAR_2_10 = "pulsar-2.10"
PULSAR_3_2 = "pulsar-3.2"
PULSAR_4_0 = "pulsar-4.0"
PULSAR_4_2 = "pulsar-4.2"
PULSAR_5_0 = "pulsar-5.0"
KAFKA_2_3 = "kafka-2.3"
KAFKA_4_0 = "kafka-4.0"
KAFKA_4_1 = "kafka-4.1"
KAFKA_4_2 = "kafka-4.2"
KAFKA_4_4 = "kafka-4.4"

LATEST_PROFILES: Final[Mapping[str, str]] = {"kafka": KAFKA_4_4, "pulsar": PULSAR_4_0}
"""The profile of each system that is the default everywhere: the latest one, of Pulsar the latest long-term release."""
BASED_ON: Final[Mapping[str, str]] = {
    PULSAR_2_10: PULSAR_3_2,
    PULSAR_4_0: PULSAR_3_2,
    PULSAR_4_2: PULSAR_4_0,
    PULSAR_5_0: PULSAR_4_2,
    KAFKA_4_1: KAFKA_4_0,
    KAFKA_4_2: KAFKA_4_1,
    KAFKA_4_4: KAFKA_4_2,
}
"""The release whose behaviour another one has, except for its deviations."""

Rule = TypeVar("Rule")


def _release_sort_key(profile: str) -> tuple[int, list[int]]:
    """Return a sort key: the documents first, then each system's releases from the oldest on."""
    system, _, release = profile.partition("-")
    return ("documented", "pulsar", "kafka").index(system), [int(part) for part in release.split(".") if part]


def get_latest_profile(policy: str) -> str:
    """Return the default profile of a policy.

    >>> get_latest_profile("kafka.range"), get_latest_profile("shared")
    ('kafka-4.4', 'pulsar-4.0')
    """
    return LATEST_PROFILES["kafka" if policy.startswith("kafka.") else "pulsar"]


class ProfileTable(Mapping[str, Rule]):
    """A rule by profile. A profile without an entry uses the rule of the profile that it is based on.

    >>> table = ProfileTable({PULSAR_3_2: "old", PULSAR_4_0: "new"})
    >>> table[PULSAR_4_2], KAFKA_4_0 in table, list(table)
    ('new', False, ['pulsar-2.10', 'pulsar-3.2', 'pulsar-4.0', 'pulsar-4.2', 'pulsar-5.0'])
    """

    def __init__(self, rules_by_name: Mapping[str, Rule]) -> None:
        self._rules = rules_by_name

    def __getitem__(self, profile: str) -> Rule:
        while profile not in self._rules:
            profile = BASED_ON[profile]
        return self._rules[profile]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._rules, *(each for each in BASED_ON if each in self)}, key=_release_sort_key))

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True, slots=True)
class KeylessRule:
    """The sticky key of a message that has neither an ordering key nor a key.

    With ``per_message``, such messages are spread by ``<producer>-<sequence id>``. Otherwise all share the
    ``constant``, which is also the key of a message with an unreadable key.
    """

    constant: bytes
    per_message: bool = False


KEYLESS: Mapping[str, KeylessRule] = ProfileTable(
    {
        DOCUMENTED: KeylessRule(b"NON_KEY"),  # row L-BATCH-3
        PULSAR_3_2: KeylessRule(b"NONE_KEY"),
        PULSAR_4_0: KeylessRule(b"NONE_KEY", per_message=True),
        KAFKA_2_3: KeylessRule(b""),  # keys decide nothing in a group, but the reports still distinguish keys
        KAFKA_4_0: KeylessRule(b""),
    }
)


def get_rule(subject: str, rules: Mapping[str, Rule], profile: str) -> Rule:
    """Return the rule of ``subject`` (a policy's name, for the message) under ``profile``.

    Raises ConfigError that names the valid profiles, and for an unknown release the nearest one.
    """
    try:
        return rules[profile]
    except KeyError:
        from subreplay.hashing.profiles.releases import describe_nearest_profile  # which needs this module

        known = f"{subject} has no profile {profile!r}. Valid profiles: {', '.join(rules)}"
        system = profile.partition("-")[0]
        if system in ("kafka", "pulsar") and not any(name.startswith(f"{system}-") for name in rules):
            raise ConfigError(
                f"{known}. {profile} is a profile of {system.title()}, which is another system."
            ) from None
        raise ConfigError(". ".join(filter(None, (known, describe_nearest_profile(profile))))) from None
