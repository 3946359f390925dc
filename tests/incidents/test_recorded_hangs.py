"""Hangs, limits and stalls made on a real broker: the audit names who blocks whom, since when, and how many wait.

The counts, names and instants are those that the recorder noted (its ``answer.json``).
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from subreplay.cli import main

RECORDINGS = Path(__file__).parents[1] / "data" / "recordings-incidents" / "4.2.4"

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    ("recording", "count", "waited", "holder"),
    [
        ("i1_key_shared_hang_join", 1039, "1 min 6 s", "api-2, which held 75 unacknowledged since 18:45:32.930785"),
        ("i2_failover_active_hangs", 1660, "1 min 6 s", "fo-a, which held 65 unacknowledged since 18:46:37.036711"),
        (
            "i4_shared_subscription_limit",
            1686,
            "56.2 s",
            "batch-2, which held 118 unacknowledged since 18:50:25.105881",
        ),
        ("i5_total_stall_restart", 1560, "1 min 3 s", "etl, which held 40 unacknowledged since 18:50:25.795491"),
        ("i6_delayed_key_shared_late", 476, "48.7 s", "d-2, which held 37 unacknowledged since 18:50:28.781592"),
        (
            "i10_key_shared_look_ahead_blackout",
            2101,
            "1 min 5 s",
            "p2, which held 22 unacknowledged since 18:53:20.424548",
        ),
    ],
)
def test_messages_that_waited_behind_a_hung_consumer_are_counted_and_it_is_named(
    recording, count, waited, holder, tmp_path
):
    code, report = audited(recording, tmp_path)
    assert (code, failing(report)) == (1, {"STUCK": count})
    (worst, *_), name = report["incidents"], holder.split(",")[0]
    assert (worst["code"], worst["rules"][0]["findings"], worst["consumers"]) == ("STUCK", count, [name])
    assert re.match(rf"{count:,} of [\d,]+ messages .*: consumer {name} block(s|ed) ", report["headline"])
    assert waited in f"{report['headline']} {report['detail']}"
    assert f"Cause: consumer {holder}" in report["detail"]
    assert "Attributed to: consumer application." in report["detail"]


def test_a_consumer_that_the_broker_blocked_at_its_limit_is_named_although_nobody_waits(tmp_path):
    code, report = audited("i3_shared_unacked_limit", tmp_path)
    assert (code, failing(report)) == (1, {"STUCK": 1})
    assert report["headline"].startswith("Consumer s2 reached its limit of unacknowledged messages")
    assert "s2 reached its limit of unacknowledged messages with 5:352 at 18:45:40.488861" in report["detail"]
    assert "which held 60 unacknowledged since 18:45:34.601223 (first: 5:175)" in report["detail"]


@pytest.mark.parametrize(
    ("recording", "title", "act"),
    [
        (
            "i7_reset_cursor_admin",
            "were redelivered because the cursor was reset, although 361 of them had been acknowledged",
            "Operator reset the cursor at 2026-11-28T18:45:42.932000Z to messages published from "
            "2026-11-28T18:45:33.903000Z on. The first is at 3:353.",
        ),
        (
            "i8_seek_by_consumer",
            "were redelivered because a consumer sought back, although 286 of them had been acknowledged",
            "Consumer m1 sought at 2026-11-28T18:45:42.800000Z to messages published from "
            "2026-11-28T18:45:34.784000Z on. The first is at 7:287.",
        ),
        (
            "i9_unload_with_unacked",
            "were redelivered because the topic was unloaded",
            "Operator unloaded the topic at 2026-11-28T18:46:41.882000Z. The first is at 17:220.",
        ),
    ],
)
def test_an_act_that_the_brokers_log_names_is_no_violation_and_the_headline_names_it(recording, title, act, tmp_path):
    code, report = audited(recording, tmp_path)
    assert (code, failing(report)) == (0, {})
    assert (title in report["headline"], act in report["detail"]) == (True, True)


def audited(recording: str, folder: Path):
    """Ingest and audit a recording by the command: the exit code and the report."""
    assert main.main(["ingest", str(RECORDINGS / recording), "--to", str(folder / "in"), "--quiet"]) == 0
    code = main.main(["audit", "--config", str(folder / "in" / "audit.yaml"), "--out", str(folder / "out"), "--quiet"])
    return code, json.loads((folder / "out" / "report" / "report.json").read_text())


def failing(report):
    """How many findings each broken rule has."""
    return {rule["code"]: rule["count"] for rule in report["codes"] if rule["status"] == "violated"}
