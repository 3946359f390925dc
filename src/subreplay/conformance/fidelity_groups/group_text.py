"""Format the figures of a recorded group."""

from __future__ import annotations

from collections.abc import Iterator

from subreplay.conformance.fidelity_groups.group_comparison import REQUIRED_PERCENT, GroupAgreement
from subreplay.conformance.fidelity_groups.group_prediction import PredictionResult


def format_lines(agreement: GroupAgreement) -> Iterator[str]:
    """Format the lines that the command line prints for a re-enactment."""
    note = "" if agreement.same_consumer >= REQUIRED_PERCENT else f" (below {REQUIRED_PERCENT} %)"
    yield f"{agreement.name} ({agreement.policy}): " + ", ".join(
        (
            f"generations with the same members and assignment: {agreement.generations}",
            f"same consumer {agreement.same_consumer:.2f} % of {agreement.records.recorded:,} records{note}",
            f"same outcome of {agreement.commits.both:,} of {agreement.commits.recorded:,} commits",
        )
    )
    yield f"  redelivered, with consumer and cause: {agreement.redelivered}; never delivered: {agreement.undelivered}"
    median, high = agreement.find_time_error(0.5), agreement.find_time_error(0.99)
    pauses = "; pause (replayed / recorded) " + ", ".join(_format_pauses(agreement)) if agreement.pauses else ""
    yield f"  assignment time error {median:.0f} ms (p50), {high:.0f} ms (p99){pauses}"


def _format_pauses(agreement: GroupAgreement) -> Iterator[str]:
    for consumer, (replayed, recorded) in agreement.pauses.items():
        yield f"{consumer} {replayed / 1e9:.2f} / {recorded / 1e9:.2f} s"


PREDICTION_COLUMNS = (
    "recording",
    "assignor",
    "generations",
    "first (plan, starts)",
    "owner (plan, starts)",
    "chance",
    "owner of any run",
    "load outside",
    "load by ids",
    "records to the owner",
    "redelivered",
    "never delivered",
)


def format_cells(agreement: PredictionResult) -> tuple[str, ...]:
    """Format one row of the table of predictions, with the columns of ``PREDICTION_COLUMNS``."""
    plan, starts, chance, interval = agreement
    return (
        plan.name,
        plan.policy.removeprefix("kafka."),
        f"{plan.right} of {plan.recorded}",
        f"{plan.first / 1e6:+.0f}, {starts.first / 1e6:+.0f} ms",
        f"{plan.agreeing:.1f}, {starts.agreeing:.1f} %",
        f"{chance.low:.0f} to {chance.high:.0f} %",
        f"{interval.within:.1f} % of {interval.owners:.1f}",
        f"{interval.outside:.1f} pp",
        "–" if interval.by_ids is None else f"{interval.by_ids:.0f} pp",
        f"{100 * plan.at_owner / max(plan.polls, 1):.1f} %",
        "/".join(map(str, plan.redelivered)),
        "/".join(map(str, plan.undelivered)),
    )
