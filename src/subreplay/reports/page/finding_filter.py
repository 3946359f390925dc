"""The findings in words on the page, and what its filter needs: choices, and how many were found for each of them.

A page holds few rows and all counts. Choices are numbered, and a row and a count name them by number: the page stays
small whatever consumers are called.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import escape

from subreplay.reports import words
from subreplay.reports.data import ReportData
from subreplay.reports.finding_data import CodeSummary, FindingPoint, FindingView
from subreplay.reports.sample import Facet, in_turn

MOST_ROWS = 2_000
MOST_BYTES = 1_400_000  # of those rows
ROW_BYTES = 420  # of a row's tags
MOST_WINDOWS = 96
MOST_TALLIES = 20_000
OBSERVED = "observed"
ELSEWHERE = -1  # a choice that is not offered


@dataclass(frozen=True, slots=True)
class ToldFinding:
    """One row: the numbers of its deliveries, rule, consumer and window, and the finding."""

    numbers: str
    view: FindingView


@dataclass(frozen=True, slots=True)
class Card:
    """One rule over one kind of deliveries, with the findings that are told."""

    source: int
    code: int
    summary: CodeSummary
    scenario: str  # empty: recorded deliveries
    told: tuple[ToldFinding, ...]


@dataclass(frozen=True, slots=True)
class Findings:
    """All cards, the choices of the filter in the order of their numbers, and the counts."""

    cards: tuple[Card, ...]
    sources: tuple[str, ...]
    codes: tuple[str, ...]
    consumers: tuple[str, ...]
    windows: tuple[tuple[str, str], ...]  # start of the first and of the last window that a choice stands for
    tallies: str  # "deliveries rule consumer window count" of all that was found; empty where that is too much
    rows: int
    found: int
    left_out: int  # rows of the data for which the page has no room


def findings(data: ReportData, order: Sequence[str]) -> Findings:
    """What the page tells and counts; rules stand in the ``order`` of their status, recorded deliveries first."""
    groups = [(OBSERVED, "", data.codes, data.findings_over_time)]
    groups += [(f"{v.source}: {v.name}", v.name, v.codes, v.findings_over_time) for v in data.dispatch]
    told = [
        (source, code)
        for source, (_, _, codes, _) in enumerate(groups)
        for code in sorted(codes, key=lambda c: order.index(c.status))
        if code.worst
    ]
    kept = _with_room([code.worst for _, code in told])
    shown = [finding for (_, code), mine in zip(told, kept, strict=True) for finding in (code.worst[i] for i in mine)]
    codes = tuple(dict.fromkeys(code.code for _, code in told))
    consumers = tuple(sorted({finding.consumer for finding in shown if finding.consumer}, key=words.natural))
    choices = _Choices.of(codes, consumers, [points for *_, points in groups], shown)
    cards = tuple(
        Card(source, choices.codes[code.code], code, groups[source][1],
             tuple(ToldFinding(choices.numbers(source, code.code, code.worst[i]), code.worst[i]) for i in mine))
        for (source, code), mine in zip(told, kept, strict=True)
    )  # fmt: skip
    return Findings(
        cards,
        sources=tuple(name for name, *_ in groups),
        codes=codes,
        consumers=consumers,
        windows=choices.labels,
        tallies=" ".join(map(str, choices.tallies)),
        rows=len(shown),
        found=sum(code.count for _, code in told),
        left_out=sum(len(code.worst) for _, code in told) - len(shown),
    )


def _with_room(rules: Sequence[Sequence[FindingView]]) -> list[list[int]]:
    """The positions of each rule's findings that the page has room for."""
    kept: list[list[int]] = [[] for _ in rules]
    rows = room = 0
    for rule, position in in_turn(rules, lambda f: Facet(True, f.consumer, f.window)):
        size = ROW_BYTES + _size(rules[rule][position])
        if rows < MOST_ROWS and room + size <= MOST_BYTES:
            kept[rule].append(position)
            rows, room = rows + 1, room + size
    return [sorted(mine) for mine in kept]


def _size(finding: FindingView) -> int:
    """Bytes of a finding's text on the page."""
    texts = (finding.sentence, finding.cause, finding.key, finding.consumer, finding.scope, *finding.witness)
    return sum(len(escape(text).encode()) for text in texts) + 9 * len(finding.witness)


@dataclass(frozen=True, slots=True)
class _Choices:
    """The numbers of rules, consumers and windows, and the counts by them."""

    codes: dict[str, int]
    consumers: dict[str, int]
    windows: dict[str, int]
    labels: tuple[tuple[str, str], ...]
    tallies: tuple[int, ...]

    @classmethod
    def of(
        cls,
        codes: Iterable[str],
        consumers: Iterable[str],
        points: Sequence[Sequence[FindingPoint]],
        shown: Iterable[FindingView],
    ) -> _Choices:
        """Neighbouring windows are one choice where there are too many windows or counts."""
        starts = {p.window_start for group in points for p in group} | {f.window for f in shown if f.window}
        ordered = sorted(starts, key=words.parse_us)
        code_of = {code: i for i, code in enumerate(codes)}
        consumer_of = {name: i for i, name in enumerate(consumers)}
        most = max(-(-len(ordered) // MOST_WINDOWS), 1)
        steps = [most << i for i in range(len(ordered).bit_length())] or [most]
        for step in (*steps, most):
            window_of = {start: i // step for i, start in enumerate(ordered)}
            sums: dict[tuple[int, ...], int] = defaultdict(int)
            for numbers, count in _counted(points, code_of, consumer_of, window_of):
                sums[numbers] += count
            if len(sums) <= MOST_TALLIES:
                break
        else:
            sums.clear()
        tallies = tuple(number for numbers in sorted(sums) for number in (*numbers, sums[numbers]))
        labels = tuple((ordered[i], ordered[min(i + step, len(ordered)) - 1]) for i in range(0, len(ordered), step))
        return cls(code_of, consumer_of, window_of, labels, tallies)

    def numbers(self, source: int, code: str, finding: FindingView) -> str:
        """The numbers that a row is found by."""
        numbers = (
            source,
            self.codes[code],
            self.consumers.get(finding.consumer, ELSEWHERE),
            self.windows.get(finding.window, ELSEWHERE),
        )
        return " ".join(map(str, numbers))


def _counted(
    points: Sequence[Sequence[FindingPoint]], codes: dict[str, int], consumers: dict[str, int], windows: dict[str, int]
) -> Iterator[tuple[tuple[int, int, int, int], int]]:
    """Every count of a rule that is offered, by the numbers of what it was counted for."""
    for source, group in enumerate(points):
        for p in group:
            if p.code in codes:
                numbers = source, codes[p.code], consumers.get(p.consumer, ELSEWHERE), windows[p.window_start]
                yield numbers, p.count
