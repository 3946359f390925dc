"""Format the figures of a recorded share group."""

from __future__ import annotations

from collections.abc import Iterator

from subreplay.conformance.fidelity_groups.group_comparison import REQUIRED_PERCENT
from subreplay.conformance.fidelity_share.share_comparison import ShareAgreement
from subreplay.conformance.fidelity_share.share_prediction import SharePrediction, list_load_pairs


def format_lines(agreement: ShareAgreement) -> Iterator[str]:
    """Format the lines that the command line prints for a re-enactment."""
    note = "" if agreement.same_acquisitions >= REQUIRED_PERCENT else f" (below {REQUIRED_PERCENT} %)"
    yield (
        f"{agreement.name} (kafka.share): acquired by the same member with the same delivery count "
        f"{agreement.same_acquisitions:.2f} % of {agreement.acquired.recorded:,} records{note}, "
        f"same answer to {agreement.answers.both:,} of {agreement.answers.recorded:,} acknowledgement requests"
    )
    yield (f"  released: {agreement.released}; archived: {agreement.archived}; acknowledged: {agreement.acknowledged}")
    yield (
        f"  start offsets: {agreement.starts}; targets with the same epoch and assignment: {agreement.targets}; "
        f"{agreement.reordered:,} decisions in another order of simultaneous requests"
    )


PREDICTION_COLUMNS = (
    "recording",
    "records of each consumer",
    "load error (difference between runs)",
    "delivered",
    "delivered again",
    "archived",
    "never delivered",
    "drained after",
)


def format_cells(prediction: SharePrediction) -> tuple[str, ...]:
    """Format one row of the table of predictions, with the columns of ``PREDICTION_COLUMNS``."""
    one, two = prediction.recorded, prediction.predicted
    figures = prediction.figures
    return (
        prediction.name,
        ", ".join(f"{name} {a:.1f} / {b:.1f} %" for name, a, b in list_load_pairs(prediction)),
        f"{figures.load_error:.1f} pp ({prediction.spread:.1f} pp)",
        *(f"{a:,} / {b:,}" for a, b in zip(one, two, strict=True)),
        f"{figures.recorded.drained / 1e9:.1f} / {figures.predicted.drained / 1e9:.1f} s",
    )
