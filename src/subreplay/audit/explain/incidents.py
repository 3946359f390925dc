"""Known upstream faults: the tickets of ``incidents.yaml``, and which of them a finding looks like.

A finding looks like a ticket only where everything fits that the ticket's entry names: the rule, the policy, the
profile (which stands for a release line), every circumstance, and the finding's cause or exemption. An entry says
where upstream states the releases that are affected and fixed; what upstream does not state is not guessed.
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

FILE: Final = "incidents.yaml"
_GITHUB: Final = re.compile(r"([\w.-]+/[\w.-]+)#(\d+)")
_JIRA: Final = re.compile(r"KAFKA-\d+")


class Circumstance(str, Enum):
    """What must hold beside rule, policy and profile: of the finding's message, or of the run."""

    DELAYED = findings.DELAYED
    CHUNK = findings.CHUNK
    UNOWNED = findings.UNOWNED
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
    Circumstance.UNOWNED: "no connected consumer owned the message",
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


def _names(what: str, known: Iterable[str], value: Any) -> Any:
    """Refuse a name that is not known."""
    unknown = sorted(set(value) - set(known)) if isinstance(value, (list, tuple)) else []
    if unknown:
        raise ValueError(f"no such {what}: {', '.join(map(str, unknown))}")
    return value


def ticket_url(ticket: str) -> str:
    """Where a ticket of GitHub or of Kafka's tracker is.

    >>> ticket_url("apache/pulsar#23870")
    'https://github.com/apache/pulsar/issues/23870'
    """
    if found := _GITHUB.fullmatch(ticket):
        return f"https://github.com/{found[1]}/issues/{found[2]}"
    return f"https://issues.apache.org/jira/browse/{ticket}"


def _ticket(value: str) -> str:
    if not _GITHUB.fullmatch(value) and not _JIRA.fullmatch(value):
        raise ValueError("not a ticket; write owner/repository#number or KAFKA-number")
    return value


def _members(of: type[Code] | type[Exemption]) -> BeforeValidator:
    """Names of an enumeration as its members."""
    return BeforeValidator(lambda value: tuple(of[name] for name in _names(of.__name__.lower(), of.__members__, value)))


def _policies(value: tuple[str, ...]) -> tuple[str, ...]:
    for family in value:
        if not any(_within(name, family) for name in REGISTRY):
            raise ValueError(f"no such policy: {family}")
    return value


def _within(policy: str, family: str) -> bool:
    """Whether a policy is the named one, or one below it: ``pulsar.key_shared`` stands for all of Key_Shared."""
    return policy == family or policy.startswith(f"{family}.")


def _listed(names: tuple[str, ...]) -> str:
    """Names as a list in words."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


Text = Annotated[str, Field(min_length=1)]
Sentence = Annotated[str, Field(pattern=r"\.$")]  # a "#" behind a space would have begun a comment
Names = tuple[Text, ...]


class Incident(BaseModel):
    """An entry of ``incidents.yaml``; a docs page and the report show it.

    ``fixed`` are the releases that fix it. ``unknown``: upstream names none, or the ticket is open. ``by design``:
    upstream documents the behaviour and will not change it. ``causes`` are parts of the finding's cause, of which one
    has to fit. A finding with an exemption fits only where it is one of ``exemptions``. ``evidence`` says where
    upstream states the releases.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    ticket: Annotated[str, AfterValidator(_ticket)]
    title: Text
    attribution: Literal["broker", "client library", "consumer application", "producer", "operator"]
    codes: Annotated[tuple[Code, ...], Field(min_length=1), _members(Code)]
    policies: Annotated[Names, Field(min_length=1), AfterValidator(_policies)]
    profiles: Annotated[Names, Field(min_length=1), BeforeValidator(lambda value: _names("profile", KEYLESS, value))]
    circumstances: tuple[Circumstance, ...] = ()
    causes: Names = ()
    exemptions: Annotated[tuple[Exemption, ...], _members(Exemption)] = ()
    affected: Text | None
    fixed: Annotated[Names, Field(min_length=1)] | Literal["unknown", "by design"]
    evidence: Sentence
    advice: Sentence

    @property
    def url(self) -> str:
        """Where the ticket is."""
        return ticket_url(self.ticket)

    @property
    def demands(self) -> int:
        """How many circumstances, causes and excuses it asks of a finding."""
        return len(self.circumstances) + bool(self.causes) + bool(self.exemptions)

    @property
    def releases(self) -> str:
        """Which releases are affected and fixed, as a sentence."""
        unnamed = "Upstream does not name the affected releases"
        return f"{unnamed if self.affected is None else f'Affects {self.affected}'}; {self._fix}."

    @property
    def _fix(self) -> str:
        if self.fixed == "unknown":
            return "no release that fixes it is known"
        return "documented behaviour" if self.fixed == "by design" else f"fixed in {_listed(self.fixed)}"

    @property
    def sentence(self) -> str:
        """What a finding that fits says."""
        return f"looks like {self.ticket}, {self._fix}"

    @property
    def _exemptions(self) -> tuple[str | None, ...]:
        """Of a finding that fits, in words; none where no excuse is named."""
        return tuple(exemption.sentence for exemption in self.exemptions) or (None,)

    def fits(self, setting: Setting, row: Mapping[str, Any]) -> bool:
        """Whether a finding, a row of table ``violations``, looks like it."""
        return (
            Code[row["code"]] in self.codes
            and setting.profile in self.profiles
            and any(_within(setting.policy, family) for family in self.policies)
            and setting.circumstances | circumstances_of(row) >= set(self.circumstances)
            and (not self.causes or any(part in row["cause"] for part in self.causes))
            and row["excuse"] in self._exemptions
        )


@dataclass(frozen=True)
class Setting:
    """What tickets ask of a run: its policy, its profile, and the circumstances that hold for all its findings."""

    policy: str
    profile: str
    circumstances: frozenset[Circumstance] = frozenset()


def circumstances_of(row: Mapping[str, Any]) -> frozenset[Circumstance]:
    """The circumstances of one finding, a row of table ``violations``."""
    holds = {
        Circumstance.BATCH: row["batch_index"] >= 0,
        Circumstance.PARTITION: row["partition"] >= 0,
        Circumstance.UNEXPLAINED: row["cause"] == UNEXPLAINED,
    }
    recorded = frozenset(Circumstance(name) for name in (row["circumstances"] or "").split(findings.SEPARATOR) if name)
    return recorded | frozenset(name for name, true in holds.items() if true)


def incidents_of(text: str) -> tuple[Incident, ...]:
    """The entries of a file, in its order. Raises ``ValueError`` for an unknown key, rule, policy, profile or
    circumstance, and for two entries of one ticket."""
    found = tuple(Incident.model_validate(entry) for entry in yaml.safe_load(text))
    tickets = [incident.ticket for incident in found]
    twice = sorted({ticket for ticket in tickets if tickets.count(ticket) > 1})
    if twice:
        raise ValueError(f"two entries of one ticket: {', '.join(twice)}")
    return found


@cache
def incidents() -> tuple[Incident, ...]:
    """The entries of the package's file."""
    return incidents_of(files("subreplay.audit.explain").joinpath(FILE).read_text(encoding="utf-8"))


def matching(setting: Setting, row: Mapping[str, Any]) -> tuple[Incident, ...]:
    """The tickets that a finding, a row of table ``violations``, looks like; those that ask most of it first."""
    fitting = (incident for incident in incidents() if incident.fits(setting, row))
    return tuple(sorted(fitting, key=lambda incident: -incident.demands))
