"""The figures of a recorded group in words."""

from __future__ import annotations

from collections.abc import Iterator

from subreplay.conformance.fidelity_groups.figures import ENOUGH, Agreement


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
