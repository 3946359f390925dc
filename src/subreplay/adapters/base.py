"""What an adapter is: it reads somebody's files into the canonical tables and leaves nothing out."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from subreplay.errors import ConfigError, InputError
from subreplay.rows.model.held import instead

if TYPE_CHECKING:
    import pyarrow as pa

    from subreplay.adapters.streams import Streamed


class Reason(NamedTuple):
    """Why a row does not fit the contract: the column, its value, the rule and what to do."""

    column: str
    value: str
    rule: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.column} = {self.value}: {self.rule} ({self.remedy})"


class Rejected(NamedTuple):
    """An input row in quarantine, with every reason."""

    table: str
    file: str
    row: int
    raw: str
    reasons: tuple[Reason, ...]

    def __str__(self) -> str:
        return f"{self.file}, row {self.row}: " + "; ".join(map(str, self.reasons))

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Rejected:
        """A row of table ``quarantine``."""
        reasons = tuple(Reason(**reason) for reason in row["reasons"])
        return cls(row["table"], row["file"], row["row"], row["raw"], reasons)


class FileCount(NamedTuple):
    """Rows of one input file: ``rows_in = valid + quarantined + others``. ``others`` are rows about something else: of
    other topics or subscriptions, told twice, or of no matter here."""

    file: str
    rows_in: int
    quarantined: int
    others: int = 0

    @property
    def valid(self) -> int:
        return self.rows_in - self.quarantined - self.others


@dataclass(frozen=True)
class Options:
    """What a user may tell an adapter beside the path. None: not told. An adapter takes some of them."""

    topic: str | None = None  # only this one; the topic of what names none
    subscription: str | None = None  # only this one (of Kafka the group); the subscription of what names none
    coordinator_log: Path | None = None  # of Kafka's group coordinator: a file or a folder
    statistics: Path | None = None  # polled topic statistics of Pulsar: a file or a folder
    time_zone: str | None = None  # of times that tell none
    times: str | None = None  # where the time of a poll is: field, name, modified
    sampled: bool | None = None  # whether some messages were left out on purpose

    @classmethod
    def of(cls, **told: str | None) -> Options:
        """Options from text, as a command line has them. Raises ``ConfigError`` where one is unknown or no such
        value."""
        given = {name: text for name, text in told.items() if text is not None}
        unknown = sorted(set(given) - set(NAMES))
        if unknown:
            raise ConfigError(f"option {unknown[0]!r}: there is none of that name; there are: {', '.join(NAMES)}")
        return cls(**{name: _PARSED.get(name, str)(text) for name, text in given.items()})

    @property
    def given(self) -> tuple[str, ...]:
        """The names of those that are told."""
        return tuple(name for name in NAMES if getattr(self, name) is not None)

    @property
    def arguments(self) -> str:
        """Those of ``ingest``, as a shell takes them."""
        plain = ("topic", "subscription")
        told = {name: shlex.quote(str(getattr(self, name))) for name in self.given}
        return " ".join(f"--{name} {told[name]}" if name in plain else f"--with {name}={told[name]}" for name in told)


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ConfigError(f"option 'sampled': write true or false, not {text!r}")
    return text.lower() == "true"


EXAMPLES: Final = 10
"""So many rejected rows are shown."""
NOTHING_TOLD: Final = Options()
NAMES: Final = tuple(each.name for each in fields(Options))
_PARSED: Final[dict[str, Callable[[str], Any]]] = {"coordinator_log": Path, "statistics": Path, "sampled": _flag}


@dataclass(frozen=True)
class Told:
    """What is told of a source that was read, beside its rows: counts, and a run to start from.

    ``rows`` are those of the canonical tables that it tells something of. ``quarantined`` are so many rejected rows, of
    which ``examples`` are the first. ``others`` are further subscriptions with their topics, which ``run`` does not
    name. ``notes`` are sentences about what the source does not tell, and how to add it. Section ``traffic`` of ``run``
    has, by table, what else a run has to say of it.
    """

    rows: dict[str, int]
    counts: tuple[FileCount, ...]
    quarantined: int
    examples: tuple[Rejected, ...]
    run: dict[str, Any]
    others: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ingested:
    """What an adapter read in one go: canonical Arrow tables by name (those that its source tells something of; others
    beside them are for who calls the adapter itself), rejected rows, and what else is ``Told``."""

    tables: dict[str, pa.Table]
    rejected: tuple[Rejected, ...]
    counts: tuple[FileCount, ...]
    run: dict[str, Any]
    others: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def told(self) -> Told:
        """All but the rows."""
        from subreplay.rows.model.tables import INPUTS  # not before: `--help` does not wait for Arrow

        rows = {name: table.num_rows for name, table in self.tables.items() if name in INPUTS}
        examples = self.rejected[:EXAMPLES]
        return Told(rows, self.counts, len(self.rejected), examples, self.run, self.others, self.notes)


@dataclass(frozen=True)
class Adapter:
    """Reads a path into canonical tables. ``takes`` are the options that it knows. ``streamed`` says how to read files
    of any size; ``read`` holds all in memory, as of a recording. ``assumed`` are the options that a first look at a
    path goes by, where the files do not contain what they say."""

    name: str
    takes: tuple[str, ...] = field(default=())
    read: Callable[[Path, Options], Ingested] | None = None
    streamed: Callable[[Path, Options], Streamed] | None = None
    assumed: Callable[[Path], Options] = lambda _: NOTHING_TOLD

    def __call__(self, path: Path, options: Options = NOTHING_TOLD) -> Ingested:
        """What it reads in one go. Raises ``ConfigError`` where it does not take an option."""
        self.check(options)
        assert self.read is not None
        return self.read(path, options)

    def check(self, options: Options) -> None:
        """That it takes these options. Raises ``ConfigError`` naming one that it does not."""
        strange = [name for name in options.given if name not in self.takes]
        if strange:
            raise ConfigError(f"option {strange[0]!r}: {self.options}")

    @property
    def options(self) -> str:
        """A sentence that names the options it takes."""
        return f"{self.name} takes {', '.join(self.takes) or 'none'}"


def told_of(tables: Mapping[str, pa.Table]) -> list[tuple[str, str]]:
    """The subscriptions with their topics that deliveries and membership tell of, those with the most rows first."""
    rows: dict[tuple[str, str], int] = {}
    for name in ("deliveries", "membership"):
        if name in tables:
            for row in tables[name].group_by(["subscription", "topic"]).aggregate([([], "count_all")]).to_pylist():
                pair = row["subscription"], row["topic"]
                rows[pair] = rows.get(pair, 0) + row["count_all"]
    return pairs_of(rows)


def pairs_of(rows: Mapping[tuple[str, str], int]) -> list[tuple[str, str]]:
    """Subscriptions with their topics, those with the most ``rows`` first; of a system's own topics last."""
    return sorted(rows, key=lambda pair: (pair[1].rpartition("/")[2].startswith("__"), -rows[pair], pair))


def check_asked(path: Path, options: Options, subscriptions: Iterable[str], topics: Iterable[str]) -> None:
    """That a source has the topic and subscription that are asked for, among those it tells of. Raises ``InputError``
    naming those that it has."""
    for kind, names in (("topic", {*topics}), ("subscription", {*subscriptions})):
        asked = getattr(options, kind)
        if asked is not None and names and asked not in names:
            raise InputError(f"{path}: nothing of {kind} {asked!r}{instead(kind, asked, names)}")
