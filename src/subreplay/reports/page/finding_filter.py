"""Prepare the findings on the page, with the choices of the filter and the count of each choice.

A page contains a sample of the rows, and all counts. Rows and counts refer to choices by number, so that long names do
not enlarge the page.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import escape

from subreplay.reports.data import ReportData
from subreplay.reports.finding_data import CodeSummary, FindingPoint, FindingView
from subreplay.reports.finding_sample import SampleFacet, order_for_sample
from subreplay.reports.formatting import natural_sort_key, parse_us

MAX_FINDING_ROWS = 2_000
MAX_ROWS_BYTES = 900_000  # total size of the rows, less if the rest of the page is large
ROW_BYTES = 420  # size of a row's tags
MAX_WINDOWS = 96
MAX_TALLIES = 10_000
OBSERVED = "observed"
NOT_OFFERED = -1  # number of a choice that the filter does not offer


@dataclass(frozen=True, slots=True)
class FindingRow:
    """A finding with the numbers of its choices: deliveries, rule, consumer and window."""

    numbers: str
    view: FindingView


@dataclass(frozen=True, slots=True)
class RuleCard:
    """The shown findings of one rule in recorded or predicted deliveries."""

    source: int
    code: int
    summary: CodeSummary
    scenario: str  # empty for recorded deliveries
    shown: tuple[FindingRow, ...]


@dataclass(frozen=True, slots=True)
class FilteredFindings:
    """All rule cards, the choices of the filter in numeric order, and the counts."""

    cards: tuple[RuleCard, ...]
    sources: tuple[str, ...]
    codes: tuple[str, ...]
    consumers: tuple[str, ...]
    windows: tuple[tuple[str, str], ...]  # starts of the first and last window of a choice
    bounds: str  # "start end" (µs) of each choice of windows
    tallies: str  # "deliveries rule consumer window count" for each count; empty if there are too many
    rows: int
    found: int
    left_out: int  # rows of the data that do not fit on the page


def build_findings(data: ReportData, order: Sequence[str], size: int = MAX_ROWS_BYTES) -> FilteredFindings:
    """Select the findings of the page and count all; recorded deliveries first, then by ``order`` of the status.

    The rows have at most about ``size`` bytes.
    """
    groups = [(OBSERVED, "", data.codes, data.findings_over_time)]
    groups += [(f"{v.source}: {v.name}", v.name, v.codes, v.findings_over_time) for v in data.dispatch]
    groups_with_findings = [
        (source, code)
        for source, (_, _, codes, _) in enumerate(groups)
        for code in sorted(codes, key=lambda c: order.index(c.status))
        if code.worst
    ]
    kept = _select_rows([code.worst for _, code in groups_with_findings], size)
    shown = [
        finding
        for (_, code), positions in zip(groups_with_findings, kept, strict=True)
        for finding in (code.worst[i] for i in positions)
    ]
    codes = tuple(dict.fromkeys(code.code for _, code in groups_with_findings))
    consumers = tuple(sorted({finding.consumer for finding in shown if finding.consumer}, key=natural_sort_key))
    choices = _FilterChoices.from_findings(codes, consumers, [points for *_, points in groups], shown)
    cards = tuple(
        RuleCard(source, choices.codes[code.code], code, groups[source][1],
             tuple(FindingRow(choices.numbers(source, code.code, code.worst[i]), code.worst[i]) for i in positions))
        for (source, code), positions in zip(groups_with_findings, kept, strict=True)
    )  # fmt: skip
    return FilteredFindings(
        cards,
        sources=tuple(name for name, *_ in groups),
        codes=codes,
        consumers=consumers,
        windows=choices.labels,
        bounds=_format_bounds(choices.labels, _find_width(data)),
        tallies=" ".join(map(str, choices.tallies)),
        rows=len(shown),
        found=sum(code.count for _, code in groups_with_findings),
        left_out=sum(len(code.worst) for _, code in groups_with_findings) - len(shown),
    )


def _find_width(data: ReportData) -> int:
    """Find the width (µs) of the report's windows."""
    widths = [parse_us(point.window_end) - parse_us(point.window_start) for point in data.load[:1]]
    return (widths or [p.end_us - p.start_us for p in (data.timeline.points[:1] if data.timeline else ())] or [1])[0]


def _format_bounds(windows: Iterable[tuple[str, str]], width: int) -> str:
    return " ".join([f"{parse_us(first)} {parse_us(last) + width}" for first, last in windows])


def _select_rows(rules: Sequence[Sequence[FindingView]], most: int) -> list[list[int]]:
    """Select the positions of each rule's findings that fit on the page."""
    kept: list[list[int]] = [[] for _ in rules]
    rows = bytes_used = 0
    for rule, position in order_for_sample(rules, lambda f: SampleFacet(True, f.consumer, f.window)):
        size = ROW_BYTES + _measure_size(rules[rule][position])
        if rows < MAX_FINDING_ROWS and bytes_used + size <= most:
            kept[rule].append(position)
            rows, bytes_used = rows + 1, bytes_used + size
    return [sorted(positions) for positions in kept]


def _measure_size(finding: FindingView) -> int:
    """Compute the bytes of a finding's text on the page."""
    texts = (finding.sentence, finding.cause, finding.key, finding.consumer, finding.scope, *finding.witness)
    return sum(len(escape(text).encode()) for text in texts) + 9 * len(finding.witness)


@dataclass(frozen=True, slots=True)
class _FilterChoices:
    """The numbers of rules, consumers and windows, and the counts by number."""

    codes: dict[str, int]
    consumers: dict[str, int]
    windows: dict[str, int]
    labels: tuple[tuple[str, str], ...]
    tallies: tuple[int, ...]

    @classmethod
    def from_findings(
        cls,
        codes: Iterable[str],
        consumers: Iterable[str],
        points: Sequence[Sequence[FindingPoint]],
        shown: Iterable[FindingView],
    ) -> _FilterChoices:
        """Build the choices; neighbouring windows are combined if there are too many windows or counts."""
        starts = {p.window_start for group in points for p in group} | {f.window for f in shown if f.window}
        ordered = sorted(starts, key=parse_us)
        code_of = {code: i for i, code in enumerate(codes)}
        consumer_of = {name: i for i, name in enumerate(consumers)}
        most = max(-(-len(ordered) // MAX_WINDOWS), 1)
        steps = [most << i for i in range(len(ordered).bit_length())] or [most]
        for step in (*steps, most):
            window_of = {start: i // step for i, start in enumerate(ordered)}
            sums: dict[tuple[int, ...], int] = defaultdict(int)
            for numbers, count in _list_counts(points, code_of, consumer_of, window_of):
                sums[numbers] += count
            if len(sums) <= MAX_TALLIES:
                break
        else:
            sums.clear()
        tallies = tuple(number for numbers in sorted(sums) for number in (*numbers, sums[numbers]))
        labels = tuple((ordered[i], ordered[min(i + step, len(ordered)) - 1]) for i in range(0, len(ordered), step))
        return cls(code_of, consumer_of, window_of, labels, tallies)

    def numbers(self, source: int, code: str, finding: FindingView) -> str:
        """Format the numbers of the choices that match a finding."""
        numbers = (
            source,
            self.codes[code],
            self.consumers.get(finding.consumer, NOT_OFFERED),
            self.windows.get(finding.window, NOT_OFFERED),
        )
        return " ".join(map(str, numbers))


def _list_counts(
    points: Sequence[Sequence[FindingPoint]], codes: dict[str, int], consumers: dict[str, int], windows: dict[str, int]
) -> Iterator[tuple[tuple[int, int, int, int], int]]:
    """Yield each count of an offered rule with the numbers of its choices."""
    for source, group in enumerate(points):
        for p in group:
            if p.code in codes:
                numbers = source, codes[p.code], consumers.get(p.consumer, NOT_OFFERED), windows[p.window_start]
                yield numbers, p.count
