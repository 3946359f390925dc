"""Match findings with known upstream faults: the tickets of ``upstream_faults.yaml``.

A finding matches a ticket only if all conditions of the ticket's entry apply: the rule, the policy, the profile (which
represents a release line), every circumstance, and the cause or exemption of the finding. An entry names the upstream
source of its affected and fixed releases. What upstream does not state is not guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from subreplay.audit import findings
from subreplay.audit.codes import Code, Exemption
from subreplay.audit.explain.causes import UNEXPLAINED
from subreplay.hashing.profiles import KEYLESS
from subreplay.semantics.policies import REGISTRY

FILE: Final = "upstream_faults.yaml"
_GITHUB: Final = re.compile(r"([\w.-]+/[\w.-]+)#(\d+)")
_JIRA: Final = re.compile(r"KAFKA-\d+")


class Circumstance(str, Enum):
    """A condition beside rule, policy and profile, about the message of the finding or about the run."""

    DELAYED = findings.DELAYED
    CHUNK = findings.CHUNK
    NO_OWNER = findings.NO_OWNER
    BATCH = "batch"
    PARTITION = "partition"
    UNEXPLAINED = "unexplained"
    SEVERAL_CONSUMERS = "several_consumers"
    EQUAL_NAMES = "equal_names"
    CONSUMER_LEFT = "consumer_left"
    EVERYBODY_LEFT = "everybody_left"
    STRICT_DELAYS = "strict_delays"
    COMPACTED = "compacted"
    DEDUPLICATION = "deduplication"
    DEAD_LETTERS = "dead_letters"
    UNACKED_LIMIT = "unacked_limit"

    @property
    def meaning(self) -> str:
        """The circumstance as a clause."""
        return _MEANINGS[self]


_MEANINGS: Final[Mapping[Circumstance, str]] = {
    Circumstance.DELAYED: "the message was published with a delay",
    Circumstance.CHUNK: "the message is a chunk",
    Circumstance.NO_OWNER: "no connected consumer owned the message",
    Circumstance.BATCH: "the message is part of a batch",
    Circumstance.PARTITION: "the topic is partitioned",
    Circumstance.UNEXPLAINED: "no recorded event explains the finding",
    Circumstance.SEVERAL_CONSUMERS: "several consumers were connected at once",
    Circumstance.EQUAL_NAMES: "several consumers with equal names were connected",
    Circumstance.CONSUMER_LEFT: "a consumer left, or lost its connection",
    Circumstance.EVERYBODY_LEFT: "all consumers left at some instant, and some came back",
    Circumstance.STRICT_DELAYS: "the run says that delays are strict (topic.delivery_tick: 0s)",
    Circumstance.COMPACTED: "the run says that the subscription reads compacted (topic.compacted)",
    Circumstance.DEDUPLICATION: "the run says that the topic deduplicates (topic.deduplication)",
    Circumstance.DEAD_LETTERS: "the run names a dead letter policy (topic.dead_letter)",
    Circumstance.UNACKED_LIMIT: "the run lowers the limit of unacknowledged messages of a consumer or the subscription "
    "(liveness.max_unacked_per_consumer, liveness.max_unacked_per_subscription)",
}


def _check_names(what: str, known: Iterable[str], value: Any) -> Any:
    """Raise ``ValueError`` for an unknown name."""
    unknown = sorted(set(value) - set(known)) if isinstance(value, (list, tuple)) else []
    if unknown:
        raise ValueError(f"no such {what}: {', '.join(map(str, unknown))}")
    return value


def make_ticket_url(ticket: str) -> str:
    """Return the URL of a GitHub ticket or of a ticket in Kafka's tracker.

    >>> make_ticket_url("apache/pulsar#23870")
    'https://github.com/apache/pulsar/issues/23870'
    """
    if found := _GITHUB.fullmatch(ticket):
        return f"https://github.com/{found[1]}/issues/{found[2]}"
    return f"https://issues.apache.org/jira/browse/{ticket}"


def _check_ticket(value: str) -> str:
    """Raise ``ValueError`` if a value is not a ticket."""
    if not _GITHUB.fullmatch(value) and not _JIRA.fullmatch(value):
        raise ValueError("not a ticket; write owner/repository#number or KAFKA-number")
    return value


def _parse_members(of: type[Code] | type[Exemption]) -> BeforeValidator:
    """Parse names of an enumeration as its members."""
    return BeforeValidator(
        lambda value: tuple(of[name] for name in _check_names(of.__name__.lower(), of.__members__, value))
    )


def _check_policies(value: tuple[str, ...]) -> tuple[str, ...]:
    """Raise ``ValueError`` for an unknown policy family."""
    for family in value:
        if not any(_is_within_family(name, family) for name in REGISTRY):
            raise ValueError(f"no such policy: {family}")
    return value


def _is_within_family(policy: str, family: str) -> bool:
    """Return whether a policy has this name or begins with it: ``pulsar.key_shared`` covers all Key_Shared policies."""
    return policy == family or policy.startswith(f"{family}.")


def _list_names(names: tuple[str, ...]) -> str:
    """Format names as a list: "a, b and c"."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


Text = Annotated[str, Field(min_length=1)]
Sentence = Annotated[str, Field(pattern=r"\.$")]  # a "#" behind a space would have begun a comment
Names = tuple[Text, ...]


class UpstreamFault(BaseModel):
    """An entry of ``upstream_faults.yaml``, which the docs page and the report show.

    ``fixed`` are the releases with the fix. ``unknown`` means that upstream names none or that the ticket is open. ``by
    design`` means that upstream documents the behaviour and will not change it. ``causes`` are parts of the finding's
    cause; one of them must occur in it. A finding with an exemption matches only if ``exemptions`` contains it.
    ``evidence`` names the upstream source of the releases.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    ticket: Annotated[str, AfterValidator(_check_ticket)]
    title: Text
    attribution: Literal["broker", "client library", "consumer application", "producer", "operator"]
    codes: Annotated[tuple[Code, ...], Field(min_length=1), _parse_members(Code)]
    policies: Annotated[Names, Field(min_length=1), AfterValidator(_check_policies)]
    profiles: Annotated[
        Names, Field(min_length=1), BeforeValidator(lambda value: _check_names("profile", KEYLESS, value))
    ]
    circumstances: tuple[Circumstance, ...] = ()
    causes: Names = ()
    exemptions: Annotated[tuple[Exemption, ...], _parse_members(Exemption)] = ()
    affected: Text | None
    fixed: Annotated[Names, Field(min_length=1)] | Literal["unknown", "by design"]
    evidence: Sentence
    advice: Sentence

    @property
    def url(self) -> str:
        """The URL of the ticket."""
        return make_ticket_url(self.ticket)

    @property
    def condition_count(self) -> int:
        """The number of circumstances, causes and exemptions that a finding must match."""
        return len(self.circumstances) + bool(self.causes) + bool(self.exemptions)

    @property
    def releases(self) -> str:
        """A sentence with the affected and the fixed releases."""
        unnamed = "Upstream does not name the affected releases"
        return f"{unnamed if self.affected is None else f'Affects {self.affected}'}; {self._fix_text}."

    @property
    def _fix_text(self) -> str:
        if self.fixed == "unknown":
            return "no release that fixes it is known"
        return "documented behaviour" if self.fixed == "by design" else f"fixed in {_list_names(self.fixed)}"

    @property
    def sentence(self) -> str:
        """The text that a report adds to a matching finding."""
        return f"looks like {self.ticket}, {self._fix_text}"

    @property
    def _exemption_texts(self) -> tuple[str | None, ...]:
        """The exemption texts of a matching finding; ``(None,)`` if no exemption is named."""
        return tuple(exemption.sentence for exemption in self.exemptions) or (None,)

    def matches(self, run: RunCircumstances, row: Mapping[str, Any]) -> bool:
        """Return whether a finding, a row of table ``violations``, matches this ticket."""
        return (
            Code[row["code"]] in self.codes
            and run.profile in self.profiles
            and any(_is_within_family(run.policy, family) for family in self.policies)
            and run.circumstances | find_circumstances(row) >= set(self.circumstances)
            and (not self.causes or any(part in row["cause"] for part in self.causes))
            and row["excuse"] in self._exemption_texts
        )


@dataclass(frozen=True)
class RunCircumstances:
    """The policy and the profile of a run, and the circumstances that apply to all its findings."""

    policy: str
    profile: str
    circumstances: frozenset[Circumstance] = frozenset()


def find_circumstances(row: Mapping[str, Any]) -> frozenset[Circumstance]:
    """Return the circumstances of one finding, a row of table ``violations``."""
    holds = {
        Circumstance.BATCH: row["batch_index"] >= 0,
        Circumstance.PARTITION: row["partition"] >= 0,
        Circumstance.UNEXPLAINED: row["cause"] == UNEXPLAINED,
    }
    recorded = frozenset(Circumstance(name) for name in (row["circumstances"] or "").split(findings.SEPARATOR) if name)
    return recorded | frozenset(name for name, true in holds.items() if true)


def parse_faults(text: str) -> tuple[UpstreamFault, ...]:
    """Parse the entries of a file, in its order.

    Raises ``ValueError`` for an unknown key, rule, policy, profile or circumstance, and for two entries of one ticket.
    """
    found = tuple(UpstreamFault.model_validate(entry) for entry in yaml.safe_load(text))
    tickets = [fault.ticket for fault in found]
    twice = sorted({ticket for ticket in tickets if tickets.count(ticket) > 1})
    if twice:
        raise ValueError(f"two entries of one ticket: {', '.join(twice)}")
    return found


@cache
def load_faults() -> tuple[UpstreamFault, ...]:
    """Return the entries of the file in this package."""
    return parse_faults(files("subreplay.audit.explain").joinpath(FILE).read_text(encoding="utf-8"))


def find_matching_faults(run: RunCircumstances, row: Mapping[str, Any]) -> tuple[UpstreamFault, ...]:
    """Return the tickets that a finding, a row of table ``violations``, matches; those with most conditions come
    first."""
    fitting = (fault for fault in load_faults() if fault.matches(run, row))
    return tuple(sorted(fitting, key=lambda fault: -fault.condition_count))
