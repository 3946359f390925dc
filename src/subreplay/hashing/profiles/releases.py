"""The profile of each release, and how the release differs from it."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from subreplay.hashing.profiles import (
    KAFKA_2_3,
    KAFKA_4_0,
    KAFKA_4_1,
    KAFKA_4_2,
    KAFKA_4_4,
    PULSAR_2_10,
    PULSAR_3_2,
    PULSAR_4_0,
    PULSAR_4_2,
    PULSAR_5_0,
)

_OLD_RING_DIFFERENCE = (
    "failover of topics without partitions and redelivery counts follow pulsar-3.2, "
    "but the consistent-hash ring follows pulsar-2.10"
)
_OWN_RING_DIFFERENCE = (
    "3.0.7 and 3.3.2 introduced another consistent-hash ring (apache/pulsar#23327), and before 3.0.3 the ring was that "
    "of pulsar-2.10"
)


class ReleaseMatch(NamedTuple):
    """The profile for a release from ``first`` on; ``differs`` is empty if the release has its own profile."""

    first: tuple[int, ...]
    profile: str
    differs: str


RELEASE_MATCHES: Final[Mapping[str, Sequence[ReleaseMatch]]] = {
    "pulsar": (
        ReleaseMatch(
            (0,), PULSAR_2_10, "releases before 2.8 were not examined; before 2.10 auto-split is the default selector"
        ),
        ReleaseMatch(
            (2, 8),
            PULSAR_2_10,
            "auto-split is the default selector, and when one of two consumers with equal names leaves, the ring loses "
            "the points of both",
        ),
        ReleaseMatch((2, 10), PULSAR_2_10, ""),
        ReleaseMatch((2, 11), PULSAR_2_10, "all chunks of a message go to one consumer of a Shared subscription"),
        ReleaseMatch((3, 0), PULSAR_2_10, _OLD_RING_DIFFERENCE),
        ReleaseMatch((3, 0, 3), PULSAR_3_2, ""),
        ReleaseMatch((3, 0, 7), PULSAR_3_2, _OWN_RING_DIFFERENCE),
        ReleaseMatch((3, 1), PULSAR_2_10, _OLD_RING_DIFFERENCE),
        ReleaseMatch((3, 2, 0), PULSAR_2_10, _OLD_RING_DIFFERENCE),
        ReleaseMatch((3, 2, 1), PULSAR_3_2, ""),
        ReleaseMatch((3, 3), PULSAR_3_2, "this release was not compared with the profile"),
        ReleaseMatch((3, 3, 2), PULSAR_3_2, _OWN_RING_DIFFERENCE),
        ReleaseMatch((4, 0), PULSAR_4_0, ""),
        ReleaseMatch((4, 1), PULSAR_4_0, "this release lies between 4.0 and 4.2 and was not compared with the profile"),
        ReleaseMatch((4, 2), PULSAR_4_2, ""),
        ReleaseMatch((4, 3), PULSAR_4_2, "this release is later than 4.2 and was not compared with the profile"),
        ReleaseMatch((5, 0), PULSAR_5_0, ""),
        ReleaseMatch((5, 1), PULSAR_5_0, "this release is later than 5.0 and was not compared with the profile"),
    ),
    "kafka": (
        ReleaseMatch((0,), KAFKA_2_3, "releases before 2.3 were not examined"),
        ReleaseMatch((2, 3), KAFKA_2_3, ""),
        ReleaseMatch(
            (2, 4), KAFKA_4_0, "assignors use racks only since 3.5, and the sticky assignor may make other assignments"
        ),
        ReleaseMatch((3, 5), KAFKA_4_0, "this release was not compared with the profile"),
        ReleaseMatch((4, 0), KAFKA_4_0, ""),
        ReleaseMatch((4, 1), KAFKA_4_1, ""),
        ReleaseMatch((4, 2), KAFKA_4_2, ""),
        ReleaseMatch(
            (4, 3), KAFKA_4_4, "this release has the assignment interval of kafka-4.4, but was not compared with it"
        ),
        ReleaseMatch((4, 4), KAFKA_4_4, ""),
        ReleaseMatch((4, 5), KAFKA_4_4, "this release is later than 4.4 and was not compared with the profile"),
    ),
}
"""By system, in the order of releases. Read from the classes of Pulsar 2.7.5, 2.8.1, 2.10.4, 3.0.2, 3.0.7, 3.2.0,
3.2.3, 4.0.8, 4.2.4 and 5.0.1. The ring changed with apache/pulsar#22053 (3.0.3, 3.2.1), the default selector with
PIP-119 (2.10), chunks with apache/pulsar#16202 (2.11), failover with apache/pulsar#19502 (3.0)."""


def find_nearest_profile(system: str, version: str) -> tuple[str, str]:
    """Return the profile nearest to a release (``5.0.1``), and a sentence if the release may differ from it, else "".

    >>> find_nearest_profile("pulsar", "3.2.3")
    ('pulsar-3.2', '')
    >>> find_nearest_profile("kafka", "4.3.0")[0]
    'kafka-4.4'
    """
    matches = RELEASE_MATCHES[system]
    number = tuple(map(int, re.findall(r"\d+", version)[:3]))
    if not number:
        return matches[
            -1
        ].profile, f"Cannot read {version!r} as a release of {system}, so the profile may be wrong. Set the profile."
    number += (99,) if len(number) == 2 else ()  # as its latest patch
    match = matches[max(bisect_right(matches, number, key=lambda each: each.first) - 1, 0)]
    if not match.differs:
        return match.profile, ""
    return match.profile, (
        f"{system} {version} has no profile of its own. The nearest is {match.profile}; what differs: {match.differs}."
    )


def describe_nearest_profile(profile: str) -> str:
    """Describe the nearest profile if the name is a release of a known system, else return ""."""
    named = re.fullmatch(r"(pulsar|kafka)-(\d+(?:\.\d+)*)", profile)
    if named is None:
        return ""
    nearest, sentence = find_nearest_profile(named[1], named[2])
    return sentence or f"The profile of {named[1]} {named[2]} is {nearest}."
