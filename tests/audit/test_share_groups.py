"""Share groups of real brokers are valid, for the right reasons; broken copies of them are not."""

import json
from collections import Counter

import pyarrow as pa
import pytest

from subreplay.adapters.format_detection import detect_adapter
from subreplay.audit.needs import Need
from tests.support.share_groups import RECORDED, audited, folder_of, read

ORDER = {"KEY_ORDER", "KEY_TWO_OWNERS", "BEFORE_PREDECESSOR_ACK", "REDELIVERY_ORDER", "KEY_TWO_PARTITIONS"}
SHOWN = {  # besides order, which no share group promises
    "s02_mix": {"REDELIVERED": 181, "REJECTED": 60},
    "s06_hang": {"REDELIVERED": 12, "LATE_ACK": 12},
    "s08_crash": {"REDELIVERED": 36},
    "s10_close_in_flight": {"REDELIVERED": 23},
    "s12_delivery_limit": {"REDELIVERED": 239, "ARCHIVED": 80},
    "s16_leave_and_back": {"REDELIVERED": 40},
    "s20_tx_committed": {"LOST": 274, "UNSEEN": 20},
    "s24_few_locks": {},
    "s30_renew": {},
    "s32_latest": {"UNSEEN": 425},
    "s36_hang_limit": {"REDELIVERED": 112, "LATE_ACK": 112},
    "s38_grow": {"UNSEEN": 102},
}


@pytest.mark.parametrize("folder", RECORDED, ids=lambda folder: folder.name)
def test_a_recorded_share_group_kept_its_guarantees(folder):
    found = audited(read(folder.name))
    assert found.failing == {}
    assert {code: count for code, count in found.shown.items() if code not in ORDER} == SHOWN[folder.name]


@pytest.mark.parametrize(
    ("name", "causes"),
    [
        ("s02", {"its consumer released it": 181}),
        ("s06", {"its acquisition lock timed out before it was acknowledged": 12}),
        ("s36", {"its acquisition lock timed out before it was acknowledged": 112}),
    ],
)
def test_why_records_came_again(name, causes):
    assert audited(read(name)).causes == causes


@pytest.mark.parametrize(("name", "word", "count"), [("s08", "crashed", 36), ("s10", "left", 23), ("s16", "left", 40)])
def test_records_of_a_consumer_that_crashed_or_closed_come_again(name, word, count):
    causes = audited(read(name)).causes
    assert sum(causes.values()) == count
    assert all(f" {word}" in cause or " disconnected" in cause for cause in causes)


def deliveries(name, change):
    """The deliveries of a recording, changed row by row; a row of None is dropped."""
    table = read(name).tables["deliveries"]
    return pa.Table.from_pylist([row for each in table.to_pylist() if (row := change(dict(each)))], table.schema)


def given(name):
    """The deliveries of a recording, without its start offsets."""
    return [row for row in read(name).tables["deliveries"].to_pylist() if row["ack_type"] != "Commit"]


def first_of(name, **wanted):
    return next(row for row in given(name) if all(row[column] == value for column, value in wanted.items()))


@pytest.fixture(scope="module")
def hastened():
    """The deliveries of a recording in which a record is given to a second member long before its lock ends."""
    again = first_of("s06", redelivery_count=1)
    record = {column: again[column] for column in ("partition", "entry")}
    before = first_of("s06", redelivery_count=0, **record)

    def hasten(row):
        if row == again:
            row["delivered_at"] = row["received_at"] = before["received_at"]
        return row

    return deliveries("s06", hasten)


def test_a_record_that_two_members_hold_at_once_is_found(hastened):
    assert audited(read("s06"), deliveries=hastened).failing == {"DUP_OUTSTANDING": 1}


def test_without_the_times_of_acquisitions_no_lock_is_judged(hastened):
    found = audited(read("s06"), frozenset({Need.DISPATCH_TIMES}), deliveries=hastened)
    assert (found.failing, found.shown["REDELIVERED_UNASKED"]) == ({}, 1)


def test_a_delivery_beyond_the_limit_is_found():
    last = first_of("s12", redelivery_count=2)

    def count_up(row):
        return row | {"redelivery_count": 3} if row == last else row

    assert audited(read("s12"), deliveries=deliveries("s12", count_up)).failing == {"OVER_LIMIT": 1}


def test_a_record_that_nobody_received_is_lost():
    lost = {("partition", 0), ("entry", 100)}

    def drop(row):
        return None if lost <= {(column, row[column]) for column in ("partition", "entry")} else row

    assert audited(read("s02"), deliveries=deliveries("s02", drop)).failing == {"LOST": 1}


def test_a_delivery_after_the_acceptance_is_found():
    accepted = first_of("s36", outcome="acked", redelivery_count=0)
    every = read("s36").tables["deliveries"]
    later = accepted | {"redelivery_count": 1, "seq": 10_000, "acked_at": None, "acked_nanos": None, "ack_type": None}
    later |= dict.fromkeys(("delivered_at", "received_at"), accepted["acked_at"]) | {"delivered_nanos": 999}
    changed = pa.concat_tables([every, pa.Table.from_pylist([later | {"outcome": "pending"}], every.schema)])
    assert audited(read("s36"), deliveries=changed).failing == {"DUP_DELIVERY": 1}


@pytest.mark.parametrize("folder", RECORDED, ids=lambda folder: folder.name)
def test_every_row_of_a_recording_is_read(folder):
    found = read(folder.name)
    counted = json.loads((folder / "scenario.json").read_text())["rows"]
    assert found.rejected == ()
    assert len(found.tables["messages"]) == counted["records"]
    assert len(given(folder.name)) == counted["deliveries"]
    assert found.run["subscription"]["policy"] == "kafka.share"


def test_the_delivery_counts_of_a_recording_are_those_of_its_broker():
    counts = Counter(row["redelivery_count"] for row in given("s12"))
    assert counts == {0: 800, 1: 159, 2: 80}


def test_the_settings_of_broker_and_group_become_options():
    options = read("s36").run["subscription"]["options"]
    assert options["group.share.record.lock.duration.ms"] == 1_500
    assert options["group.share.delivery.count.limit"] == 3
    assert read("s20").run["subscription"]["isolation"] == "read_committed"
    assert read("s32").run["topic"] == {"initial_position": "latest"}


def test_a_lock_that_is_renewed_begins_anew():
    renewed = [row for row in given("s30") if row["outcome"] == "renewed"]
    following = {(row["partition"], row["entry"]): row for row in given("s30") if row["outcome"] == "acked"}
    assert len(renewed) == 200
    assert all(following[row["partition"], row["entry"]]["delivered_at"] > row["received_at"] for row in renewed)


def test_a_member_leaves_when_its_share_session_ends():
    rows = read("s08").tables["membership"].to_pylist()
    assert Counter(row["event"] for row in rows if row["event"] in ("join", "leave", "crash")) == {
        "join": 3,
        "leave": 2,
        "crash": 1,
    }


def test_a_recording_of_a_share_group_is_recognised():
    assert detect_adapter(folder_of("s02")) == "kafka-recording"


def test_a_record_that_the_start_offset_passed_unfinished_is_lost():
    accepted = first_of("s08", redelivery_count=1, outcome="acked")

    def drop(row):
        return None if row == accepted else row

    found = audited(read("s08"), deliveries=deliveries("s08", drop))
    assert (found.failing, found.shown["UNACKED"]) == ({"LOST": 1}, 1)


def test_a_start_offset_that_goes_back_is_found():
    def start_over(row):
        return row | {"entry": 1} if row == starts[-1] else row

    starts = [row for row in read("s06").tables["deliveries"].to_pylist() if row["ack_type"] == "Commit"]
    assert audited(read("s06"), deliveries=deliveries("s06", start_over)).failing == {"COMMIT_BACK": 1}
