"""The adapter interface. An adapter reads files into the canonical tables and accounts for every row."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from subreplay.errors import ConfigError, InputError
from subreplay.rows.model.stored_rows import suggest_names

if TYPE_CHECKING:
    import pyarrow as pa

    from subreplay.adapters.streams import SourceStream


WHOLE_FILE: Final = "(file)"
"""Stands for the column of a reason that is about a file, not about a value."""


class Reason(NamedTuple):
    """The reason why a row breaks the contract: the column, its value, the rule and what to do."""

    column: str
    value: str
    rule: str
    remedy: str

    def __str__(self) -> str:
        place = "" if self.column == WHOLE_FILE else f"{self.column} = {self.value}: "
        return f"{place}{self.rule} ({self.remedy})"


class RejectedRow(NamedTuple):
    """A quarantined input row with all its reasons."""

    table: str
    file: str
    row: int
    raw: str
    reasons: tuple[Reason, ...]

    def __str__(self) -> str:
        return f"{self.file}, row {self.row}: " + "; ".join(map(str, self.reasons))

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> RejectedRow:
        """Build a rejected row from a row of table ``quarantine``."""
        reasons = tuple(Reason(**reason) for reason in row["reasons"])
        return cls(row["table"], row["file"], row["row"], row["raw"], reasons)


def describe_first(path: Path, rejected: Iterable[RejectedRow]) -> str:
    """Describe the first rejected row for a message that begins with ``path``; empty if there is none."""
    for row in rejected:
        return f" The first is {str(row).removeprefix(f'{path.name}, ')}"
    return ""


class FileCount(NamedTuple):
    """The rows of one input file: ``rows_in = valid + quarantined + others``. ``others`` are rows that no table needs:
    rows of other topics or subscriptions, duplicates, and rows about other matters."""

    file: str
    rows_in: int
    quarantined: int
    others: int = 0

    @property
    def valid(self) -> int:
        return self.rows_in - self.quarantined - self.others


@dataclass(frozen=True)
class Options:
    """The options of adapters besides the path. None means that an option is not set. Each adapter accepts some."""

    topic: str | None = None  # selects one topic, and names the topic of rows without one
    subscription: str | None = None  # selects one subscription (Kafka: group), and names that of rows without one
    coordinator_log: Path | None = None  # the log of Kafka's group coordinator: a file or a folder
    statistics: Path | None = None  # polled topic statistics of Pulsar: a file or a folder
    time_zone: str | None = None  # the zone of times that contain none
    times: str | None = None  # where the time of a poll is: field, name, modified
    sampled: bool | None = None  # whether the spans are a sample of all messages

    @classmethod
    def parse(cls, **texts: str | None) -> Options:
        """Parse options from the text of a command line. Raises ``ConfigError`` for an unknown name or a wrong
        value."""
        present = {name: text for name, text in texts.items() if text is not None}
        unknown = sorted(set(present) - set(OPTION_NAMES))
        if unknown:
            raise ConfigError(f"option {unknown[0]!r} does not exist. The options are {', '.join(OPTION_NAMES)}")
        return cls(**{name: _PARSERS.get(name, str)(text) for name, text in present.items()})

    @property
    def present_names(self) -> tuple[str, ...]:
        """The names of the options that are set."""
        return tuple(name for name in OPTION_NAMES if getattr(self, name) is not None)

    @property
    def arguments(self) -> str:
        """The options as shell arguments of ``ingest``."""
        plain = ("topic", "subscription")
        texts = {name: shlex.quote(str(getattr(self, name))) for name in self.present_names}
        return " ".join(
            f"--{name} {text}" if name in plain else f"--with {name}={text}" for name, text in texts.items()
        )


def _parse_flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ConfigError(f"option 'sampled' is {text!r}, which is neither true nor false. Write true or false")
    return text.lower() == "true"


MAX_EXAMPLES: Final = 10
"""Rejected rows that are shown at most."""
NO_OPTIONS: Final = Options()
OPTION_NAMES: Final = tuple(each.name for each in fields(Options))
_PARSERS: Final[dict[str, Callable[[str], Any]]] = {"coordinator_log": Path, "statistics": Path, "sampled": _parse_flag}


@dataclass(frozen=True)
class SourceSummary:
    """The summary of a source that was read: its counts, and a run file to start from.

    ``rows`` are the row counts of the canonical tables that the source contains. ``quarantined`` counts the rejected
    rows; ``examples`` are the first of them. ``others`` are further subscriptions with their topics, which ``run`` does
    not name. ``notes`` are sentences about what the source does not contain, and how to add it. Section ``traffic`` of
    ``run`` has, by table, the settings that this source needs.
    """

    rows: dict[str, int]
    counts: tuple[FileCount, ...]
    quarantined: int
    examples: tuple[RejectedRow, ...]
    run: dict[str, Any]
    others: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class SourceTables:
    """A source that an adapter read in one pass: Arrow tables by name, rejected rows, and the parts of its summary.

    The canonical tables are those that the source contains. Other tables are for direct callers of the adapter.
    """

    tables: dict[str, pa.Table]
    rejected: tuple[RejectedRow, ...]
    counts: tuple[FileCount, ...]
    run: dict[str, Any]
    others: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def summary(self) -> SourceSummary:
        """The summary of the source, without its rows."""
        from subreplay.rows.model.tables import INPUTS  # imported here, so that `--help` does not load Arrow

        rows = {name: table.num_rows for name, table in self.tables.items() if name in INPUTS}
        examples = self.rejected[:MAX_EXAMPLES]
        return SourceSummary(rows, self.counts, len(self.rejected), examples, self.run, self.others, self.notes)


@dataclass(frozen=True)
class Adapter:
    """A reader of one source format, which makes canonical tables from a path.

    ``accepted_options`` are the names of its options. ``stream`` describes how to read files of any size. ``read``
    keeps all rows in memory, as for a recording. ``assume_options`` returns the options of a first look at a path, for
    facts that the files do not contain.
    """

    name: str
    accepted_options: tuple[str, ...] = field(default=())
    read: Callable[[Path, Options], SourceTables] | None = None
    stream: Callable[[Path, Options], SourceStream] | None = None
    assume_options: Callable[[Path], Options] = lambda _: NO_OPTIONS

    def __call__(self, path: Path, options: Options = NO_OPTIONS) -> SourceTables:
        """Read a path in one pass. Raises ``ConfigError`` where the adapter does not accept an option."""
        self.check_options(options)
        assert self.read is not None
        return self.read(path, options)

    def check_options(self, options: Options) -> None:
        """Check that the adapter accepts these options. Raises ``ConfigError`` with the name of one that it rejects."""
        rejected = [name for name in options.present_names if name not in self.accepted_options]
        if rejected:
            raise ConfigError(f"option {rejected[0]!r} has no effect: {self.option_text}")

    @property
    def option_text(self) -> str:
        """A sentence with the names of the accepted options."""
        if not self.accepted_options:
            return f"adapter {self.name} has no options"
        return f"adapter {self.name} accepts {', '.join(self.accepted_options)}"


def list_subscriptions(tables: Mapping[str, pa.Table]) -> list[tuple[str, str]]:
    """List the subscriptions of deliveries and membership with their topics, those with the most rows first."""
    rows: dict[tuple[str, str], int] = {}
    for name in ("deliveries", "membership"):
        if name in tables:
            for row in tables[name].group_by(["subscription", "topic"]).aggregate([([], "count_all")]).to_pylist():
                pair = row["subscription"], row["topic"]
                rows[pair] = rows.get(pair, 0) + row["count_all"]
    return rank_subscriptions(rows)


def rank_subscriptions(rows: Mapping[tuple[str, str], int]) -> list[tuple[str, str]]:
    """Sort subscriptions with their topics by ``rows``, most first; those of a system's own topics are last."""
    return sorted(rows, key=lambda pair: (pair[1].rpartition("/")[2].startswith("__"), -rows[pair], pair))


def check_names_exist(path: Path, options: Options, subscriptions: Iterable[str], topics: Iterable[str]) -> None:
    """Check that a source contains the requested topic and subscription. Raises ``InputError`` with the names that it
    does contain."""
    for kind, names in (("topic", {*topics}), ("subscription", {*subscriptions})):
        requested = getattr(options, kind)
        if requested is not None and names and requested not in names:
            raise InputError(
                f"{path}: the source contains no row of {kind} {requested!r}{suggest_names(kind, requested, names)}"
            )
