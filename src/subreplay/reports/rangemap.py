"""The rectangles of a range map: who owned which slots from when to when, as few as the picture needs.

Few bands are drawn as they are. Many (a consistent hash ring has hundreds) are drawn as lines, each standing for an
equal part of the slots and taking the colour of the consumer that owns most of it. A rectangle goes on over the epochs
in which its owner stays, so a join shows as the few stripes that change colour.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from subreplay.reports.data import Band, EpochView, RangeMap

LINES = 120


class Rect(NamedTuple):
    """Slots ``[low, high)`` owned by one consumer during ``[start, end)`` microseconds."""

    start: int
    end: int
    low: float
    high: float
    consumer: str | None


class Picture(NamedTuple):
    """What to draw of one map. ``bands`` are all of its epochs', ``hidden`` those too thin to show."""

    rects: tuple[Rect, ...]
    slots_per_line: float  # 0 = every band is drawn as it is
    bands: int
    hidden: int


def picture(mapped: RangeMap, lines: int = LINES) -> Picture:
    """The rectangles of a map, exact where no epoch has more bands than lines."""
    left_out = sum(epoch.bands_left_out for epoch in mapped.epochs)
    bands = sum(len(epoch.bands) for epoch in mapped.epochs) + left_out
    if not left_out and all(len(epoch.bands) <= lines for epoch in mapped.epochs):
        return Picture(_exact(mapped.epochs), 0, bands, 0)
    return _in_lines(mapped, lines, bands, left_out)


def _exact(epochs: Sequence[EpochView]) -> tuple[Rect, ...]:
    """Every band, joined over neighbouring epochs in which it is the same."""
    return tuple(_joined(((e.start_us, e.end_us, b.start, b.end + 1, b.consumer) for b in e.bands) for e in epochs))


def _joined(columns: Iterable[Iterable[tuple[int, int, float, float, str | None]]]) -> list[Rect]:
    """Rectangles of consecutive epochs, each lengthened while the next epoch starts with the same one."""
    done: list[Rect] = []
    open_: dict[tuple[float, float, str | None], Rect] = {}
    for column in columns:
        still: dict[tuple[float, float, str | None], Rect] = {}
        for start, end, low, high, consumer in column:
            before = open_.pop((low, high, consumer), None)
            if before is not None and before.end != start:
                done.append(before)
                before = None
            still[low, high, consumer] = Rect(before.start if before else start, end, low, high, consumer)
        done += open_.values()
        open_ = still
    return sorted([*done, *open_.values()], key=lambda rect: (rect.low, rect.start))


def _in_lines(mapped: RangeMap, lines: int, bands: int, left_out: int) -> Picture:
    """Equal lines coloured by majority, neighbours of one colour and one duration drawn as one."""
    step = (mapped.high - mapped.low + 1) / lines
    hidden, columns = left_out, []
    for epoch in mapped.epochs:
        owners = majority(epoch.bands, mapped.low, mapped.high, lines, gaps_known=not epoch.bands_left_out)
        hidden += sum(not _shows(band, owners, mapped.low, step) for band in epoch.bands)
        columns.append(
            [(epoch.start_us, epoch.end_us, float(line), float(line + 1), who) for line, who in enumerate(owners)]
        )
    rects = _stacked([rect for rect in _joined(columns) if rect.consumer is not None])
    low = mapped.low
    scaled = tuple([r._replace(low=low + r.low * step, high=low + r.high * step) for r in rects])
    return Picture(scaled, step, bands, hidden)


def _stacked(rects: Sequence[Rect]) -> list[Rect]:
    """Rectangles on top of each other with the same owner and duration, as one."""
    out: list[Rect] = []
    for rect in sorted(rects, key=lambda r: (r.start, r.end, r.consumer or "", r.low)):
        if out and out[-1][:2] == rect[:2] and out[-1].consumer == rect.consumer and out[-1].high == rect.low:
            out[-1] = out[-1]._replace(high=rect.high)
        else:
            out.append(rect)
    return out


def majority(bands: Iterable[Band], low: int, high: int, lines: int, *, gaps_known: bool = True) -> list[str | None]:
    """For each of equal parts of the slots the consumer with most of it; on a tie the one met first."""
    step = (high - low + 1) / lines
    owned: list[dict[str | None, float]] = [defaultdict(float) for _ in range(lines)]
    for band in bands:
        start, end = band.start - low, band.end + 1 - low
        for line in range(max(int(start / step), 0), min(int((end - 1e-9) / step), lines - 1) + 1):
            owned[line][band.consumer] += min(end, (line + 1) * step) - max(start, line * step)
    for shares in owned:
        shares[None] += step - sum(shares.values()) if gaps_known else 0.0
    return [_most(shares) for shares in owned]


def _most(shares: dict[str | None, float]) -> str | None:
    """Who has most; on a tie somebody before nobody, then the one met first."""
    return max(shares, key=lambda who: (shares[who], who is not None))


def _shows(band: Band, owners: Sequence[str | None], low: int, step: float) -> bool:
    """Whether a line that the band touches has its colour."""
    first, last = int((band.start - low) / step), int((band.end - low) / step)
    return any(owners[line] == band.consumer for line in range(max(first, 0), min(last, len(owners) - 1) + 1))


def owned_share(epoch: EpochView, low: int, high: int) -> dict[str, float]:
    """The fraction of the slots that each member owns in an epoch, members first in their order."""
    shares = dict.fromkeys(epoch.members, 0.0)
    for band in epoch.bands:
        if band.consumer is not None:
            shares[band.consumer] = shares.get(band.consumer, 0.0) + (band.end - band.start + 1) / (high - low + 1)
    return shares
