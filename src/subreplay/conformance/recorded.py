"""Recordings of either system, re-enacted or predicted: in words, and as plain figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from subreplay.conformance.fidelity import predicted as dispatches
from subreplay.conformance.fidelity import text as of_dispatchers
from subreplay.conformance.fidelity.measure import fidelity
from subreplay.conformance.fidelity_groups import predicted as groups
from subreplay.conformance.fidelity_groups import text as of_groups
from subreplay.conformance.fidelity_groups.figures import agreement
from subreplay.errors import ConfigError, InputError

_BROKER: Final = ("broker_events.jsonl.gz", "broker_events.jsonl")
_GROUP: Final = ("polls.jsonl.gz", "polls.jsonl")
"""Files that a recording of the one and of the other system has."""


@dataclass(frozen=True)
class Told:
    """What a command says of a recording: ``lines`` for people, ``figures`` for programs."""

    passed: bool
    lines: tuple[str, ...]
    figures: Mapping[str, object]


def recordings(paths: Iterable[Path]) -> list[Path]:
    """The recordings among ``paths``, and those in the folders; raises InputError for none."""
    found: list[Path] = []
    for path in paths:
        inside = sorted({each.parent for name in (*_BROKER, *_GROUP) for each in path.rglob(name)})
        if not inside:
            raise InputError(f"{path}: no recording: none of its folders has a file {_BROKER[0]} or {_GROUP[0]}")
        found += inside
    return found


def is_group(folder: Path) -> bool:
    """Whether a recording is of a Kafka group."""
    return any((folder / name).exists() for name in _GROUP)


def reenact(folder: Path, profile: str | None = None) -> Told:
    """Re-enact a recording and compare; raises as ``fidelity`` and ``agreement``, and ConfigError for a ``profile``
    that a group cannot have."""
    if not is_group(folder):
        result = fidelity(folder, profile)
        figures = {
            "profile": result.profile,
            "dispatches": result.compared,
            "same_consumer_percent": result.same_consumer,
        }
        return Told(result.passed, tuple(of_dispatchers.lines(result)), figures)
    _own_release(folder, profile)
    found = agreement(folder)
    counts = {name: getattr(found, name)._asdict() for name in ("generations", "records", "commits", "again", "unseen")}
    figures = {"profile": found.policy, "same_consumer_percent": found.same_consumer, **counts}
    return Told(found.passed, tuple(of_groups.lines(found)), figures)


@dataclass(frozen=True)
class Foretold:
    """What is said of a prediction: the cells of a line in the table of its system."""

    group: bool
    cells: tuple[str, ...]

    @property
    def figures(self) -> dict[str, str]:
        """The cells by the names of their columns."""
        return dict(zip(of_groups.PREDICTED if self.group else of_dispatchers.PREDICTED, self.cells, strict=True))


def predict(folder: Path, profile: str | None = None) -> Foretold:
    """Predict a recording from its plan and compare; raises as ``reenact``."""
    if not is_group(folder):
        return Foretold(False, of_dispatchers.cells(dispatches.predict(folder, profile)))
    _own_release(folder, profile)
    return Foretold(True, of_groups.cells(groups.predict(folder)))


def tables(found: Sequence[Foretold]) -> Iterable[str]:
    """The lines of a Markdown table for each system."""
    for group, head in ((True, of_groups.PREDICTED), (False, of_dispatchers.PREDICTED)):
        rows = [one.cells for one in found if one.group == group]
        if rows:
            yield from (f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))
            yield ""


def _own_release(folder: Path, profile: str | None) -> None:
    if profile is not None:
        raise ConfigError(f"--profile {profile}: {folder.name} is of a Kafka group, whose release is its own")
