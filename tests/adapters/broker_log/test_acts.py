"""Resets, seeks and unloads that a broker's log names become ``topic.resets`` of the run, and nothing else does."""

from functools import partial
from pathlib import Path

import pytest

from subreplay.adapters import ADAPTERS, Options
from tests.adapters.broker_log.test_lines import TOPIC, join, line, removed, sending
from tests.adapters.broker_log.test_logs import FAILOVER
from tests.support.source_reading import read_at_once

INCIDENTS = Path(__file__).parents[2] / "data" / "recordings-incidents" / "4.2.4"
ADMIN = "PersistentTopicsBase"
read = partial(read_at_once, "pulsar-broker-log")
ACTS = {
    "i7_reset_cursor_admin": {
        "at": "2026-11-28T18:45:42.932000Z", "kind": "reset", "to": {"time": "2026-11-28T18:45:33.903000Z"},
        "by": "operator",
    },
    "i8_seek_by_consumer": {
        "at": "2026-11-28T18:45:42.800000Z", "kind": "seek", "to": {"time": "2026-11-28T18:45:34.784000Z"},
        "by": "consumer m1",
    },
    "i9_unload_with_unacked": {"at": "2026-11-28T18:46:41.882000Z", "kind": "unload", "by": "operator"},
}  # fmt: skip


@pytest.mark.parametrize("name", ACTS)
def test_the_log_of_a_real_broker_and_a_recording_beside_it_name_the_act(name):
    assert read(INCIDENTS / name / "broker.log.gz").run["topic"] == {"resets": [ACTS[name]]}
    assert ADAPTERS["pulsar-recording"](INCIDENTS / name).run["topic"] == {"resets": [ACTS[name]]}


def test_a_reset_by_the_compaction_of_another_topic_is_no_act_on_this_one():
    assert "topic" not in read(FAILOVER, Options(subscription="billing")).run


def admin(message, at, subscription=None):
    return line(message, ADMIN, at, "pulsar-web-53-1", "INFO")


def received(to, at, topic=TOPIC, name="billing"):
    return admin(f"[null] [{topic}] Received reset cursor on subscription {name} to {to}", at)


def done(to, at, topic=TOPIC, name="billing"):
    return admin(f"[admin][{topic}] Reset cursor on subscription {name} to {to}", at)


def sought(to, at, topic=TOPIC, name="billing", address="10.0.0.9:5000"):
    return line(f"[/{address}] [{topic}][{name}] Reset subscription to {to}", "ServerCnx", at, "bk-1", "INFO")


def unloading(at, topic=TOPIC):
    return admin(f"[null] Unloading topic {topic}", at)


def resets(folder, *lines):
    """The acts of a log with these lines, each as its second, kind, target and partition."""
    path = folder / "broker.log"
    path.write_text("".join(f"{each}\n" for each in [*join(), sending(1), *lines, removed("12:00:59,000")]))
    found = read(path, Options(subscription="billing")).run.get("topic", {}).get("resets", [])
    return [(each["at"][17:19], each["kind"], each.get("to"), each.get("partition")) for each in found]


NOON = 1_772_625_600_000  # in ms


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        (f"time {NOON - 3_000}", {"time": "2026-03-04T11:59:57.000000Z"}),
        ("time 0", "earliest"),
        (f"time {NOON + 3_600_000}", "latest"),
        ("position 7:3:-1", {"ledger": 7, "entry": 3}),
        ("position -1:-1:-1", "earliest"),
        (f"position {2**63 - 1}:{2**63 - 1}:-1", "latest"),
    ],
)
def test_a_reset_began_when_it_was_requested_and_goes_back_to_its_target(tmp_path, to, expected):
    found = resets(tmp_path, received(to, "12:00:05,000"), done(to, "12:00:06,000"))
    assert found == [("05", "reset", expected, None)]


@pytest.mark.parametrize(
    "lines",
    [
        [received("time 1", "12:00:05,000")],  # it failed
        [done("time 1", "12:00:05,000", name="audit")],
        [done("time 1", "12:00:05,000", topic=f"{TOPIC}-of-others")],
        [unloading("12:00:05,000", topic=f"{TOPIC}-of-others")],
        [sought("message id 7:1", "12:00:05,000", name="audit")],
        [done("time 1", "12:00:05,000").replace("PersistentTopicsBase", "Application")],
        [done("time 1", "12:00:05,000").replace("] Reset", "] Failed to reset")],
    ],
)
def test_what_did_not_happen_to_this_subscription_is_no_act(tmp_path, lines):
    assert resets(tmp_path, *lines) == []


def test_what_reaches_all_partitions_by_one_request_is_one_act(tmp_path):
    parts = [f"{TOPIC}-partition-{number}" for number in range(3)]
    to = "time 1772625590000"
    lines = [received(to, "12:00:05,000"), *(received(to, "12:00:06,000", part) for part in parts)]
    lines += [done(to, "12:00:07,000", part) for part in parts]
    lines += [unloading("12:00:20,000"), *(unloading("12:00:21,000", part) for part in parts)]
    at = {"time": "2026-03-04T11:59:50.000000Z"}
    assert resets(tmp_path, *lines) == [("05", "reset", at, None), ("20", "unload", None, None)]


def test_an_act_on_one_partition_is_of_that_partition(tmp_path):
    part = f"{TOPIC}-partition-2"
    lines = [sought("message id 7:1", "12:00:05,000", part), unloading("12:00:06,000", part)]
    assert resets(tmp_path, *lines) == [("05", "seek", {"ledger": 7, "entry": 1}, 2), ("06", "unload", None, 2)]


def test_skipped_backlogs_and_expired_messages_are_acts(tmp_path):
    expiring = line(
        f"[{TOPIC}][billing] Expiring all messages until position 7:41", "PersistentMessageExpiryMonitor",
        "12:00:07,000", "pulsar-msg-expiry-monitor-55-1", "INFO",
    )  # fmt: skip
    lines = [
        admin(f"[admin] Cleared backlog on {TOPIC} billing", "12:00:05,000"),
        admin(f"[admin] Skipped 5 messages on {TOPIC} billing", "12:00:06,000"),
        admin(f"[admin] Cleared backlog on {TOPIC} audit", "12:00:06,000"),
        expiring,
    ]
    assert resets(tmp_path, *lines) == [
        ("05", "skip", None, None),
        ("06", "skip", None, None),
        ("07", "ttl", {"ledger": 7, "entry": 42}, None),
    ]


def test_two_acts_one_after_the_other_are_two(tmp_path):
    lines = [unloading("12:00:05,000"), unloading("12:00:15,000")]
    assert [each[:2] for each in resets(tmp_path, *lines)] == [("05", "unload"), ("15", "unload")]
