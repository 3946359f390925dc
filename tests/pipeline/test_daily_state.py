"""Daily runs on the local engine: state goes from table to table, and what they find is what one audit finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import date as Date
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from subreplay.audit.checkpoint import STATE_OF_RUN
from subreplay.audit.codes import Code
from subreplay.audit.judging import OUTPUTS, JudgeRows
from subreplay.audit.other_days import keep_wanted
from subreplay.config import run as config_run
from subreplay.config.run import Keys, RunConfig
from subreplay.config.secrets import PLAIN, SecretLocation
from subreplay.engine.interface import Dataset, Engine, Tables
from subreplay.engine.local.engine import LocalEngine
from subreplay.errors import ConfigError
from subreplay.pipeline import daily_runs, key_secrets
from subreplay.rows.conditions import field
from subreplay.rows.model.columns import DAY, midnight
from subreplay.rows.model.tables import AUDITED, LOG, TIME
from subreplay.rows.scan.log_rows import make_log_rows
from subreplay.rows.sorted_blocks import BY_POSITION
from tests.audit.test_daily_audits import published_just_in_time, same
from tests.support import days
from tests.support.days import FIRST, drawn_out, save
from tests.support.history import START, STEP, SUBSCRIPTION, history
from tests.support.pure import audit_by, judge_of

TOPIC = "persistent://public/default/t"
TEN_MINUTES = 600_000_000
SHARED = {"name": SUBSCRIPTION, "policy": "pulsar.shared", "profile": "pulsar-4.0"}
ACTIVE = SHARED | {"policy": "pulsar.exclusive"}
FIRST_DAY = Date(1970, 1, 1) + timedelta(days=FIRST // days.DAY)


@dataclass(frozen=True)
class Runs:
    """Runs of dates over some tables, into one output."""

    engine: Engine
    inputs: dict[str, pa.Table]
    config: RunConfig
    out: Tables

    def audit(self, day: int) -> daily_runs.EarlierState | None:
        """Audit a day, counted from the first; returns what it began with."""
        config = self.config.model_copy(update={"date": FIRST_DAY + timedelta(days=day)})
        assert config.date is not None
        end = midnight(config.date) + DAY - 1
        before = daily_runs.find_earlier_state(self.out, config, TOPIC)
        if before is not None:
            daily_runs.check_basis(before, config)
            key_secrets.require_same_secret(self.out, config, TOPIC, before.day)
        is_of_day = {n: pc.equal(self.inputs[n]["date"], config.date) for n in ("messages", "deliveries")}
        rows = {name: self.inputs[name].filter(mine) for name, mine in is_of_day.items()}
        conditions = daily_runs.select_other_days(config, TOPIC, daily_runs.find_first_day(config, before))
        others = {name: self.engine.create_dataset(self.inputs[name]).where(mine) for name, mine in conditions.items()}
        firsts, served = first_entries(rows["messages"]), self.engine.create_dataset(rows["deliveries"])
        of_day = [self.sorted_log(name, rows[name]) for name in rows]
        log = daily_runs.build_log(self.engine, of_day, others, config, before, firsts, served)
        mine = JudgeRows(self.judge(config, end), SUBSCRIPTION)
        where = {"subscription": SUBSCRIPTION, "topic": TOPIC, "date": config.date.isoformat()}
        new = {
            name: self.out.begin_write(name, pa.schema([f for f in schema if f.name not in where]), where)
            for name, schema in {"audited": AUDITED, "state": STATE_OF_RUN}.items()
        }
        log.map(keep_wanted, LOG).split(partial(for_tables, judge=mine), {**OUTPUTS, **new})
        for rows_of_table in new.values():
            self.out.commit(rows_of_table)
        noted = key_secrets.add_key_columns(pa.table({"kind": ["audit"]}), config)
        self.out.put("runs", noted, where)
        return before

    def judge(self, config: RunConfig, end: int) -> Any:
        policy, members = config.subscription.make_policy(), self.inputs["membership"]
        requested = pc.coalesce(members["since"], members["at"]).cast(pa.int64())
        until = self.inputs | {"membership": members.filter(pc.less_equal(pc.multiply(requested, 1000), end))}
        of_all = judge_of(policy, self.inputs)
        dispatchers = judge_of(policy, until).dispatchers
        return replace(
            of_all, dispatchers=dispatchers, horizon=end, lookback=config.traffic.lookback_days * DAY,
            basis=daily_runs.build_basis(config), words=config.keys.words,
        )  # fmt: skip

    def sorted_log(self, name: str, rows: pa.Table) -> Dataset:
        return self.engine.create_dataset(rows).split(partial(rows_of_log, name=name), {"": BY_POSITION})[""]

    def audited(self, day: int) -> pa.Table:
        found = self.out.find("audited")
        assert found is not None
        return found.where(field("date") == FIRST_DAY + timedelta(days=day)).to_table()

    def codes(self, days: int) -> dict[str, int]:
        """How often each code was found in all."""
        of_each = pa.concat_tables([self.audited(day) for day in range(days)])["codes"].to_pylist()
        return {code.name: n for code in Code if (n := sum(bool(codes & code.bit) for codes in of_each))}


def rows_of_log(batches: Any, name: str) -> Any:
    return (("", make_log_rows(name, batch)) for batch in batches)


def for_tables(batches: Any, judge: JudgeRows) -> Any:
    """What a judge makes, without what is the same in all rows of a table."""
    for name, batch in judge(batches):
        left_out = {"audited": ("subscription", "topic", "date"), "state": ("topic",)}.get(name, ())
        yield name, batch.select([column for column in batch.schema.names if column not in left_out])


def first_entries(messages: pa.Table) -> dict[int, tuple[int, int]]:
    found: dict[int, tuple[int, int]] = {}
    for row in messages.select(["partition", "ledger", "entry"]).to_pylist():
        entry = row["ledger"], row["entry"]
        found[row["partition"]] = min(entry, found.get(row["partition"], entry))
    return found


@pytest.fixture
def engine() -> Iterator[Engine]:
    with LocalEngine(cores=1) as opened:
        yield opened


Make = Callable[..., Runs]


@pytest.fixture
def runs(engine: Engine, tmp_path: Path) -> Make:
    def of(tables: dict[str, pa.Table], subscription: dict[str, str] = SHARED, **run: Any) -> Runs:
        path = save(tables, tmp_path, subscription=subscription, **run)
        return Runs(engine, tables, config_run.load(path), engine.open_tables(str(tmp_path / "tables")))

    return of


def over_hours(log: str, story: str) -> dict[str, pa.Table]:
    """A history ten minutes a step, which begins at 16:40 of the first day."""
    return drawn_out(history(log, story), START, TEN_MINUTES // STEP)


STORIES = [
    ("a1 a2 n3+390", "+C1 a1>C1 a2>C1 a1! a2! ~300 n3>C1 n3!"),
    ("a1 a2 b3 n4", "+C1 a1>C1 a2>C1 ~60 a1! +C2 b3>C2 ~150 -C1 a2>C2*1 a2! n4>C2 b3! n4!"),
    ("a1 a2 a3", "+C1 a1>C1 a1! a3>C1 a3! ~60 a2>C1 a2!"),
    ("a1,a2 b3,b4 a5", "+C1 a1>C1 a2>C1 a1! ~150 a2! b3>C1 b4>C1 b4! ~200 b3>C1*1 b3! a5>C1 a5!"),
]


@pytest.mark.parametrize("subscription", [SHARED, ACTIVE])
@pytest.mark.parametrize("story", STORIES)
def test_daily_runs_find_what_one_audit_finds(runs: Make, subscription: dict[str, str], story: tuple[str, str]) -> None:
    tables = drawn_out(published_just_in_time(history(*story)), START, TEN_MINUTES // STEP)
    last = max(pc.max(tables[n]["date"]).as_py() for n in ("messages", "deliveries"))
    mine = runs(tables, subscription)
    count = (last - FIRST_DAY).days + 1
    began = [mine.audit(day) for day in range(count)]
    assert [each and each.day for each in began] == [None, *(FIRST_DAY + timedelta(days=i) for i in range(count - 1))]
    whole = audit_by(judge_of(mine.config.subscription.make_policy(), tables), tables)
    same([mine.audited(day) for day in range(count)], whole)


def test_where_too_many_entries_are_wanted_to_name_them_the_lowest_bounds_them(
    runs: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = runs(over_hours(*STORIES[1]), ACTIVE)
    for day in range(3):
        mine.audit(day)
    named = [mine.audited(day) for day in range(3)]
    monkeypatch.setattr(daily_runs, "MOST_ENTRIES", 0)
    for day in range(3):
        mine.audit(day)
    assert [mine.audited(day) for day in range(3)] == named


def test_a_message_of_tomorrow_by_its_producers_clock_is_known_today(runs: Make) -> None:
    tables = over_hours("a1 a2 b3", "+C1 a1>C1 a1! a2>C1 a2! ~60 b3>C1 b3!")
    ends = FIRST + days.DAY
    tables["messages"] = of_second(tables["messages"], publish_time=ends + 3_000, date=ends)
    tables["deliveries"] = of_second(tables["deliveries"], delivered_at=ends - 1_000, acked_at=ends + 5_000)
    mine = runs(tables, SHARED | {"policy": "pulsar.key_shared.auto_split"})
    for day in range(2):
        mine.audit(day)
    assert not {"UNKNOWN_MESSAGE", "LOST"} & {*mine.codes(2)}


def test_what_is_open_is_looked_at_on_days_without_data_and_after_days_without_a_run(runs: Make) -> None:
    """The first message is acknowledged two days later, the third is delivered on the fourth day."""
    mine = runs(over_hours("a1 a2 n3", "+C1 a1>C1 a2>C1 a2! ~300 a1! ~120 n3>C1 n3!"))
    mine.audit(0)
    began = mine.audit(1)
    assert began is not None
    assert began.oldest == FIRST_DAY
    assert began.open.to_table().select(["entry", "waiting"]).to_pylist() == [
        {"entry": 0, "waiting": False}, {"entry": 2, "waiting": True},
    ]  # fmt: skip
    assert began.partitions == {-1}
    assert mine.audited(1)["entry"].to_pylist() == [2]  # nothing happened
    after = mine.audit(3)
    assert after is not None
    assert after.day == FIRST_DAY + timedelta(days=1)
    found = mine.audited(3).filter(mine.audited(3)["delivered"])
    assert found["entry"].to_pylist() == [2]
    last = mine.audit(9)
    assert last is not None
    assert last.oldest is None


def test_a_run_under_another_policy_or_secret_than_the_one_it_continues_from_is_refused(runs: Make) -> None:
    mine = runs(over_hours(*STORIES[0]))
    mine.audit(0)
    policy = mine.config.subscription.model_copy(update={"policy": "pulsar.key_shared.auto_split"})
    other = replace(mine, config=mine.config.model_copy(update={"subscription": policy}))
    with pytest.raises(ConfigError) as refused:
        other.audit(1)
    assert str(refused.value) == (
        f"the run of {FIRST_DAY + timedelta(days=1)} continues from the audit of {FIRST_DAY}, which was judged by "
        f"policy 'pulsar.shared' instead of 'pulsar.key_shared.auto_split'. Audit {FIRST_DAY} again with the settings "
        "of this run, or set another output.tables."
    )
    keys = Keys(secret=SecretLocation(PLAIN, "another secret"))
    other = replace(mine, config=mine.config.model_copy(update={"keys": keys}))
    with pytest.raises(ConfigError, match=rf"^keys\.secret differs from the audit of {FIRST_DAY}, from which"):
        other.audit(1)


def test_findings_of_earlier_runs_are_those_of_the_same_topic_before_the_date(runs: Make) -> None:
    mine = runs(over_hours(*STORIES[0]))
    config = mine.config.model_copy(update={"date": FIRST_DAY + timedelta(days=1)})
    assert daily_runs.find_earlier_findings(mine.out, config, TOPIC, Code.LOST) is None
    where = {"subscription": SUBSCRIPTION, "topic": TOPIC}
    for day, codes in ((0, ["LOST", "SKIP"]), (1, ["LOST"])):
        date = (FIRST_DAY + timedelta(days=day)).isoformat()
        mine.out.put("violations", pa.table({"code": codes}), where | {"date": date})
        mine.out.put("violations", pa.table({"code": codes}), where | {"date": date, "topic": "another"})
    found = daily_runs.find_earlier_findings(mine.out, config, TOPIC, Code.LOST, Code.UNSEEN)
    assert found is not None
    assert found.to_table().select(["date", "code"]).to_pylist() == [{"date": FIRST_DAY, "code": "LOST"}]
    assert daily_runs.find_earlier_findings(mine.out, mine.config, TOPIC, Code.LOST) is None


def of_second(rows: pa.Table, **given: int) -> pa.Table:
    """The same rows with other times (µs) in the second one."""
    for name, micros in given.items():
        of = rows.schema.field(name)
        values = rows[name].to_pylist()
        values[1] = pa.scalar(micros, TIME).cast(of.type).as_py()
        rows = rows.set_column(rows.schema.get_field_index(name), of, pa.array(values, of.type))
    return rows


@pytest.mark.slow
@pytest.mark.spark
def test_daily_runs_on_spark_leave_the_same_tables(runs: Make, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    from subreplay.engine.spark.engine import SparkEngine

    local = runs(over_hours(*STORIES[1]), ACTIVE)
    with SparkEngine(request.getfixturevalue("spark")) as engine:
        mine = replace(local, engine=engine, out=engine.open_tables(str(tmp_path / "of_spark")))
        for day in range(3):
            assert (local.audit(day) is None) == (mine.audit(day) is None)
            one, other = local.audited(day), mine.audited(day)
            assert sorted(map(repr, other.select(one.column_names).to_pylist())) == sorted(map(repr, one.to_pylist()))
