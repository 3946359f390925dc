"""Check sticky ranges: slots that no consumer covers, and slots that two consumers claim."""

from __future__ import annotations

from collections.abc import Iterator

from subreplay.audit.codes import BY_SLOT, Code, Rule
from subreplay.audit.findings import Finding
from subreplay.audit.needs import Need
from subreplay.rows.model.range_table import Range
from subreplay.rows.model.text_format import format_clock
from subreplay.semantics.timelines.event_text import describe_event
from subreplay.semantics.timelines.timeline import Epoch, Timeline

_STICKY = frozenset({"pulsar.key_shared.sticky"})

RULES = (
    Rule(
        Code.STICKY_GAP,
        "Slots that no consumer requested",
        "While a consumer is connected, every slot is in the ranges of some consumer. Messages of other slots wait.",
        "HashRangeExclusiveStickyKeyConsumerSelector.select (3.2.3, 4.0.8); row P-KS-ST-2",
        allowed=BY_SLOT,
        only=_STICKY,
        needs=frozenset({Need.MEMBERSHIP}),
    ),
    Rule(
        Code.STICKY_OVERLAP,
        "Slots that two consumers requested",
        "A consumer whose ranges overlap those of a connected one is rejected, as if it had never connected.",
        "HashRangeExclusiveStickyKeyConsumerSelector.validateKeySharedMeta (3.2.3, 4.0.8); row P-KS-ST-2",
        allowed=BY_SLOT,
        only=_STICKY,
        needs=frozenset({Need.MEMBERSHIP}),
    ),
)


def find_range_findings(timeline: Timeline, dates: bool = False) -> Iterator[Finding]:
    """Yield STICKY_GAP once for each gap when it opens, and STICKY_OVERLAP once for each rejected consumer."""
    if timeline.policy.name not in _STICKY:
        return
    gaps = [_find_gaps(timeline, epoch) for epoch in timeline.epochs]
    for epoch in timeline.epochs[1:]:
        for gap in sorted(gaps[epoch.index] - gaps[epoch.index - 1]):
            yield _make_gap_finding(timeline, epoch, gap, gaps, dates)
        if epoch.rejected is not None and epoch.cause is not None:
            yield from _find_overlaps(timeline, epoch, epoch.cause.ranges or (), dates)


def _find_gaps(timeline: Timeline, epoch: Epoch) -> frozenset[Range]:
    """Return the slot ranges without an owner in an epoch; none if no consumer is connected."""
    if not timeline.list_connected(epoch.index):
        return frozenset()
    return frozenset(timeline.table(epoch.index).gaps(timeline.policy.space))


def _make_gap_finding(
    timeline: Timeline, opened: Epoch, gap: Range, gaps: list[frozenset[Range]], dates: bool
) -> Finding:
    """Make the finding of a gap, with its first and last instant."""
    closed = next((e for e in timeline.epochs[opened.index :] if gap not in gaps[e.index]), None)
    until = f"until {format_clock(closed.start.at, dates)}" if closed else "until the end"
    return Finding(
        Code.STICKY_GAP,
        timeline.scope,
        opened.start.at,
        f"slots {gap[0]}..{gap[1]} had no owner from {format_clock(opened.start.at, dates)} {until}",
        describe_event(opened, dates),
        slot=gap[0],
        epoch=opened.index,
    )


def _find_overlaps(timeline: Timeline, epoch: Epoch, requested: tuple[Range, ...], dates: bool) -> Iterator[Finding]:
    """Yield the finding of a consumer that was rejected because its ranges overlap those of another one."""
    assert epoch.cause is not None
    for start, end, owner in timeline.table(epoch.index).rows():
        for low, high in requested:
            if low <= end and start <= high:
                shared = max(low, start), min(high, end)
                name = timeline.consumers[owner].label
                yield Finding(
                    Code.STICKY_OVERLAP,
                    timeline.scope,
                    epoch.start.at,
                    f"{epoch.cause.label} was refused at {format_clock(epoch.start.at, dates)}: it requested slots "
                    f"{low}..{high}, but {name} already serves {shared[0]}..{shared[1]}",
                    describe_event(epoch, dates),
                    consumer=epoch.cause.label,
                    slot=shared[0],
                    epoch=epoch.index,
                    evidence=(f"{name} serves {start}..{end}",),
                )
                return
