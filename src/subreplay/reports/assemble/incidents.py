"""Build the incidents of a report: what happened, when, to whom, whose doing it is, and what to do next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from subreplay.audit.acts import SeenAct
from subreplay.audit.attribution import find_party
from subreplay.audit.codes import Code
from subreplay.audit.explain.causes import UNEXPLAINED
from subreplay.audit.explain.findings import WAITING_CODES
from subreplay.audit.incidents import find_actor, find_incidents, make_part_key
from subreplay.audit.rules.registry import RULES
from subreplay.reports.assemble.fault_matches import FaultMatcher, build_known_faults
from subreplay.reports.assemble.finding_views import build_finding_view
from subreplay.reports.assemble.incident_texts import ACT_STEP, CONSEQUENCES, INCIDENT_TEXTS
from subreplay.reports.figures import Figures, Row
from subreplay.reports.formatting import format_clock, format_count, format_plural, format_span
from subreplay.reports.incident_data import IncidentView, RuleCount
from subreplay.rows.model.columns import NEVER
from subreplay.rows.model.rows import Scope
from subreplay.rows.model.tables import TIME
from subreplay.rows.model.text_format import format_instant

MOST_NAMED: Final = 5
"""The largest number of consumers, partitions or causes that an incident names."""
GAPS: Final = 50
"""Findings are one incident if less than this part of the run separates them."""
INCIDENTS: Final = pa.schema(
    [
        pa.field("number", pa.int64()),
        pa.field("title", pa.string()),
        pa.field("detail", pa.string()),
        pa.field("verdict", pa.string()),
        pa.field("code", pa.string()),
        pa.field("codes", pa.list_(pa.string())),
        pa.field("start", TIME),
        pa.field("end", TIME),
        pa.field("ongoing", pa.bool_()),
        pa.field("findings", pa.int64()),
        pa.field("consumers", pa.list_(pa.string())),
        pa.field("scopes", pa.list_(pa.string())),
        pa.field("causes", pa.list_(pa.string())),
        pa.field("attribution", pa.string()),
        pa.field("next_step", pa.string()),
        pa.field("known_faults", pa.list_(pa.string())),
    ]
)
"""Table ``incidents``."""
_OUTAGES: Final = (*WAITING_CODES, Code.LOST)
_ALLOWED_INCIDENTS: Final = (Code.DROPPED, Code.ARCHIVED, Code.LATE_ACK)
_RANKS: Final = {code.name: rank for rank, code in enumerate(INCIDENT_TEXTS)}


def build_incidents(figures: Figures) -> tuple[IncidentView, ...]:
    """Build the incidents of an audit, the most severe first.

    Failing findings are grouped (``audit.incidents``). Acts of operators and clients, and dropped messages, are
    incidents that do not fail the run.
    """
    parts = [_apply_uncertainty(figures, part) for part in figures.incident_parts.to_pylist()]
    length = figures.extent["last"] - figures.extent["first"]
    groups = find_incidents(parts, max(figures.width, length // GAPS)) if parts else []
    examples = _assign_examples(figures, parts, groups)
    matcher = FaultMatcher(figures)
    found = [
        _build_incident(figures, [parts[number] for number in group], mine, matcher)
        for group, mine in zip(groups, examples, strict=True)
    ]
    found += [_build_act_incident(figures, seen) for seen in figures.acts]
    found += _build_allowed_incidents(figures)
    found.sort(key=_rank_severity)
    return tuple(replace(one, number=number) for number, one in enumerate(found, 1))


def build_incident_table(incidents: Sequence[IncidentView]) -> pa.Table:
    """Build table ``incidents``."""
    flat = [name for name in INCIDENTS.names if name not in ("codes", "start", "end", "known_faults")]
    rows = [
        {name: getattr(one, name) for name in flat}
        | {"codes": [rule.code for rule in one.rules], "known_faults": [fault.ticket for fault in one.known_faults]}
        | {"start": one.start_us, "end": one.end_us}
        for one in incidents
    ]
    return pa.Table.from_pylist(rows, schema=INCIDENTS)


def _rank_severity(one: IncidentView) -> tuple[Any, ...]:
    """Sort invalid incidents first, then outages, then by findings and time."""
    verdicts = ("invalid", "unknown", "valid")
    outage = one.code in [code.name for code in _OUTAGES]
    return verdicts.index(one.verdict), not outage, -one.findings, one.start_us, one.title


def _apply_uncertainty(figures: Figures, part: Row) -> dict[str, Any]:
    """Return a part with the cause that makes its rule inconclusive, if there is one."""
    code = Code[part["code"]]
    if code not in figures.inconclusive_rules:
        return dict(part)
    return {**part, "verdict": "unknown", "cause": _explain_uncertainty(figures, code), "attribution": "data"}


def _explain_uncertainty(figures: Figures, code: Code) -> str:
    fits = code is Code.WRONG_OWNER and figures.fit is not None
    return figures.fit.sentence if fits and figures.fit is not None else figures.clocks.sentence


def _assign_examples(figures: Figures, parts: Sequence[Row], groups: Sequence[Sequence[int]]) -> list[list[Row]]:
    """Assign the described findings of a run to the incidents that count them."""
    level = parts[0]["level"] if parts else 0
    numbers: dict[Hashable, int] = {}
    originals = figures.incident_parts.to_pylist()
    for number, group in enumerate(groups):
        for position in group:
            part = originals[position]
            numbers[make_part_key({**part, "actor": part["consumer"]}, level, figures.width)] = number
    found: list[list[Row]] = [[] for _ in groups]
    for row in figures.worst:
        if row["verdict"] != "valid":
            key = make_part_key({**row, "actor": find_actor(row)}, level, figures.width)
            if key in numbers:
                found[numbers[key]].append(row)
    return found


def _build_incident(
    figures: Figures, parts: Sequence[Row], examples: Sequence[Row], matcher: FaultMatcher
) -> IncidentView:
    """Build the view of one incident from its parts and its described findings."""
    verdict = "invalid" if any(part["verdict"] == "invalid" for part in parts) else "unknown"
    counts = _count_by(parts, "code")
    code = min(
        (part["code"] for part in parts if part["verdict"] == verdict), key=lambda name: _RANKS.get(name, len(_RANKS))
    )
    mine = [part for part in parts if part["code"] == code]
    first, last = min(part["first"] for part in parts), max(part["last"] for part in parts)
    ongoing = any(part["open"] for part in mine) and last >= figures.extent["last"]
    waits = [part["waited"] for part in mine if part["waited"] is not None]
    consumers = [*_count_by(mine, "consumer")]
    causes = [*_count_by(mine, "cause")] or [UNEXPLAINED]
    partitions = sorted(_count_by(parts, "partition"))
    scopes = [_name_scope(figures.topic, partition) for partition in partitions]
    attributions = _count_by(mine, "attribution")
    worst = max(
        (row for row in examples if row["code"] == code),
        key=lambda row: (row["waited"] or 0, bool(row["witness"])),
        default=None,
    )
    lasted, longest = format_span((last - first) // 1_000), format_span(max(waits, default=0) // 1_000)
    faults = [matcher.find_faults(row) for row in examples]
    text = INCIDENT_TEXTS.get(Code[code])
    uncertain = Code[code] in figures.inconclusive_rules
    title = RULES[Code[code]].title
    next_step = "" if text is None else _fill_in(text.next_step, figures, counts[code], consumers)
    if uncertain:
        title, _, next_step = (_capitalize(part) for part in causes[0].partition(": "))
    elif text is not None:
        form = (ongoing and text.ongoing) or (not waits and text.alone) or text.title
        title = _fill_in(form, figures, counts[code], consumers, max(waits, default=0), partitions)
        if also := next((other for other in CONSEQUENCES if other.name in counts and other.name != code), None):
            title += f", and {_fill_in(CONSEQUENCES[also], figures, counts[also.name], consumers)}"
    found = _make_view(
        (first, last),
        title,
        consumers,
        () if uncertain else causes,
        detail=_describe(code, counts, longest if ongoing and longest != lasted else ""),
        verdict=verdict,
        code=code,
        rules=tuple(
            RuleCount(name, RULES[Code[name]].title, _find_worst_verdict(parts, name), count)
            for name, count in sorted(counts.items(), key=lambda item: (item[0] != code, -item[1], item[0]))
        ),
        findings=sum(counts.values()),
        attribution=next(iter(attributions), ""),
        example=None if worst is None else build_finding_view(worst, figures.width, matcher.find_faults(worst)),
        next_step=next_step + "." if uncertain and next_step else next_step,
    )
    waiting = {row["consumer"] for row in examples if row["consumer"] and code == Code.STUCK.name}
    return replace(
        found,
        ongoing=ongoing,
        scopes=tuple(scopes[:MOST_NAMED]),
        scopes_left_out=max(0, len(scopes) - MOST_NAMED),
        known_faults=build_known_faults(faults),
        waiting=tuple(sorted(waiting - {*consumers})),
    )


def _make_view(
    span: tuple[int, int], title: str, consumers: Sequence[str], causes: Sequence[str], **given: Any
) -> IncidentView:
    """Make the view of an incident with its first and last instant (ns), without partitions or known faults."""
    first, last = span
    return IncidentView(
        number=0,
        title=title,
        start=format_instant(first),
        end=format_instant(last),
        start_us=first // 1_000,
        end_us=last // 1_000,
        lasted=format_span((last - first) // 1_000),
        ongoing=False,
        consumers=tuple(consumers[:MOST_NAMED]),
        consumers_left_out=max(0, len(consumers) - MOST_NAMED),
        scopes=(),
        scopes_left_out=0,
        causes=tuple(causes[:MOST_NAMED]),
        causes_left_out=max(0, len(causes) - MOST_NAMED),
        **given,
    )


def _find_worst_verdict(parts: Iterable[Row], code: str) -> str:
    return min(str(part["verdict"]) for part in parts if part["code"] == code)  # invalid before unknown


def _count_by(parts: Iterable[Row], name: str) -> dict[Any, int]:
    """Count the findings of parts by a column, without nulls, the most first."""
    counts: Counter[Any] = Counter()
    for part in parts:
        if part[name] is not None:
            counts[part[name]] += part["count"]
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _name_scope(topic: str, partition: int) -> str:
    return topic if partition < 0 else Scope(topic, partition).full_name


def _name_place(figures: Figures, partitions: Sequence[int]) -> str:
    """Name the concerned partitions, unless these are all."""
    if not partitions or len(partitions) == len(figures.plan.timelines):
        return "the subscription"
    return f"partition {partitions[0]}" if len(partitions) == 1 else format_plural(len(partitions), "partition")


def _fill_in(
    form: str, figures: Figures, count: int, consumers: Sequence[str], waited: int = 0, partitions: Sequence[int] = ()
) -> str:
    """Fill in the names of ``incident_texts``."""
    one = count == 1
    filled = form.format(
        messages=_format_share(count, figures.extent["messages"], "message"),
        deliveries=_format_share(count, figures.totals.get("deliveries", 0), "delivery", "deliveries"),
        batches=_format_share(count, figures.totals.get("entries", 0), "batch", "batches"),
        keys=format_plural(count, "key"),
        were="was" if one else "were",
        are="is" if one else "are",
        have="has" if one else "have",
        mix="mixes" if one else "mix",
        they="it" if one else "they",
        consumer=name_consumers(consumers),
        longest=format_span(waited // 1_000),
        place=_name_place(figures, partitions),
    )
    return _capitalize(filled)


def _format_share(count: int, total: int, one: str, many: str | None = None) -> str:
    whole = format_plural(total, one, many)
    return f"{format_count(count)} of {whole}" if 0 < count < total else format_plural(count, one, many)


def _capitalize(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def name_consumers(consumers: Sequence[str]) -> str:
    """Name up to three consumers, or their number.

    >>> name_consumers(["a"]), name_consumers(["a", "b"]), name_consumers(["a", "b", "c", "d"]), name_consumers([])
    ('consumer a', 'consumers a and b', '4 consumers', 'a consumer')
    """
    if not consumers:
        return "a consumer"
    if len(consumers) == 1:
        return f"consumer {consumers[0]}"
    if len(consumers) > 3:
        return format_plural(len(consumers), "consumer")
    return f"consumers {', '.join(consumers[:-1])} and {consumers[-1]}"


def _describe(code: str, counts: Mapping[str, int], waited: str) -> str:
    """Describe the longest wait of an incident and the other rules that it breaks."""
    sentences = [f"The longest wait is {waited}."] if waited else []
    others = [f"{count:,} × {name} ({RULES[Code[name]].title})" for name, count in counts.items() if name != code]
    if others:
        sentences.append(f"Also found: {', '.join(others)}.")
    return " ".join(sentences)


def describe_cause(one: IncidentView) -> str:
    """Describe the most frequent cause of an incident, and how many there are, as sentences."""
    if not one.causes:
        return ""
    if one.causes[0] == UNEXPLAINED:
        return "No recorded event explains it."
    others = len(one.causes) - 1 + one.causes_left_out
    more = f" There {'is' if others == 1 else 'are'} {format_plural(others, 'other cause')}." if others else ""
    stated = f"Cause: {one.causes[0]}" if one.verdict != "valid" else _capitalize(one.causes[0])  # an act is no fault
    return f"{stated}.{more}"


def _build_act_incident(figures: Figures, seen: SeenAct) -> IncidentView:
    """Build the incident of an act of an operator or a client, which does not fail the run."""
    act = seen.act
    end = act.until if act.until != NEVER else act.at
    start = end if act.how == "group" else act.at  # an empty group is no fault: what follows is
    code = Code.DUP_DELIVERY if seen.acknowledged else Code.REDELIVERED
    every = seen.acknowledged == seen.redelivered
    which = "{they}" if every else f"{format_count(seen.acknowledged)} of them"
    known = f", although {which} had been acknowledged" if seen.acknowledged else ""
    form = f"{{messages}} {{were}} redelivered because {seen.reason}{known}"
    sentence = act.describe(bool(seen.acknowledged))
    return _make_view(
        (start, end),
        _fill_in(form, figures, seen.redelivered, act.consumers),
        act.consumers,
        (sentence,),
        detail=f"The first is at {', '.join(seen.first[:MOST_NAMED])}.",
        verdict="valid",
        code=code.name,
        rules=(RuleCount(code.name, RULES[code].title, "valid", seen.redelivered),),
        findings=seen.redelivered,
        attribution="consumer application" if act.how == "sought" else "operator",
        example=None,
        next_step=ACT_STEP,
    )


def _build_allowed_incidents(figures: Figures) -> Iterator[IncidentView]:
    """Build the incidents of messages that their policy may drop, archive or do twice: a guarantee is kept, but the
    application may not expect it."""
    for code in _ALLOWED_INCIDENTS:
        if rows := [row for row in figures.findings if row["code"] == code.name]:
            yield _build_allowed_incident(figures, code, rows)


def _build_allowed_incident(figures: Figures, code: Code, rows: Sequence[Mapping[str, Any]]) -> IncidentView:
    count = sum(row["count"] for row in rows)
    first, last = min(row["window"] for row in rows), max(row["window"] for row in rows) + figures.width
    last = max(first, min(last, figures.extent["last"]))
    text = INCIDENT_TEXTS[code]
    messages = figures.extent["messages"] if "{messages}" in text.title else 0
    share = f" ({count / messages:.1%})" if messages else ""
    examples = [row for row in figures.worst if row["code"] == code.name]
    return _make_view(
        (first, last),
        _fill_in(text.title.replace("{were}", share.strip() + " {were}"), figures, count, ()),
        (),
        (RULES[code].cause,),
        detail="",
        verdict="valid",
        code=code.name,
        rules=(RuleCount(code.name, RULES[code].title, "valid", count),),
        findings=count,
        attribution=find_party(code),
        example=build_finding_view(examples[0], figures.width) if examples else None,
        next_step=text.next_step,
    )


def describe_time(one: IncidentView, day: str | None) -> str:
    """Describe since when and for how long an incident lasted, as a sentence."""
    start = format_clock(one.start, day)
    if not one.lasted or one.start_us == one.end_us:
        return f"At {start} UTC."
    return f"Since {start} UTC, for {one.lasted}{', until the data end' if one.ongoing else ''}."
