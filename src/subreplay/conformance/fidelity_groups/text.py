"""The figures of a recorded group in words."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from subreplay.conformance.fidelity_groups.figures import ENOUGH, Agreement
from subreplay.conformance.fidelity_groups.predicted import Foreseen


def lines(found: Agreement) -> Iterator[str]:
    """What the command line prints of a re-enactment."""
    short = "" if found.same_consumer >= ENOUGH else f" (below {ENOUGH} %)"
    yield f"{found.name} ({found.policy}): " + ", ".join(
        (
            f"generations with members and assignment {found.generations}",
            f"same consumer {found.same_consumer:.2f} % of {found.records.recorded:,} records{short}",
            f"same outcome of {found.commits.both:,} of {found.commits.recorded:,} commits",
        )
    )
    yield f"  given again, with consumer and cause: {found.again}; never given: {found.unseen}"
    yield f"  assignments off by {found.off(0.5):.0f} ms (p50), {found.off(0.99):.0f} ms (p99)" + (
        "; pause (replayed / recorded) " + ", ".join(_pauses(found)) if found.pauses else ""
    )


def _pauses(found: Agreement) -> Iterator[str]:
    for consumer, (replayed, recorded) in found.pauses.items():
        yield f"{consumer} {replayed / 1e9:.2f} / {recorded / 1e9:.2f} s"


PREDICTED = (
    "recording",
    "assignor",
    "generations",
    "first (plan, starts)",
    "owner (plan, starts)",
    "chance",
    "to the owner",
    "pause",
    "again",
    "never given",
    "drained after",
)


def cells(found: Foreseen) -> tuple[str, ...]:
    """A line of a table of predictions, under ``PREDICTED``."""
    plan, starts, chance = found
    recorded, predicted = (float(np.median(side)) / 1e6 if side else 0.0 for side in plan.pauses)
    return (
        plan.name,
        plan.policy.removeprefix("kafka."),
        f"{plan.right} of {plan.recorded}",
        f"{plan.first / 1e6:+.0f}, {starts.first / 1e6:+.0f} ms",
        f"{plan.agreeing:.1f}, {starts.agreeing:.1f} %",
        f"{chance.low:.0f} to {chance.high:.0f} %",
        f"{100 * plan.at_owner / max(plan.polls, 1):.1f} %",
        f"{recorded:.0f} / {predicted:.0f} ms",
        "/".join(map(str, plan.again)),
        "/".join(map(str, plan.unseen)),
        "{:.1f} / {:.1f} s".format(*(side / 1e9 for side in plan.drained)),
    )
