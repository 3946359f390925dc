"""Explain a run without running it: what it reads, how it judges, and what it writes (``--explain-config``).

Only the run file is read. Tables are not opened, so that a rule may still lack data that the tables turn out not to
have.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

from subreplay.adapters import ADAPTERS
from subreplay.adapters.source.column_mapping import parse_mapping
from subreplay.adapters.source.source_presets import PRESETS
from subreplay.audit.needs import Need
from subreplay.audit.rules.registry import find_missing_needs, find_rule_statuses
from subreplay.config.engines import select_engine
from subreplay.config.fields import format_duration
from subreplay.config.live import LIVE
from subreplay.config.run import RunConfig
from subreplay.config.secrets import PLAIN, show_location
from subreplay.config.traffic import InputTable
from subreplay.pipeline.engines import find_spark_environment
from subreplay.pipeline.table_schemas import PREFIXES, RunKind, list_result_tables
from subreplay.reports.assemble.finding_views import explain_not_evaluated
from subreplay.reports.text_layout import TextPage
from subreplay.rows.model.rows import RuleStatus
from subreplay.rows.model.tables import INPUTS

Section = Mapping[str, str | list[str] | dict[str, list[str]]]
"""What a run reads, for example: texts, lists of names, and lists of names by reason."""

_THRESHOLDS: Final = ("stalled_after", "stuck_after", "starved_after", "late_after")


def explain_run(kind: RunKind, run: RunConfig) -> dict[str, Section]:
    """Explain a run in sections ``read``, ``judged`` and ``written``. A what-if has ``compared`` instead of ``judged``,
    and a plan has ``planned``.

    Raises ``ConfigError`` if the run cannot be executed as it is written.
    """
    judged: Section = {**dict(_explain_judging(run)), **_explain_rules(run)} if kind == "audit" else {}
    found: dict[str, Section] = {
        "read": dict(_explain_input(kind, run)),
        "judged": {name: value for name, value in judged.items() if value},
        "compared": dict(_explain_scenarios(run)) if kind != "plan" else {},
        "planned": dict(_explain_plan(run)) if kind == "plan" else {},
        "written": dict(_explain_output(kind, run)),
    }
    return {title: section for title, section in found.items() if section}


def format_explanation(sections: Mapping[str, Section], width: int) -> Iterator[str]:
    """Lay out the sections for a terminal."""
    page = TextPage(width)
    for title, pairs in sections.items():
        page.add_heading(title.capitalize())
        page.add_pairs(_format_values(pairs))
    return (line.plain for line in page.lines)


def _format_values(section: Section) -> Iterator[tuple[str, str]]:
    for name, value in section.items():
        label = name.replace("_", " ")
        if isinstance(value, dict):
            for number, (reason, names) in enumerate(value.items()):
                yield "" if number else label, f"{reason}: {', '.join(names)}"
        else:
            yield label, value if isinstance(value, str) else ", ".join(value)


def _explain_input(kind: RunKind, run: RunConfig) -> Iterator[tuple[str, str]]:
    engine = select_engine(run, find_spark_environment(os.environ))  # pyspark need not be installed here
    yield "engine", f"{engine.engine}, because {engine.reason}"
    traffic, needed = run.traffic, [*INPUTS]
    if kind != "audit":
        members = kind == "plan" or any(each.members == "recorded" for each in run.scenarios)
        needed = needed[: 3 if kind == "plan" and run.plan.service == "fitted" else 2 if members else 1]
        if traffic.profile is not None:
            yield "profile", f"delta, {traffic.profile}/profile: read instead of the messages if it exists"
    for name in needed:
        section: InputTable | None = getattr(traffic, name)
        if section is None:
            yield name, f"{traffic.format}, {traffic.path.rstrip('/')}/{name}: canonical columns"
        elif name == "membership" and traffic.infers_membership():
            yield name, "inferred from deliveries: every consumer that received a message was a member"
        else:
            yield name, _explain_table(name, section)
    if run.date is None:
        yield "days", "all that the tables contain"
    else:
        first = run.date - timedelta(days=traffic.lookback_days)
        earlier = f", messages from {first} on (traffic.lookback_days)" if traffic.lookback_days else ""
        yield "days", f"{run.date}{earlier}"


def _explain_table(name: str, section: InputTable) -> str:
    """Explain where a table is and how its columns become canonical ones."""
    if section.from_ in LIVE:
        return f"{section.location}, a running cluster"
    if section.from_ in ADAPTERS:
        return f"files of {section.from_}, {section.location}"
    form = "a table" if section.table is not None else section.format
    mapping = parse_mapping({"columns": section.columns, "values": section.values}, name)
    parts = [f"the columns of {section.from_} ({PRESETS[section.from_].title})"] if section.from_ in PRESETS else []
    for column, source in mapping.columns.items():
        if source is None:
            parts.append(f"{column} stays null")
        else:
            read = "the file's path" if source.column is None else f"`{source.column}`"
            parts.append(f"{column} from {read}" + (f" as {source.as_}" if source.as_ else ""))
    parts += [f"{column} is {value!r}" for column, value in mapping.values.items()]
    return f"{form}, {section.location}: {'; '.join(parts) or 'canonical columns'}"


def _explain_judging(run: RunConfig) -> Iterator[tuple[str, str]]:
    of = run.subscription
    if run.subscriptions is None:
        yield "subscription", of.name
        yield "topic", of.topic or "the only one of this subscription in the tables"
    else:
        for number, entry in enumerate(run.subscriptions, 1):
            thresholds = {name: _format_threshold(name, value) for name, value in entry.thresholds.items()}
            settings = {**entry.changes, **thresholds, **({"owner": entry.owner} if entry.owner else {})}
            own = ", ".join(f"{key} {value}" for key, value in settings.items() if value != {})
            yield f"subscriptions {number}", f"those that match {entry.words}" + (f"; {own}" if own else "")
    options = ", ".join(f"{name} {value}" for name, value in of.options.items())
    yield "policy", of.policy + (f"; {options}" if options else "")
    yield "profile", of.profile
    terms = {name: run.liveness.threshold(name, of.policy, run.topic) for name in _THRESHOLDS}
    yield "thresholds", ", ".join(f"{key} {_format_threshold(key, ns and ns // 1_000)}" for key, ns in terms.items())
    required = [f"{key} {value}" for key, value in run.require if key != "quiet_days" and value]
    yield "required", f"at least {', '.join(required)}; otherwise the verdict is unknown" if required else ""
    tolerated = [f"{key} {value:.1%}" for key, value in run.tolerate if value]
    yield "tolerated", f"rows in quarantine: {', '.join(tolerated)}" if tolerated else ""


def _format_threshold(name: str, value: int | None) -> str:
    return str(value) if name not in _THRESHOLDS else format_duration(value) if value else "off"


def _explain_rules(run: RunConfig) -> Section:
    """Explain which rules fail the run, which are only shown, and why others do not apply."""
    policy, terms, lacking = run.subscription.make_policy(), run.terms, _find_lacking(run)
    statuses = find_rule_statuses(policy, terms, lacking)
    reasons: dict[str, list[str]] = {}
    missing = find_missing_needs(policy, terms, lacking)
    for code, status in statuses.items():
        if not status.is_evaluated:
            reasons.setdefault(explain_not_evaluated(code, policy, missing), []).append(code.name)
    return {
        "rules_that_fail": [code.name for code, status in statuses.items() if status is RuleStatus.PROMISED],
        "rules_that_show": [code.name for code, status in statuses.items() if status is RuleStatus.ALLOWED],
        "not_applicable": reasons,
    }


def _find_lacking(run: RunConfig) -> frozenset[Need]:
    """Find what the run file says that the tables lack."""
    traffic = run.traffic
    known = {
        Need.EXACT_MEMBERSHIP: traffic.infers_membership(),
        Need.PRIORITIES: traffic.membership is not None and traffic.membership.ranked is False,
        Need.EVERY_DELIVERY: traffic.deliveries is not None and traffic.deliveries.sampled is True,
    }
    return frozenset(need for need, lacks in known.items() if lacks)


def _explain_scenarios(run: RunConfig) -> Iterator[tuple[str, str]]:
    for scenario in run.scenarios:
        members = scenario.members if isinstance(scenario.members, str) else f"{len(scenario.members)} listed"
        replayed = "" if getattr(scenario, "dispatch", None) is None else "; replayed message by message"
        yield scenario.name, f"{scenario.policy} of {scenario.profile}, members: {members}{replayed}"


def _explain_plan(run: RunConfig) -> Iterator[tuple[str, str | list[str]]]:
    of = run.plan
    yield "consumers", str(of.consumers)
    yield "policies", of.policies or "those of the same broker"
    yield "window", f"{format_duration(of.window)}, loads in {of.measure}"
    if of.service is None:
        yield "service", "none: questions about time need one (plan.service)"
    else:
        yield "service", of.service if isinstance(of.service, str) else of.service.model
    if of.factor != 1:
        yield "factor", f"{of.factor:g} times the recorded traffic"


def _explain_output(kind: RunKind, run: RunConfig) -> Iterator[tuple[str, str | list[str]]]:
    replays = any(getattr(each, "dispatch", None) is not None for each in run.scenarios)
    daily = run.date is not None
    yield "tables", list_written_tables(kind, daily=daily, replays=replays)
    yield "location", f"delta, {run.output.tables}"
    day = "all days" if run.date is None else str(run.date)
    several = kind == "audit" and run.subscriptions is not None
    if not several:
        yield "replaced", f"only earlier rows of {run.subscription.name}, its topic and {day}"
    else:
        yield "replaced", f"only earlier rows of these subscriptions, their topics and {day}"
    files = "report.html, report.txt and report.json"
    if several:
        files = f"overview.html and overview.json; of each subscription a folder with {files}"
    yield "report", f"{run.output.report}: {files}"
    yield "keys", _explain_keys(run)
    if kind == "audit" and run.output.metrics is not None:
        yield "metrics", run.output.metrics
    if kind == "audit" and run.alerts.targets:
        targets = [
            target.kind + ("" if target.owner == "*" else f" of {target.owner}") for target in run.alerts.targets
        ]
        yield "alerts", f"{', '.join(targets)}; about incidents that are {', '.join(run.alerts.changes)}"


def _explain_keys(run: RunConfig) -> str:
    if run.keys.show:
        return "as plain text"
    location = show_location(run.keys.secret)
    if run.keys.secret.kind != PLAIN:
        secret: Any = ", ".join(f"{{{kind}: {where}}}" for kind, where in dict(location).items())  # type: ignore[arg-type]
        return f"as digests with the secret at {secret}"
    return "as digests with " + ("the default secret" if run.keys.guessable else "the secret in the run file")


def list_written_tables(kind: RunKind, *, daily: bool, replays: bool) -> list[str]:
    """List the names of the tables that a run writes. ``replays``: a scenario has a dispatch section."""
    names = list_result_tables(kind, daily=daily, retracts=daily, replays=replays)
    return [f"{PREFIXES[kind]}{name}" for name in (*names, "runs")]
