"""Build the loads of consumers and their skew (``whatif.fair_share``), and explain idle consumers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from subreplay.audit.codes import Code
from subreplay.audit.explain.findings import WAITING_CODES
from subreplay.reports.data import ConsumerTotal, LoadPoint
from subreplay.reports.figures import Figures, Row
from subreplay.reports.formatting import format_plural
from subreplay.rows.model.text_format import format_instant
from subreplay.whatif.fair_share import compute_fair_share, compute_fair_shares
from subreplay.whatif.idle_consumers import explain_idle_consumers

NOBODY = "nobody"


def sum_messages_by_window(rows: Iterable[Row]) -> dict[int, int]:
    """Sum the messages of all consumers by window start."""
    sums: dict[int, int] = defaultdict(int)
    for row in rows:
        sums[row["window"]] += row["messages"]
    return sums


def build_load_points(figures: Figures) -> tuple[LoadPoint, ...]:
    """Build the load of each consumer by window."""
    sums = sum_messages_by_window(figures.load)
    even = compute_fair_shares(figures.connected, sums, figures.width)
    points = []
    for row in figures.load:
        start, share = row["window"], row["messages"] / sums[row["window"]]
        points.append(
            LoadPoint(
                format_instant(start),
                format_instant(start + figures.width),
                row["consumer"] or NOBODY,
                row["messages"],
                row["bytes"],
                row["keys"],
                share,
                share / even[start],
            )
        )
    return tuple(points)


def build_consumer_totals(figures: Figures) -> tuple[ConsumerTotal, ...]:
    """Build the total load of each consumer; idle consumers come last, with the reason."""
    if not figures.consumers:
        return ()
    sums = sum_messages_by_window(figures.load)
    even = compute_fair_share(compute_fair_shares(figures.connected, sums, figures.width), sums)
    total = sum(r["messages"] for r in figures.consumers)
    served = [
        ConsumerTotal(
            consumer=r["consumer"] or NOBODY,
            messages=r["messages"],
            bytes=r["bytes"],
            keys=r["keys"],
            share=r["messages"] / total,
            skew=r["messages"] / total / even if even else 0.0,
            redelivered=r.get("redelivered", 0),
            unacked=r.get("unacked", 0),
        )
        for r in figures.consumers
    ]
    known = {total.consumer for total in served}
    reasons = explain_idle_consumers(figures.plan, known, figures.extent["first"], figures.extent["last"])
    reasons |= {name: why for name, why in _explain_waits(figures).items() if name in reasons}
    return (*served, *(ConsumerTotal(name, 0, 0, 0, 0.0, 0.0, 0, 0, why) for name, why in reasons.items()))


def _explain_waits(figures: Figures) -> dict[str, str]:
    """Explain, for each consumer, that its messages waited."""
    waits: dict[str, Counter[str]] = defaultdict(Counter)
    for row in figures.findings:
        if row["consumer"] is not None and Code[row["code"]] in WAITING_CODES:
            waits[row["consumer"]][row["code"]] += row["count"]
    return {
        name: "; ".join(f"{format_plural(count, 'message')} waited for it ({code})" for code, count in counts.items())
        for name, counts in waits.items()
    }
