"""Recorded share groups, audited without Spark: every finding of every topic, and why records came again."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.base import SourceTables
from subreplay.adapters.kafka_recording.kafka_recording_adapter import read_tables
from subreplay.audit.codes import Code, find_exemption
from subreplay.audit.explain.causes import Causes
from subreplay.audit.needs import Need
from subreplay.config.kafka_names import translate_policy_options
from subreplay.rows.model.columns import ints
from subreplay.rows.model.rows import RuleStatus
from subreplay.semantics.policies import make_policy
from tests.support.pure import NOTHING_TOLD, audit_by, judge_of

DATA = Path(__file__).parents[1] / "data"
RECORDED = sorted(
    path
    for name in ("kafka_share_groups", "kafka_share_recordings")
    for path in (DATA / name).iterdir()
    if path.is_dir()
)
History = dict[str, pa.Table]


class ShareAudit(NamedTuple):
    """``failing``: findings that fail; ``shown``: those that do not; ``causes``: of records that came again; all by
    name."""

    failing: Counter[str]
    shown: Counter[str]
    causes: Counter[str]


def folder_of(name: str) -> Path:
    """The folder of a recording whose name begins so."""
    return next(path for path in RECORDED if path.name.startswith(name))


@cache
def read(name: str) -> SourceTables:
    """The tables of a recording."""
    return read_tables(folder_of(name))


def audited(it: SourceTables, lacking: frozenset[Need] = frozenset(), **changed: pa.Table) -> ShareAudit:
    """The audit of a recording, with some of its tables ``changed``; ``lacking``: what its tables do not tell."""
    found = ShareAudit(Counter(), Counter(), Counter())
    every = {name: changed.get(name, it.tables[name]) for name in ("messages", "membership", "deliveries")}
    for topic in sorted(set(every["messages"]["topic"].to_pylist())):
        _audit_topic(
            it, {n: table.filter(pc.equal(table["topic"], topic)) for n, table in every.items()}, lacking, found
        )
    return found


def _audit_topic(it: SourceTables, tables: History, lacking: frozenset[Need], found: ShareAudit) -> None:
    requested = it.run["subscription"]
    options = translate_policy_options("kafka.share", requested["options"])
    position = it.run.get("topic", {}).get("initial_position")
    terms = replace(NOTHING_TOLD, initial_position=position, isolation=requested["isolation"])
    judge = judge_of(make_policy("kafka.share", requested["profile"], **options), tables, terms)
    judge = replace(judge, lacking=judge.lacking | lacking)
    rows = audit_by(judge, tables)
    codes, exemptions = ints(rows, "codes"), ints(rows, "excuses")
    for code in Code:
        fails = judge.rule_statuses[code] is RuleStatus.PROMISED
        for exemption in exemptions[codes & code.bit != 0].tolist():
            (found.failing if fails and not find_exemption(code, exemption) else found.shown)[code.name] += 1
    again = rows.filter(pa.array(codes & Code.REDELIVERED.bit != 0))
    causes = Causes(judge)
    found.causes.update(causes.find_causes(again, Code.REDELIVERED, causes.number_epochs(again)).to_pylist())
