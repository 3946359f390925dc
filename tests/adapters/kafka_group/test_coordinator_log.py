"""Lines of the coordinator's log: each known one is an event with its instant, whatever the layout."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.adapters.kafka_group.coordinator_log.log_events import LineCounts, parse_lines
from subreplay.adapters.kafka_group.coordinator_log.log_files import read_log
from subreplay.errors import ConfigError, InputError
from tests.adapters.kafka_group.scenarios import NAMES, log, plain, scenario, shown, text

STABLE = "Stabilized group g generation 3 with 2 members."
UNTOLD = ["Static member which joins during Stable stage"]


def events(*lines, **options):
    return plain(parse_lines(text(*lines), **options).events)


def one(message, prefix="[GroupCoordinator id=1 topic=__consumer_offsets partition=27] "):
    """The event of a message, without where it stands and what is null."""
    [event] = events(f"[2026-11-20 10:00:00,123] INFO {prefix}{message} (kafka.coordinator.group.GroupCoordinator)")
    assert event["at"] == micros(2026, 11, 20, 10, 0, 0, 123_000)
    return {name: value for name, value in event.items() if value and name not in ("file", "line", "at")}


def micros(*parts):
    return since_1970(datetime(*parts, tzinfo=timezone.utc))


def since_1970(at):
    return (at - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(microseconds=1)


@pytest.mark.parametrize("name", NAMES)
def test_every_recorded_line_is_an_event_at_its_instant(name):
    wrote = scenario(name)["coordinator_log"]
    found = parse_lines(log(name))
    reported = {row["line"]: row for row in plain(found.events)}
    assert found.rejected == ()
    for number, row in enumerate(wrote, 1):
        if number in reported:
            assert reported[number]["at"] == row["at"] // 1_000
            assert reported[number]["group"] == "g"
        else:
            assert any(row["text"].startswith(start) for start in UNTOLD)


@pytest.mark.parametrize(
    ("zone", "layout"),
    [
        ("UTC", "[{at}] INFO [GroupCoordinator 1]: {text} {logger}"),
        ("Europe/Berlin", "[{at}] INFO [GroupCoordinator id=1] {text} {logger}"),
        ("Asia/Kathmandu", "{at} INFO {text} {logger} [group-coordinator-event-processor-0]"),
        ("America/St_Johns", "kafka  | [{at}] INFO [GroupCoordinator 1]: {text} (kafka.coordinator.group.X:77)"),
        ("UTC", "2026-01-01T00:00:00.5Z stdout F [{at}] INFO [GroupCoordinator 1]: {text}"),
        ("UTC", "{at} INFO  [data-plane-kafka-request-handler-3] k.c.g.GroupCoordinator: [GroupCoordinator 1]: {text}"),
    ],
)
def test_all_layouts_and_time_zones_yield_the_same_events(zone, layout):
    for name in ("k14_static_late", "k22_modern_crash_slow"):
        plainly = parse_lines(log(name))
        assert parse_lines(log(name, ZoneInfo(zone), layout), zone).events.equals(plainly.events)


def test_json_logs_yield_the_same_events(tmp_path):
    name = "k16_slow"
    rows = scenario(name)["coordinator_log"]
    prefixed = [f"[GroupCoordinator id=1] {row['text']}" for row in rows]
    iso = [f"{shown(row['at']).replace(',', '.').replace(' ', 'T')}Z" for row in rows]
    layouts = [
        [{"@timestamp": at, "log.level": "INFO", "message": m} for at, m in zip(iso, prefixed, strict=True)],
        [{"timeMillis": row["at"] // 10**6, "level": "INFO", "message": row["text"]} for row in rows],
        [
            {"instant": {"epochSecond": row["at"] // 10**9, "nanoOfSecond": row["at"] % 10**9}, "message": row["text"]}
            for row in rows
        ],
        [{"log": f"[{shown(row['at'])}] INFO {row['text']}\n", "time": "2026-01-01T00:00:00Z"} for row in rows],
    ]
    for lines in layouts:
        (tmp_path / "server.log").write_text("\n".join(map(json.dumps, lines)))
        found = pa.concat_tables(part.events for part in read_log(tmp_path / "server.log", "server.log", "UTC"))
        assert found.combine_chunks().equals(parse_lines(log(name)).events.combine_chunks())


@pytest.mark.parametrize(
    ("message", "event"),
    [
        (STABLE, {"event": "stabilized", "generation": 3, "members": 2}),
        (
            "Stabilized group a group of generation 2 generation 39 (__consumer_offsets-21) with 3 members",
            {"event": "stabilized", "group": "a group of generation 2", "generation": 39, "members": 3},
        ),
        (
            "Preparing to rebalance group g in state PreparingRebalance with old generation 38 (__consumer_offsets-21) "
            "(reason: Adding new member c-1 with group instance id None; client reason: not provided)",
            {
                "event": "preparing", "state": "PreparingRebalance", "generation": 38,
                "reason": "Adding new member c-1 with group instance id None",
            },
        ),
        (
            "Preparing to rebalance group g in state PreparingRebalance with old generation 3 (reason: explicit "
            "`LeaveGroup` request for (c1, c2) members.).",
            {
                "event": "preparing", "state": "PreparingRebalance", "generation": 3,
                "reason": "explicit `LeaveGroup` request for (c1, c2) members.",
            },
        ),
        (
            "Assignment received from leader for group g for generation 39. The group has 3 members, 0 of which are "
            "static.",
            {"event": "assignment", "generation": 39, "members": 3},
        ),
        (
            "Dynamic Member with unknown member id joins group g in Empty state. Created a new member id c-1 for this "
            "member and add to the group.",
            {"event": "join", "member_id": "c-1", "state": "Empty"},
        ),
        (
            "Dynamic member with unknown member id joins group g in Empty state. Created a new member id c-1 and "
            "request the member to rejoin with this id.",
            {"event": "id_created", "member_id": "c-1", "state": "Empty"},
        ),
        (
            "[Group g] Member MemberMetadata(memberId=c-1, groupInstanceId=Some(i), clientId=c, clientHost=/1, "
            "supportedProtocols=List(range)) has left group through explicit `LeaveGroup` request; client reason: bye",
            {"event": "leave", "member_id": "c-1", "client_reason": "bye"},
        ),
        (
            "Member[group.instance.id Some(i), member.id c-1] in group g has left, removing it from the group",
            {"event": "leave", "member_id": "c-1", "instance_id": "i"},
        ),
        (
            "Member MemberMetadata(memberId=c-1, groupInstanceId=None, clientId=c) in group g has failed, removing it "
            "from the group",
            {"event": "failed", "member_id": "c-1"},
        ),
        ("Pending member c-1 in group g has been removed after session timeout expiration.",
         {"event": "pending_expired", "member_id": "c-1"}),
        ("Group g with generation 6 is now empty (__consumer_offsets-3)", {"event": "empty", "generation": 6}),
        (
            "[GroupId g] Static Member m with instance id i left the consumer group.",
            {"event": "leave", "protocol": "consumer", "member_id": "m", "instance_id": "i"},
        ),
        (
            "[GroupId g] Member m fenced from the group because it failed to transition from epoch 3 within 5000ms.",
            {"event": "failed", "protocol": "consumer", "member_id": "m",
             "reason": "it failed to transition from epoch 3 within 5000ms"},
        ),
        (
            "[GroupId g] Bumped group epoch to 2 with metadata hash -2421248355301747518.",
            {"event": "epoch_bumped", "protocol": "consumer", "generation": 2},
        ),
        (
            "[GroupId g] Computed a new target assignment for epoch 2 with 'uniform' assignor in 3ms: {m=[]}.",
            {"event": "target_computed", "protocol": "consumer", "generation": 2, "assignor": "uniform"},
        ),
        (
            "[GroupId g] Member m joins the consumer group using the classic protocol.",
            {"event": "join", "protocol": "consumer", "member_id": "m"},
        ),
    ],
)  # fmt: skip
def test_lines_of_every_release(message, event):
    assert one(message) == {"group": "g", "protocol": "classic"} | event
    assert one(message, "[GroupCoordinator 1]: ") == one(message)


def test_each_member_that_did_not_rejoin_has_failed():
    line = "[2026-11-20 10:00:00,123] INFO [GroupCoordinator 1]: Group g removed members who haven't joined: [c-1, c-2]"
    assert [(e["event"], e["member_id"]) for e in events(line)] == [("failed", "c-1"), ("failed", "c-2")]


# time


def test_a_zone_in_the_line_outweighs_the_option():
    lines = [f"[2026-11-20T10:00:00,5{zone}] INFO {STABLE}" for zone in ("Z", "+0200", "-03:30", "")]
    base = micros(2026, 11, 20, 10, 0, 0, 500_000)
    hour = 3_600_000_000
    found = [event["at"] - base for event in events(*lines, time_zone="Europe/Berlin")]
    assert found == [0, -2 * hour, 3 * hour + hour // 2, -hour]


@given(
    st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1)),
    st.sampled_from(["Europe/Berlin", "UTC", "Australia/Lord_Howe"]),
)
def test_any_instant_comes_back(moment, name):
    zone = ZoneInfo(name)
    at = moment.replace(tzinfo=timezone.utc)
    local = at.astimezone(zone)
    [event] = events(f"[{local:%Y-%m-%d %H:%M:%S}.{local.microsecond:06d}] INFO {STABLE}", time_zone=name)
    difference = since_1970(at) - event["at"]
    assert (difference == 0) if not local.fold else (event["twice"] and difference > 0)


def test_times_that_no_clock_showed_are_quarantined():
    daily_run = "[2026-03-29 02:30:00,000] INFO " + STABLE  # Berlin's clocks went from 2 to 3
    found = parse_lines(text(daily_run, "[2026-02-30 02:30:00,000] INFO " + STABLE), "Europe/Berlin")
    assert [rejected.row for rejected in found.rejected] == [1, 2]
    assert "Europe/Berlin" in found.rejected[0].reasons[0].remedy
    assert events(daily_run)[0]["at"] == micros(2026, 3, 29, 2, 30)


def test_an_unknown_time_zone_is_reported():
    with pytest.raises(ConfigError, match="does not exist"):
        parse_lines(text(), "Mars/Olympus")


# what is passed over, and what is not


def test_lines_of_other_matters_are_counted():
    found = parse_lines(
        text(
            "[2026-11-20 10:00:00,123] INFO [GroupCoordinator 1]: " + STABLE,
            "[2026-11-20 10:00:00,123] INFO [UnifiedLog partition=a-0] Rolled a group (kafka.log.UnifiedLog)",
            "\tat org.apache.kafka.Group.run(Group.java:7)",
            None,
            "",
            "[2026-11-20 10:00:00,123] INFO [GroupCoordinator 1]: [GroupId g] Scanned 7 topics to refresh",
            "[2026-11-20 10:00:00,123] INFO [GroupCoordinator 1]: Stabilized group g generation",
        )
    )
    assert found.counts == LineCounts(lines=7, known=1, others=1, skipped=4, quarantined=1)


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("[2026-11-20 10:00:00,123] INFO [GroupCoordinator 1]: Stabilized group g gener", "must continue like it"),
        ("[2026-11-20 10:00:00,123] INFO [GroupId g] Bumped group epoch to many.", "must continue like it"),
        ("INFO [GroupCoordinator 1]: " + STABLE, "must have its date and time"),
        (STABLE, "must have its date and time"),
        ('{"message": "' + STABLE, "must have its date and time"),
        ('{"message": "' + STABLE + '"}', "must have its date and time"),
    ],
)
def test_a_known_line_that_cannot_be_read_is_quarantined(line, rule):
    found = parse_lines(text("", line))
    [rejected] = found.rejected
    assert (rejected.file, rejected.row, rejected.raw) == ("server.log", 2, line)
    assert rule in rejected.reasons[0].rule
    assert found.events.num_rows == 0


WORDS = st.sampled_from(
    ["[2026-11-20 10:00:00,123]", "2026-13-45 99:00:00", "INFO", "[GroupCoordinator 1]:", STABLE, "{", '"',
     "[GroupId g]", "[Group g] Member", "has left group", "Preparing to rebalance group", "(reason:", "joins",
     "\\", "Member x in group g"]
)  # fmt: skip


@given(st.lists(st.one_of(st.none(), st.text(), st.lists(WORDS, max_size=6).map(" ".join)), max_size=10))
def test_of_any_lines_each_is_counted_once(lines):
    counts = parse_lines(text(*lines)).counts
    assert counts.lines == counts.known + counts.others + counts.skipped + counts.quarantined == len(lines)


def test_batches_are_parsed_as_the_whole():
    table = log("k00_range_eager")
    parts = pa.concat_tables([table.slice(0, 7), table.slice(7, 1), table.slice(8)])
    whole = parse_lines(table)
    assert parse_lines(parts).events.combine_chunks().equals(whole.events.combine_chunks())
    assert parse_lines(parts).counts == whole.counts


def test_a_missing_column_is_reported():
    with pytest.raises(InputError, match="no column line"):
        parse_lines(text().drop_columns("line"))
