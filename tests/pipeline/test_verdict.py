"""What a run may say of itself, by the command, its exit code and its pages: green only over what was judged."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from subreplay.cli.main import main
from tests.support.audits import audited, changed, reported, written
from tests.support.history import TOPIC, history
from tests.support.tables import table_of

KEPT = history("a1 n1 a2 n2", "+C1 a1>C1 a1! n1>C1 n1! a2>C1 a2! n2>C1 n2!")
MOVED = history("a1 a2 a3", "+C1 a1>C1 +C2 a2>C2 a1! a2! a3>C2 a3!")
DAY = "2023-11-14"  # of histories, UTC


@pytest.mark.parametrize(
    ("requested", "why"),
    [
        ({"name": "SUB"}, "table deliveries has no rows of subscription 'SUB'; did you mean 'sub'? it has"),
        (
            {"topic": TOPIC + "s"},
            f"table deliveries has no rows of topic '{TOPIC}s'; did you mean '{TOPIC}'? it has topic",
        ),
        ({"name": "nobody", "topic": None}, "no rows of subscription 'nobody'; it has subscription 'sub'"),
    ],
)
def test_a_name_that_the_tables_do_not_contain_is_unknown_and_reported_with_the_existing_ones(
    tmp_path: Path, requested: dict[str, str | None], why: str
) -> None:
    found = audited(tmp_path, KEPT, subscription=requested)
    assert (found.code, found.report["verdict"]) == (3, "unknown")
    assert found.report["headline"].startswith("The audit could not judge anything: ")
    assert why in found.report["headline"]
    assert why in found.text
    assert "The audit could not judge anything" in found.page
    (run,) = table_of(tmp_path, "runs").to_dicts()
    assert (run["verdict"], why in run["headline"]) == ("unknown", True)


def test_where_nobody_joined_rules_that_need_members_are_unknown_and_not_clean(tmp_path: Path) -> None:
    found = audited(tmp_path, MOVED | {"membership": MOVED["membership"].slice(0, 0)})
    assert (found.code, found.report["verdict"]) == (3, "unknown")
    assert "table membership is empty" in found.report["headline"]
    unknown = {"KEY_TWO_OWNERS", "NOT_CONNECTED", "WRONG_OWNER", "LOST", "DUP_OUTSTANDING"}
    assert {found.status[code] for code in unknown} == {"unknown"}
    assert "no join of this subscription is recorded" in found.notes["KEY_TWO_OWNERS"]
    assert found.status["KEY_ORDER"] == "clean"
    assert "KEY_TWO_OWNERS unknown – no join" in found.text


def test_a_partition_that_nobody_joined_is_unknown_beside_one_that_is_covered(tmp_path: Path) -> None:
    one, other = history("a1 a2", "+C1 a1>C1 a1! a2>C1 a2!", 0), history("n1", "+C1 n1>C1 n1!", 1)
    tables = {name: pa.concat_tables([one[name], other[name]]) for name in one} | {"membership": one["membership"]}
    found = audited(tmp_path, tables)
    assert (found.code, found.status["NOT_CONNECTED"]) == (3, "unknown")
    assert "NOT_CONNECTED may not be violations" in found.report["detail"]


@pytest.mark.parametrize(("quiet", "code"), [("valid", 0), ("unknown", 3)])
def test_a_quiet_day_is_what_the_run_says(tmp_path: Path, quiet: str, code: int) -> None:
    found = audited(tmp_path, KEPT, "--date", "2023-11-16", require={"quiet_days": quiet})
    assert (found.code, found.report["verdict"]) == (code, quiet)
    assert "othing was published or delivered on 2023-11-16" in found.text
    (run,) = table_of(tmp_path, "runs").filter(pl.col("date") == date(2023, 11, 16)).to_dicts()
    assert (run["verdict"], "quiet day" in run["headline"]) == (quiet, True)


SCENARIOS = [{"name": "shared", "policy": "pulsar.shared", "members": [{"consumer": "c"}], "dispatch": {}}]


def test_a_what_if_without_messages_has_nothing_to_replay(tmp_path: Path) -> None:
    written(tmp_path, KEPT, subscription={"topic": "other"}, scenarios=SCENARIOS)
    found = reported(tmp_path, "whatif")
    assert (found.code, found.report["verdict"]) == (3, "unknown")
    why = f"There is nothing to replay: table messages has no rows of topic 'other'; it has topic '{TOPIC}'."
    assert found.report["headline"] == why
    assert "There is nothing to replay" in found.page


@pytest.mark.parametrize(
    ("command", "topic", "quiet", "code"),
    [("audit", None, "unknown", 3), ("audit", TOPIC, "valid", 0), ("whatif", None, "unknown", 3)],
)
def test_tables_without_a_row_end_with_a_page_and_what_the_run_says(
    tmp_path: Path, command: str, topic: str | None, quiet: str, code: int
) -> None:
    empty = {name: table.slice(0, 0) for name, table in KEPT.items()}
    written(tmp_path, empty, subscription={"topic": topic}, require={"quiet_days": quiet}, scenarios=SCENARIOS)
    found = reported(tmp_path, command)
    assert (found.code, found.report["verdict"]) == (code, quiet)
    assert "ll input tables are empty" in found.report["headline"]
    assert "ll input tables are empty" in found.text
    assert "ll input tables are empty" in found.page


def test_tables_of_which_every_row_was_rejected_are_refused_and_not_quiet(tmp_path: Path) -> None:
    wrong = {name: changed({name: table}, name, topic="")[name] for name, table in KEPT.items()}
    written(tmp_path, wrong, require={"quiet_days": "valid"})
    assert main(["audit", "--config", str(tmp_path / "run.yaml"), "--out", str(tmp_path)]) == 2


# quarantine


def test_rejected_members_leave_their_deliveries_unknown_and_say_why(tmp_path: Path) -> None:
    found = audited(tmp_path, changed(MOVED, "membership", 1, event="joined"))
    assert (found.code, found.status["NOT_CONNECTED"]) == (3, "unknown")
    (reason,) = found.report["quarantine"]
    assert (reason["table"], reason["column"], reason["rows"], reason["example"]) == (
        "membership",
        "event",
        1,
        "joined",
    )
    for shown in (found.text, found.page):
        assert "an event is join, leave, crash or rejected" in shown
    rejected, unsure = sorted(found.report["doubts"])
    assert rejected == "1 of 2 rows of membership are in quarantine"
    assert unsure.startswith("NOT_CONNECTED may not be violations")
    strays = table_of(tmp_path, "violations").filter(pl.col("code") == "NOT_CONNECTED")
    assert {*strays.select("verdict", "consumer").iter_rows()} == {("unknown", "C2")}


def test_a_rejected_delivery_is_not_a_lost_message(tmp_path: Path) -> None:
    tables = history("a1 a2 a3 n1", "+C1 a1>C1 a1! a2>C1 a2! a3>C1 a3! n1>C1 n1!")
    found = audited(tmp_path, changed(tables, "deliveries", 1, redelivery_count=-1), tolerate={"deliveries": 0.5})
    assert (found.code, found.status["LOST"]) == (3, "unknown")
    assert found.report["doubts"] == [
        "LOST may not be violations: a delivery row that may belong to this message is in quarantine"
    ]


def test_a_row_without_its_subscription_or_date_is_rejected_and_not_overlooked(tmp_path: Path) -> None:
    nullable = pa.schema([field.with_nullable(True) for field in KEPT["deliveries"].schema])
    rows = KEPT["deliveries"].to_pylist()
    rows[2] |= {"subscription": None}
    rows[3] |= {"date": None}
    found = audited(tmp_path, KEPT | {"deliveries": pa.Table.from_pylist(rows, nullable)}, "--date", DAY)
    assert [(r["column"], r["rows"]) for r in found.report["quarantine"]] == [("date", 1), ("subscription", 1)]
    assert found.code == 3


# rows given twice, and what receipts tell


def test_repeated_rows_are_reported_and_judged_once(tmp_path: Path) -> None:
    twice = {name: pa.concat_tables([table, table]) for name, table in KEPT.items()}
    found = audited(tmp_path, twice)
    assert (found.code, found.report["verdict"]) == (0, "valid")
    notes = {row["table"]: (row["rows_in"], row["valid"], row["note"]) for row in found.report["inputs"]}
    assert notes == {
        "messages": (8, 8, "4 rows duplicated, judged once"),
        "membership": (2, 2, "1 row duplicated, judged once"),
        "deliveries": (8, 8, "4 rows duplicated, judged once"),
    }
    assert found.text.count("duplicated, judged once") == 3
    assert found.page.count("duplicated, judged once") == 3


def test_a_log_of_receipts_is_judged_by_them(tmp_path: Path) -> None:
    received = MOVED["deliveries"].to_pylist()
    for row in received:
        row |= {"received_at": row["delivered_at"], "delivered_at": None}
    found = audited(tmp_path, MOVED | {"deliveries": pa.Table.from_pylist(received, MOVED["deliveries"].schema)})
    assert found.code == 1
    assert (found.status["LOST"], found.status["KEY_TWO_OWNERS"]) == ("clean", "violated")
    assert found.status["WRONG_OWNER"] == "not applicable"
    assert "not when the broker dispatched them" in found.notes["WRONG_OWNER"]
    assert "3 rows with a receipt only, judged at the time of the receipt" in found.text


def test_of_keys_that_no_message_has_no_rule_says_that_it_found_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keyless = changed(MOVED, "messages", key=None, ordering_key=None)
    by_producer = audited(tmp_path / "known", keyless)
    assert (by_producer.status["KEY_ORDER"], by_producer.notes["MIXED_BATCH"]) == ("clean", "no message has a key")
    written(tmp_path / "none", changed(keyless, "messages", producer=None))
    assert main(["audit", "--config", str(tmp_path / "none/run.yaml"), "--out", str(tmp_path / "none")]) == 2
    assert "the messages do not record their keys. Map them" in capsys.readouterr().err


@pytest.mark.parametrize(("steps", "day"), [(700_000, "2023-11-15 "), (70, "")], ids=["two days", "one day"])
def test_sentences_show_dates_where_a_run_spans_more_than_a_day(tmp_path: Path, steps: int, day: str) -> None:
    tables = history("a1 a2", f"+C1 a1>C1 a1! ~{steps} -C1 a2>C1 a2!")
    written(tmp_path, tables, output={"tables": str(tmp_path / "tables")})
    reported(tmp_path, "audit")
    rows = pl.read_delta(str(tmp_path / "tables" / "violations")).to_dicts()
    (found,) = [row for row in rows if row["code"] == "NOT_CONNECTED"]
    for words in (found["explanation"], found["cause"], found["witness"][0]):
        assert re.search(r"(?:at |\()(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d\.\d{6}", words)[1] == (day or None)
