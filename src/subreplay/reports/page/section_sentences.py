"""Write the sentence that begins each section of the page: what to see there, with its figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from subreplay.reports.data import ConsumerTotal, RangeMap, ReportData
from subreplay.reports.finding_data import CodeSummary
from subreplay.reports.formatting import format_clock, format_count, format_percent, format_plural, format_ratio
from subreplay.reports.page.chart_canvas import format_stretch
from subreplay.reports.page.chart_share import EpochMoves
from subreplay.reports.page.chart_time import LoadOverTime

NEAR = 0.1  # a skew that differs from 1 by at most this is even
MAX_NAMED = 3


def write_sentences(
    data: ReportData, load: LoadOverTime, moved: Sequence[EpochMoves], day: str | None
) -> dict[str, str]:
    """Write the sentence of each section by its name; empty if the section has no figures."""
    return {
        "incidents": describe_incidents(data),
        "facts": describe_coverage(data),
        "findings": describe_findings(data, day),
        "load": describe_load(data.totals),
        "skew": describe_skew(data.totals, load),
        "map": describe_map(data.range_maps, day),
        "moves": describe_moves(moved, day),
        "keys": describe_hot_keys(data),
        "rules": describe_rules(data.codes),
        "input": describe_input(data),
        "limits": describe_limits(data),
    }


def describe_incidents(data: ReportData) -> str:
    """Count the incidents by verdict."""
    if not data.incidents:
        return ""
    unknown = sum(incident.verdict == "unknown" for incident in data.incidents)
    broken = len(data.incidents) - unknown
    parts = [f"{format_count(broken)} violate{'s' if broken == 1 else ''} a guarantee"] if broken else []
    parts += [f"{format_count(unknown)} {'is' if unknown == 1 else 'are'} inconclusive"] if unknown else []
    findings = format_plural(sum(incident.findings for incident in data.incidents), "finding")
    if len(data.incidents) == 1:
        return f"All {findings} belong to one incident." if findings != "1 finding" else "There is one finding."
    return (
        f"{findings} in {format_plural(len(data.incidents), 'incident')}, the most severe first: {' and '.join(parts)}."
    )


def describe_coverage(data: ReportData) -> str:
    """Say how much of the evidence was judged."""
    seen = data.coverage
    if seen is None:
        return ""
    messages, deliveries = (
        format_plural(seen.messages, "message"),
        format_plural(seen.deliveries, "delivery", "deliveries"),
    )
    rejected = sum(row.quarantined for row in data.inputs)
    rows = format_plural(rejected, "row is", "rows are") if rejected else "no row is"
    consumers = f"{format_plural(seen.consumers, 'consumer')} in {format_plural(seen.epochs, 'epoch')}"
    evidence = f"{messages} and {deliveries} to {consumers}"
    return f"The rules could judge {format_percent(seen.share_judged)} of the rows: {evidence}; {rows} in quarantine."


def describe_findings(data: ReportData, day: str | None) -> str:
    """Name the rules with the most findings, and the busiest window."""
    found = sorted((code for code in data.codes if code.count), key=lambda code: -code.count)
    if not found:
        return ""
    most = [f"{format_count(code.count)} of {code.code}" for code in found[:MAX_NAMED]]
    rest = len(found) - len(most)
    names = _join([*most, *([f"{format_plural(rest, 'other rule')}"] if rest else [])])
    total = format_plural(sum(code.count for code in found), "finding")
    text = f"{total}: {names}." if len(found) > 1 else f"{total} of {found[0].code}."
    windows: Counter[str] = Counter()
    for point in data.findings_over_time:
        windows[point.window_start] += point.count
    if len(windows) > 1:
        start = max(sorted(windows), key=windows.__getitem__)
        text += f" The window from {format_clock(start, day)} has the most, {format_count(windows[start])}."
    return text


def describe_load(totals: Sequence[ConsumerTotal]) -> str:
    """Name the consumer with the most messages for its fair share, those without any, and the range of the others."""
    messages = sum(total.messages for total in totals)
    served = [total for total in totals if total.messages]
    idle = [total.consumer for total in totals if not total.messages]
    if not served:
        return ""
    unserved = f" {_list_names(idle)} received nothing." if idle else ""
    if len(served) == 1:
        return f"{served[0].consumer} received all {format_plural(messages, 'message')}.{unserved}"
    if all(abs(total.skew - 1) <= NEAR for total in served):
        everybody = f"All {len(served)} consumers" if not idle else f"The other {len(served)} consumers"
        return f"{everybody} are within 10% of their fair share of {format_plural(messages, 'message')}.{unserved}"
    top = max(served, key=lambda total: total.skew)
    others = [total.skew for total in served if total is not top]
    low, high = min(others), max(others)
    if max(abs(low - 1), abs(high - 1)) <= NEAR:
        rest = "the others are within 10% of their fair share"
    elif format_ratio(low) == format_ratio(high):
        rest = f"the {'other' if len(others) == 1 else 'others'} received {format_ratio(low)}"
    else:
        rest = f"the others received {format_ratio(low)} to {format_ratio(high)}"
    share = f"{format_percent(top.share)} of the messages, {format_ratio(top.skew)} its fair share"
    return f"{top.consumer} received {share}; {rest}.{unserved}"


def describe_skew(totals: Sequence[ConsumerTotal], load: LoadOverTime) -> str:
    """Name the window with the largest excess over a fair share, in messages."""
    cells = [cell for cell in load.cells if cell.skew > 1]
    if not cells:
        return "No consumer received more than its fair share in any window." if load.cells else ""
    worst = max(cells, key=lambda cell: cell.messages * (1 - 1 / cell.skew))
    excess = round(worst.messages * (1 - 1 / worst.skew))
    return (
        f"The largest excess: {worst.consumer} received {format_ratio(worst.skew)} its fair share from "
        f"{format_stretch(worst.start, worst.end)}, {format_plural(excess, 'message')} more."
    )


def describe_map(maps: Sequence[RangeMap], day: str | None) -> str:
    """Count the changes of the owners, and name the largest owner at the end."""
    with_epochs = [mapped for mapped in maps if mapped.epochs]
    if not with_epochs:
        return ""
    changes = sum(len(mapped.epochs) - 1 + mapped.epochs_left_out for mapped in with_epochs)
    times = "never changed" if not changes else f"changed {format_plural(changes, 'time')}"
    last = [mapped.epochs[-1] for mapped in with_epochs]
    if with_epochs[0].axis == "partition":
        owned = Counter(band.consumer or "nobody" for epoch in last for band in epoch.bands)
        most = max(sorted(owned), key=owned.__getitem__, default="")
        end = f"{most} owned {owned[most]} of {format_plural(len(last), 'partition')}" if most else ""
    else:
        shares = [share for share in last[0].shares if share.consumer is not None]
        top = max(shares, key=lambda share: share.share, default=None)
        end = f"{top.consumer} owned {format_percent(top.share)} of the slots" if top and len(last) == 1 else ""
    since = f" from {format_clock(last[0].start, day)}" if changes and len(last) == 1 else ""
    return f"The owners {times}." + (f" In the last epoch{since}, {end}, the most." if end else "")


def describe_moves(moved: Sequence[EpochMoves], day: str | None) -> str:
    """Name the change that moved the most traffic."""
    if not moved:
        return ""
    largest = max(moved, key=lambda group: (group.share_of_traffic, group.share_of_space))
    what = (
        f"{format_percent(largest.share_of_traffic)} of the traffic ({format_plural(largest.keys, 'key')})"
        if largest.share_of_traffic
        else f"{format_percent(largest.share_of_space)} of the slots, and no traffic"
    )
    changes = format_plural(len(moved), "change of the consumers", "changes of the consumers")
    return f"{changes} moved keys. The largest, at {format_clock(largest.at, day)}, moved {what}."


def describe_hot_keys(data: ReportData) -> str:
    """Say how much of the traffic the hottest keys are."""
    if not data.hot_keys:
        return ""
    first, keys = data.hot_keys[0], len(data.hot_keys)
    together = format_percent(min(sum(key.share for key in data.hot_keys), 1))
    rest = f" The {format_count(keys)} hottest keys have {together} together." if keys > 1 else ""
    return f"Key {first.key} has {format_percent(first.share)} of the messages.{rest}"


def describe_rules(codes: Sequence[CodeSummary]) -> str:
    """Count the rules by what they found."""
    if not codes:
        return ""
    by_status: Counter[str] = Counter(code.status for code in codes)
    words = (
        ("violated", "is violated", "are violated"),
        ("unknown", "is inconclusive", "are inconclusive"),
        ("allowed", "has findings that the policy allows", "have findings that the policy allows"),
        ("counted", "only counts", "only count"),
        ("clean", "found nothing", "found nothing"),
        ("not applicable", "does not apply", "do not apply"),
    )
    parts = [
        f"{format_count(by_status[status])} {one if by_status[status] == 1 else many}"
        for status, one, many in words
        if by_status[status]
    ]
    return f"Of {format_plural(len(codes), 'rule')}, {_join(parts)}."


def describe_input(data: ReportData) -> str:
    """Count the rows that were read and rejected."""
    rows, rejected = sum(row.rows_in for row in data.inputs), sum(row.quarantined for row in data.inputs)
    if not data.inputs:
        return ""
    if not rejected:
        return f"All {format_plural(rows, 'row')} of the input are valid."
    why = f" Most: {data.quarantine[0].rule}." if data.quarantine else ""
    part = format_percent(rejected / rows)
    return f"{format_count(rejected)} of {format_plural(rows, 'row')} ({part}) are in quarantine and not judged.{why}"


def describe_limits(data: ReportData) -> str:
    """Count the limits."""
    return f"{format_plural(len(data.cannot_tell), 'limit')} of every figure above." if data.cannot_tell else ""


def _list_names(names: Sequence[str]) -> str:
    rest = len(names) - MAX_NAMED
    return _join([*names[:MAX_NAMED], *([f"{format_count(rest)} more"] if rest > 0 else [])])


def _join(parts: Sequence[str]) -> str:
    """Join parts with commas, and the last one with "and"."""
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else "".join(parts)
