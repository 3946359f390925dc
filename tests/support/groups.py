"""Recorded Kafka groups, audited without Spark: every finding of every topic, and why records came again."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.base import SourceTables
from subreplay.adapters.kafka_recording.kafka_recording_adapter import read_tables
from subreplay.audit.codes import Code, Exemption, find_exemption
from subreplay.audit.explain.causes import Causes
from subreplay.audit.needs import Need
from subreplay.audit.rules.assignments import GroupEvents, find_assignment_findings
from subreplay.rows.model.rows import RuleStatus
from subreplay.semantics.policies import make_policy
from subreplay.semantics.timelines.membership import build_dispatcher_events
from tests.support.pure import NOTHING_TOLD, audit_by, judge_of

DATA = Path(__file__).parents[1] / "data"
RECORDED = [*sorted(p for p in (DATA / "kafka_groups").iterdir() if p.is_dir()), DATA / "kafka_recordings/k16_slow"]


class Audited(NamedTuple):
    """``findings``: how many of each code and exemption that are promised; ``causes``: of records that came again;
    ``lost``: of records that never came."""

    findings: Counter[tuple[str, str]]
    causes: Counter[str]
    lost: Counter[str]
    rejected: int

    @property
    def failing(self) -> dict[str, int]:
        """Findings that fail, by code."""
        return {code: count for (code, exemption), count in sorted(self.findings.items()) if not exemption}

    @property
    def exempt(self) -> dict[str, int]:
        """Findings that are legal, by code and excuse."""
        return {f"{code} {exemption}": count for (code, exemption), count in sorted(self.findings.items()) if exemption}


def audited(folder: Path) -> Audited:
    """The audit of a recording."""
    return audit_ingested(read_tables(folder))


def audit_ingested(it: SourceTables, lacking: frozenset[Need] = frozenset()) -> Audited:
    """The audit of a recording that was read; ``lacking``: what its tables do not tell."""
    requested = it.run["subscription"]
    policy = make_policy(requested["policy"], requested["profile"])
    terms = replace(NOTHING_TOLD, initial_position=it.run.get("topic", {}).get("initial_position"))
    found = Audited(Counter(), Counter(), Counter(), len(it.rejected))
    topics = sorted(set(it.tables["messages"]["topic"].to_pylist()))
    for topic in topics:
        tables = {
            name: it.tables[name].filter(pc.equal(it.tables[name]["topic"], topic))
            for name in ("messages", "membership", "deliveries")
        }
        judge = replace(judge_of(policy, tables, terms), lacking=lacking)
        rows = audit_by(judge, tables)
        codes, exemptions = rows["codes"].to_numpy(), rows["excuses"].to_numpy()
        for code in (code for code in Code if judge.rule_statuses[code] is RuleStatus.PROMISED):
            reported = (find_exemption(code, int(exemption)) for exemption in exemptions[codes & code.bit != 0])
            found.findings.update((code.name, exemption.name if exemption else "") for exemption in reported)
        causes = Causes(judge)
        for code, counted in ((Code.REDELIVERED, found.causes), (Code.LOST, found.lost)):
            mine = rows.filter(pa.array(codes & code.bit != 0))
            if mine.num_rows:
                counted.update(causes.find_causes(mine, code, causes.number_epochs(mine)).to_pylist())
        story = _story(it, topic, tables)
        told_of = (
            (f.code.name, Exemption(f.exemption).name if f.exemption else "")
            for f in find_assignment_findings(policy, story)
        )
        found.findings.update(told_of)
    return found


def _story(it: SourceTables, topic: str, tables: dict[str, pa.Table]) -> GroupEvents:
    here = tables["membership"].to_pylist()
    elsewhere = it.tables["membership"].filter(pc.not_equal(it.tables["membership"]["topic"], topic)).to_pylist()
    partitions = sorted(set(tables["messages"]["partition"].to_pylist()))
    return GroupEvents.from_rows(build_dispatcher_events(here, [(topic, n) for n in partitions]), here, elsewhere)
