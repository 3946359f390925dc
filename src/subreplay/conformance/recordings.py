"""Re-enact or predict recordings of any kind, and format the result as text and as figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from subreplay.conformance import prediction_table
from subreplay.conformance.fidelity import dispatch_prediction, fidelity_text
from subreplay.conformance.fidelity.fidelity_measure import measure_fidelity
from subreplay.conformance.fidelity_groups import group_prediction, group_text
from subreplay.conformance.fidelity_groups.group_comparison import measure_agreement
from subreplay.conformance.fidelity_share import share_text
from subreplay.conformance.fidelity_share.share_comparison import ShareAgreement, measure_share_agreement
from subreplay.conformance.fidelity_share.share_prediction import predict_share_group
from subreplay.conformance.prediction_table import PredictedRun, tabulate_run
from subreplay.errors import ConfigError, InputError

_BROKER_FILES: Final = ("broker_events.jsonl.gz", "broker_events.jsonl")
_GROUP_FILES: Final = ("polls.jsonl.gz", "polls.jsonl")
_SHARE_FILES: Final = ("share_group_state.jsonl.gz", "share_group_state.jsonl")
"""Files that only a recording of a Pulsar topic, of a Kafka consumer group, or of a Kafka share group has."""


@dataclass(frozen=True)
class ReenactmentText:
    """The result of a re-enactment: ``lines`` for people, ``figures`` for programs."""

    passed: bool
    lines: tuple[str, ...]
    figures: Mapping[str, object]


def find_recordings(paths: Iterable[Path]) -> list[Path]:
    """Return the recordings among ``paths`` and in their folders; raises InputError if there are none."""
    results: list[Path] = []
    for path in paths:
        names = (*_BROKER_FILES, *_GROUP_FILES, *_SHARE_FILES)
        inside = sorted({each.parent for name in names for each in path.rglob(name)})
        if not inside:
            raise InputError(
                f"{path}: the path contains no recording. The folder of a recording has a file "
                f"{_BROKER_FILES[0]} (Pulsar), {_GROUP_FILES[0]} (Kafka consumer group) or {_SHARE_FILES[0]} "
                "(Kafka share group)."
            )
        results += inside
    return results


def is_group(folder: Path) -> bool:
    """Check whether a recording is of a Kafka consumer group."""
    return any((folder / name).exists() for name in _GROUP_FILES)


def is_share_group(folder: Path) -> bool:
    """Check whether a recording is of a Kafka share group."""
    return any((folder / name).exists() for name in _SHARE_FILES)


def reenact_recording(folder: Path, profile: str | None = None) -> ReenactmentText:
    """Re-enact a recording and compare.

    Raises as ``measure_fidelity`` and ``measure_agreement``, and ConfigError for a ``profile`` that a group cannot
    have.
    """
    if is_share_group(folder):
        _reject_profile(folder, profile)
        return _describe_share_agreement(measure_share_agreement(folder))
    if not is_group(folder):
        result = measure_fidelity(folder, profile)
        figures = {
            "profile": result.profile,
            "dispatches": result.compared,
            "same_consumer_percent": result.same_consumer,
        }
        return ReenactmentText(result.passed, tuple(fidelity_text.format_lines(result)), figures)
    _reject_profile(folder, profile)
    results = measure_agreement(folder)
    counts = {
        "generations": results.generations._asdict(),
        "records": results.records._asdict(),
        "commits": results.commits._asdict(),
        "again": results.redelivered._asdict(),
        "unseen": results.undelivered._asdict(),
    }
    figures = {"profile": results.policy, "same_consumer_percent": results.same_consumer, **counts}
    return ReenactmentText(results.passed, tuple(group_text.format_lines(results)), figures)


def _describe_share_agreement(result: ShareAgreement) -> ReenactmentText:
    counts = {
        name: getattr(result, name)._asdict()
        for name in ("acquired", "answers", "released", "archived", "acknowledged", "starts", "targets")
    }
    figures = {"profile": "kafka.share", "same_acquisitions_percent": result.same_acquisitions, **counts}
    return ReenactmentText(result.passed, tuple(share_text.format_lines(result)), figures)


@dataclass(frozen=True)
class PredictionText:
    """The result of a prediction: a row of the published table (``run``), and one of the table of its kind."""

    run: PredictedRun
    columns: tuple[str, ...]
    cells: tuple[str, ...]

    @property
    def figures(self) -> dict[str, object]:
        """The figures of the published table, and the other cells by the names of their columns."""
        return {**self.run._asdict(), **dict(zip(self.columns[1:], self.cells[1:], strict=True))}


def predict_recording(folder: Path, profile: str | None = None) -> PredictionText:
    """Predict a recording from its plan and compare; raises as ``reenact_recording``."""
    if is_share_group(folder):
        _reject_profile(folder, profile)
        share = predict_share_group(folder)
        run = tabulate_run(share.name, share.figures)
        return PredictionText(run, share_text.PREDICTION_COLUMNS, share_text.format_cells(share))
    if not is_group(folder):
        prediction = dispatch_prediction.predict_dispatches(folder, profile)
        run = tabulate_run(prediction.name, prediction.figures)
        return PredictionText(run, fidelity_text.PREDICTION_COLUMNS, fidelity_text.format_cells(prediction))
    _reject_profile(folder, profile)
    group = group_prediction.predict_group(folder)
    run = tabulate_run(group.plan.name, group.plan.figures)
    return PredictionText(run, group_text.PREDICTION_COLUMNS, group_text.format_cells(group))


def format_tables(results: Sequence[PredictionText]) -> Iterable[str]:
    """Yield the lines of a Markdown table of what applications saw, and of one for each kind of recording."""
    tables: list[tuple[Sequence[str], list[tuple[str, ...]]]]
    tables = [(prediction_table.COLUMNS, [prediction_table.format_cells(one.run) for one in results])]
    for columns in (group_text.PREDICTION_COLUMNS, share_text.PREDICTION_COLUMNS, fidelity_text.PREDICTION_COLUMNS):
        tables.append((columns, [one.cells for one in results if one.columns == columns]))
    for head, rows in tables:
        if rows:
            yield from (f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))
            yield ""


def _reject_profile(folder: Path, profile: str | None) -> None:
    if profile is not None:
        raise ConfigError(
            f"--profile {profile} does not apply to {folder.name}: it is a recording of a Kafka group, "
            "and its scenario names the release. Omit --profile."
        )
