"""Files beside messages are known for receive logs and lists of members, whatever their columns are called."""

from __future__ import annotations

import pyarrow as pa
import pytest

from subreplay.adapters.source.answered_questions import AnsweredCandidate, answer_questions
from subreplay.adapters.source.receive_logs import (
    RecognisedFile,
    infer_log_policy,
    recognise_member_list,
    recognise_receive_log,
)
from subreplay.adapters.source.sample_contents import SampleContents
from subreplay.adapters.source.source_presets import build_plan
from subreplay.adapters.source.source_recognition import BY_NAME, Candidate, list_candidates

ROWS = 120


def stamp(n: int) -> str:
    return f"2026-11-20T08:{n // 60:02}:{n % 60:02}.000Z"


MESSAGES = pa.table(
    {
        "lane": [str(n % 4) for n in range(ROWS)],
        "pos": [str(n // 4) for n in range(ROWS)],
        "created_at": [stamp(n) for n in range(ROWS)],
        "account": [f"A{n * 7 % 13}" for n in range(ROWS)],
    }
)


def as_messages(rows: pa.Table) -> tuple[SampleContents, AnsweredCandidate]:
    contents = SampleContents(rows)
    found = list_candidates(rows.schema, (), contents)
    nothing = Candidate(BY_NAME, "messages", {}, ("offset", "topic", "partition", "publish_time"))
    return contents, answer_questions(found[0] if found else nothing, contents, "ledger")


def log_of(consumers: list[str], **columns: object) -> pa.Table:
    known = {
        "worker": consumers,
        "lane": MESSAGES["lane"],
        "pos": MESSAGES["pos"],
        "got_at": [stamp(n + 1) for n in range(ROWS)],
        "done_at": [stamp(n + 2) for n in range(ROWS)],
        "attempt": ["0"] * ROWS,
    }
    return pa.table({name: values for name, values in (known | columns).items() if values is not None})


BY_LANE = [f"w{n % 4 // 2}" for n in range(ROWS)]


def found_in(log: pa.Table) -> RecognisedFile:
    _, answer = as_messages(MESSAGES)
    found = recognise_receive_log(SampleContents(log), answer, "ledger")
    assert found is not None
    build_plan(found.section, log.schema, "deliveries")  # which works without editing
    return found


def theirs(found: RecognisedFile) -> dict[str, object]:
    return {ours: each["column"] if isinstance(each, dict) else each for ours, each in found.section["columns"].items()}


def test_a_receive_log_is_known_by_its_names_and_its_values() -> None:
    assert theirs(found_in(log_of(BY_LANE))) == {
        "partition": "lane", "offset": "pos", "consumer": "worker", "received_at": "got_at", "acked_at": "done_at",
        "redelivery_count": "attempt",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({"got_at": "received", "done_at": "acked_ts"}, {"received_at": "received", "acked_at": "acked_ts"}),
        ({"got_at": "t1", "done_at": "t2"}, {"received_at": "t1"}),
        ({"worker": "consumer_name", "done_at": "nacked_at"}, {"consumer": "consumer_name", "nacked_at": "nacked_at"}),
        ({"worker": "host", "got_at": "delivered_at"}, {"consumer": "host", "delivered_at": "delivered_at"}),
    ],
)
def test_other_names_are_known(names: dict[str, str], expected: dict[str, str]) -> None:
    log = log_of(BY_LANE)
    log = log.rename_columns([names.get(name, name) for name in log.column_names])
    columns = theirs(found_in(log))
    assert columns | expected == columns


def test_attempts_that_count_from_1_are_redeliveries_from_0() -> None:
    found = found_in(log_of(BY_LANE, attempt=[1] * (ROWS - 1) + [2]))
    assert found.section["columns"]["redelivery_count"] == {"column": "attempt", "as": "from_1"}


def test_a_log_that_names_its_group_names_the_subscription() -> None:
    found = found_in(log_of(BY_LANE, consumer_group=["billing"] * ROWS))
    assert (found.subscription, found.section["columns"]["subscription"]) == ("billing", "consumer_group")


def test_messages_are_no_receive_log() -> None:
    contents, answer = as_messages(MESSAGES)
    assert recognise_receive_log(contents, answer, None) is None
    shop = MESSAGES.append_column("client", MESSAGES["account"])
    assert recognise_receive_log(SampleContents(shop), answer, None) is None
    assert recognise_member_list(contents, None) is None


def test_membership_events_are_recognised_by_their_names() -> None:
    members = pa.table(
        {"member": ["a", "b", "a"], "what": ["CONNECTED", "join", "left"], "when": [stamp(n) for n in range(3)]}
    )
    found = recognise_member_list(SampleContents(members), "ledger")
    assert found is not None
    assert found.section["columns"] == {
        "consumer": "member",
        "event": {"column": "what", "words": {"CONNECTED": "join", "left": "leave"}},
        "at": {"column": "when", "as": "iso8601"},
    }
    build_plan(found.section, members.schema, "membership")
    assert recognise_member_list(SampleContents(log_of(BY_LANE)), None) is None


@pytest.mark.parametrize(
    ("consumers", "policy"),
    [
        (BY_LANE, "kafka.range"),
        ([f"w{n % 2}" for n in range(ROWS)], "kafka.roundrobin"),
        ([f"w{(n % 4) in (0, 3)}" for n in range(ROWS)], "kafka.cooperative_sticky"),
        ([f"w{n * 7 % 13 % 2}" for n in range(ROWS)], "pulsar.key_shared.auto_split"),
        ([f"w{n // 4 % 3}" for n in range(ROWS)], "pulsar.shared"),
    ],
)
def test_the_policy_is_what_the_deliveries_look_like(consumers: list[str], policy: str) -> None:
    contents, answer = as_messages(MESSAGES)
    log = log_of(consumers)
    assert infer_log_policy(SampleContents(log), found_in(log), contents, answer)[0] == policy


def test_a_receive_log_with_one_column_of_a_known_name_is_known() -> None:
    ids = [f"(55,{n},{n % 4},-1)" for n in range(ROWS)]
    log = pa.table({"consumerName": BY_LANE, "receivedAt": [stamp(n) for n in range(ROWS)], "messageId": ids})
    found = recognise_receive_log(SampleContents(log), None, "ledger")
    assert found is not None
    assert theirs(found) == {"message_id": "messageId", "consumer": "consumerName", "received_at": "receivedAt"}
