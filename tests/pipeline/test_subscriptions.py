"""Many subscriptions in one run: each has the rows and the report of an audit by itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from subreplay.config.run import RunConfig, parse
from subreplay.engine.interface import Engine
from subreplay.engine.local.engine import LocalEngine
from subreplay.errors import NoMatchingRows
from subreplay.pipeline import story, subscriptions
from subreplay.pipeline.topic_audits import AuditTopics
from subreplay.reports.json_report import to_json
from subreplay.reports.write import write_overview
from subreplay.rows.chunks import BY_TOPIC
from tests.support.history import History, history
from tests.support.tables import OF_ONE_ENGINE, OF_ONE_RUN

DAYS = ["2023-11-14", "2023-11-15"]
"""That of all rows, and the day after."""
ORDERS, BILLS = "persistent://shop/eu/orders", "persistent://shop/eu/bills"
KEYED = {"policy": "pulsar.key_shared.auto_split", "profile": "pulsar-4.0"}
KEPT = history("a1 a2 n1", "+C1 a1>C1 a1! a2>C1 a2! n1>C1 n1!")
BROKEN = history("a1 a2 a3 n1", "+C1 a1>C1 +C2 a2>C2 a1! a2! a3>C2 a3! n1>C1 n1!")
"""The messages of a key go to another consumer before the first one is acknowledged."""


def named(tables: History, subscription: str, topic: str, messages: bool = True) -> History:
    """The same tables of another subscription and topic; its messages may be those of another one."""
    of = {"subscription": subscription, "topic": topic}
    found = {}
    for name, rows in tables.items():
        if name == "messages" and not messages:
            rows = rows.slice(0, 0)
        for column in rows.column_names:
            if column in of:
                place, kind = rows.schema.get_field_index(column), rows.schema.field(column)
                rows = rows.set_column(place, kind, pa.repeat(pa.scalar(of[column], kind.type), len(rows)))
        found[name] = rows
    return found


def stored(folder: Path, *parts: History) -> None:
    """Write the rows of several histories as input tables."""
    for name in ("messages", "membership", "deliveries"):
        (folder / name).mkdir(parents=True)
        pq.write_table(pa.concat_tables([part[name] for part in parts]), folder / name / "part.parquet")


def several(folder: Path, given: Any = "all", **sections: Any) -> RunConfig:
    """A run of several subscriptions over the tables in a folder."""
    raw = {
        "traffic": {"path": f"{folder}/in", "format": "parquet"},
        "subscription": KEYED,
        "subscriptions": given,
        "output": {"tables": f"{folder}/several", "report": f"{folder}/report"},
    }
    return parse(raw | sections, "run.yaml", date=sections.get("date"))


def alone(run: RunConfig, folder: Path, name: str, topic: str) -> RunConfig:
    """The run of one subscription by itself, with the settings of one of several."""
    subscription = run.subscription.model_copy(update={"name": name, "topic": topic})
    output = run.output.model_copy(update={"tables": f"{folder}/alone"})
    return run.model_copy(update={"subscription": subscription, "subscriptions": None, "output": output})


def rows_of(folder: Path) -> dict[str, list[str]]:
    """The rows of each table below a folder, in order, but for the attempt that wrote them."""
    found = {}
    for path in sorted(folder.iterdir()):
        rows = DeltaTable(path).to_pyarrow_table()
        names = sorted({*rows.column_names} - OF_ONE_RUN - OF_ONE_ENGINE)
        found[path.name] = sorted(map(repr, rows.select(names).to_pylist()))
    return found


def report_of(text: str | bytes) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(text)
    del report["run"]["engine"]
    return report


THREE = {("billing", ORDERS): "invalid", ("mail", ORDERS): "valid", ("billing", BILLS): "valid"}


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """A folder with the tables of two subscriptions of one topic, and of one of another topic."""
    parts = [named(BROKEN, "billing", ORDERS), named(KEPT, "mail", ORDERS, False), named(KEPT, "billing", BILLS)]
    stored(tmp_path / "in", *parts)
    return tmp_path


def verdicts(found: subscriptions.Audits) -> Mapping[tuple[str, str], str]:
    return {(row.subscription, row.topic): row.verdict for row in found.overview.rows}


@pytest.mark.parametrize("dates", [[None], DAYS], ids=["all dates at once", "one date after the other"])
def test_each_of_several_subscriptions_has_the_rows_and_the_report_of_an_audit_by_itself(
    engine: Engine, three: Path, dates: list[str | None]
) -> None:
    for date in dates:
        run = several(three, date=date)
        found = subscriptions.audit(engine, run)
        with LocalEngine(cores=1) as local:
            reports = {pair: story.audit(local, alone(run, three, *pair)).report for pair in THREE}
    assert rows_of(three / "several") == rows_of(three / "alone")
    assert {(row.subscription, row.topic): report_of(report) for row, report, _ in found.reports()} == {
        pair: report_of(to_json(report)) for pair, report in reports.items()
    }
    assert dates != [None] or verdicts(found) == THREE


def test_a_subscription_that_cannot_be_audited_does_not_stop_the_others(engine: Engine, tmp_path: Path) -> None:
    """Every delivery of one is rejected, another one is not in the tables, a third has a profile without its policy."""
    lost = named(KEPT, "lost", BILLS)
    place = lost["deliveries"].schema.get_field_index("redelivery_count")
    negative = pc.subtract(lost["deliveries"]["redelivery_count"], pa.scalar(1, pa.int32()))
    lost["deliveries"] = lost["deliveries"].set_column(place, lost["deliveries"].schema.field(place), negative)
    stored(tmp_path / "in", named(KEPT, "mail", ORDERS), lost)
    found = subscriptions.audit(engine, several(tmp_path, ["mail", "lost", {"name": "payments", "owner": "ann"}]))
    rows = {row.subscription: row for row in found.overview.rows}
    assert {name: (row.verdict, row.exit_code) for name, row in rows.items()} == {
        "mail": ("valid", 0), "lost": ("failed", 2), "payments": ("failed", 3),
    }  # fmt: skip
    assert "all 3 rows" in rows["lost"].sentence or "redelivery_count" in rows["lost"].sentence
    assert "no subscription 'payments'; it has subscriptions 'lost', 'mail'" in rows["payments"].sentence
    assert rows["payments"].owner == "ann"
    assert found.overview.exit_code == 2
    runs = DeltaTable(f"{tmp_path}/several/runs").to_pyarrow_table()
    assert runs["subscription"].to_pylist() == ["mail"]


def test_64_topics_in_one_table_are_read_together_and_written_in_one_transaction(tmp_path: Path) -> None:
    topics = [f"persistent://shop/eu/{number:02}" for number in range(64)]
    stored(tmp_path / "in", *(named(KEPT if number else BROKEN, "sub", t) for number, t in enumerate(topics)))
    opened: list[str] = []

    class Counting(LocalEngine):
        def scan(self, source: Any) -> Any:
            opened.append(str(source.path))
            return super().scan(source)

    with Counting(cores=1) as engine:
        found = subscriptions.audit(engine, several(tmp_path))
    assert len(found.overview.rows) == 64
    assert [row.topic for row in found.overview.rows if row.verdict == "invalid"] == topics[:1]
    names = [Path(path).name for path in opened]
    assert [names.count(name) for name in ("messages", "membership", "deliveries")] == [1, 1, 1]
    for path in (tmp_path / "several").iterdir():
        assert DeltaTable(path).version() <= 1, path.name


def test_a_run_of_some_subscriptions_replaces_the_rows_of_these(three: Path) -> None:
    run = several(three)
    with LocalEngine(cores=1) as engine:
        subscriptions.audit(engine, run)
        before = rows_of(three / "several")
        subscriptions.audit(engine, run)
        assert rows_of(three / "several") == before
        found = subscriptions.audit(engine, run, only=["mail"])
        assert verdicts(found) == {("mail", ORDERS): "valid"}
        assert rows_of(three / "several") == before
        story.audit(engine, several(three).of_entry(run.subscriptions[0], "mail", ORDERS))  # type: ignore[index]
    assert rows_of(three / "several") == before


def test_only_selects_by_name_or_topic(three: Path) -> None:
    with LocalEngine(cores=1) as engine:
        by_topic = subscriptions.audit(engine, several(three), only=["*/bills", "mail"])
        assert {*verdicts(by_topic)} == {("billing", BILLS), ("mail", ORDERS)}
        with pytest.raises(NoMatchingRows, match=r"no subscription matches x-\*; it has subscriptions"):
            subscriptions.audit(engine, several(three), only=["x-*"])


def test_the_first_entry_that_matches_gives_the_settings(three: Path) -> None:
    shared = {"name": "b*", "topic": "*/orders", "policy": "pulsar.shared", "owner": "ann"}
    with LocalEngine(cores=1) as engine:
        found = subscriptions.audit(engine, several(three, [shared, {"name": "billing", "owner": "bob"}]))
    rows = {(row.subscription, row.topic): row for row in found.overview.rows}
    assert {pair: row.owner for pair, row in rows.items()} == {("billing", ORDERS): "ann", ("billing", BILLS): "bob"}
    assert rows["billing", ORDERS].verdict == "valid"


def test_rows_without_a_topic_are_in_quarantine_of_each_subscription(three: Path) -> None:
    path = three / "in" / "deliveries" / "part.parquet"
    rows = pq.read_table(path)
    nowhere = rows.slice(0, 1).set_column(
        rows.schema.get_field_index("topic"), pa.field("topic", pa.string()), pa.array([None], pa.string())
    )
    nullable = pa.schema([field.with_nullable(True) for field in rows.schema])
    pq.write_table(pa.concat_tables([rows.cast(nullable), nowhere.cast(nullable)]), path)
    run = several(three)
    with LocalEngine(cores=1) as engine:
        subscriptions.audit(engine, run)
        for pair in THREE:
            story.audit(engine, alone(run, three, *pair))
    assert rows_of(three / "several") == rows_of(three / "alone")
    assert len(rows_of(three / "several")["quarantine"]) == 2


def test_the_overview_opens_the_report_of_each_subscription(three: Path) -> None:
    with LocalEngine(cores=1) as engine:
        found = subscriptions.audit(engine, several(three, [{"owner": "<ann>"}]))
    path = write_overview(found.overview, found.reports(), three / "report")
    page = path.read_text()
    assert "&lt;ann&gt;" in page
    assert "<ann>" not in page
    for row in found.overview.rows:
        assert f'href="{row.page}"' in page
        report = (path.parent / row.page).read_text()
        assert row.topic in report
    rows = json.loads((path.parent / "overview.json").read_text())["rows"]
    assert [row["verdict"] for row in rows] == ["invalid", "valid", "valid"]
    assert rows[0]["findings"] > 0


def test_a_task_may_get_the_rows_of_several_topics_in_one_batch(three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    audit_topics = AuditTopics.__call__

    def audit_one_batch(step: AuditTopics, chunks: Any) -> Any:
        return audit_topics(step, pa.Table.from_batches(chunks, BY_TOPIC.schema).combine_chunks().to_batches())

    monkeypatch.setattr(AuditTopics, "__call__", audit_one_batch)
    with LocalEngine(cores=1) as engine:
        assert verdicts(subscriptions.audit(engine, several(three))) == THREE


def test_a_large_topic_has_an_audit_of_its_own(three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MOST_OF_TASK", 3)
    alone_runs: list[str] = []

    def progress(stage: str) -> nullcontext[None]:
        alone_runs.append(stage)
        return nullcontext()

    with LocalEngine(cores=1) as engine:
        found = subscriptions.audit(engine, several(three), progress)
        for pair in THREE:
            story.audit(engine, alone(several(three), three, *pair))
    assert verdicts(found) == THREE
    assert f"auditing mail on {ORDERS}" in alone_runs
    assert f"auditing billing on {BILLS}" not in alone_runs
    assert rows_of(three / "several") == rows_of(three / "alone")
