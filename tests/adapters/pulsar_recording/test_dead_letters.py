"""Dead letters of a recording: messages that name what they were, in whichever client's words."""

import pytest

from tests.adapters.pulsar_recording.recording import LEDGER, MS, START, TOPIC, Recording, reasons, rows

DLQ = f"{TOPIC}-sub-DLQ"


def letter(entry: int, origin: str, **fields):
    properties = {"ORIGIN_MESSAGE_ID": origin, "REAL_TOPIC": TOPIC}
    row = {"topic": DLQ, "ledger": 9, "entry": entry, "key": "k", "ordering_key": "", "producer": "p", "size": 7}
    return row | {"publish_time_ms": START // MS, "properties": properties} | fields


def origins(ingested):
    return [row and tuple(row.values()) for row in rows(ingested, "messages", "origin")]


@pytest.mark.row("D-DLQ-1")
@pytest.mark.parametrize(
    ("message_id", "entry", "batch_index"),
    [("(5,3,-1,-1)", 3, -1), ("(5,3,-1,2)", 3, 2), ("5:3:-1", 3, -1), ("5:3:-1:0", 3, 0), ("5:1:-1;5:3:-1", 3, -1)],
    ids=["C++", "C++, batched", "Java", "Java, batched", "Java, chunked"],
)
def test_a_dead_letter_names_the_message_it_was(tmp_path, message_id, entry, batch_index):
    made = Recording().join("c1").publish(0, "k").line("dlq", letter(0, message_id)).read(tmp_path)
    assert origins(made) == [None, (TOPIC, -1, LEDGER, entry, batch_index)]
    assert rows(made, "messages", "topic", "ordering_key")[1] == (DLQ, None)


def test_the_partition_it_came_from_is_part_of_its_topic_s_name(tmp_path):
    properties = {"ORIGIN_MESSAGE_ID": "5:3:2", "REAL_TOPIC": f"{TOPIC}-partition-2"}
    made = Recording().join("c1").publish(0, "k").line("dlq", letter(0, "", properties=properties)).read(tmp_path)
    assert origins(made)[1] == (TOPIC, 2, LEDGER, 3, -1)


@pytest.mark.parametrize("properties", [{}, {"REAL_TOPIC": TOPIC}, {"ORIGIN_MESSAGE_ID": "?", "REAL_TOPIC": TOPIC}])
def test_what_no_consumer_put_there_was_no_other_message(tmp_path, properties):
    made = Recording().join("c1").publish(0, "k").line("dlq", letter(0, "", properties=properties)).read(tmp_path)
    assert origins(made) == [None, None]


def test_a_row_that_does_not_fit_is_rejected_with_its_reason(tmp_path):
    story = Recording().join("c1").publish(0, "k").line("dlq", letter(0, "(5,3,-1,-1)"))
    (reason,) = reasons(story.line("dlq", letter(-1, "(5,3,-1,-1)")).read(tmp_path))
    assert reason.startswith("dlq.jsonl.gz, row 2: entry = -1")


def test_the_suggested_run_knows_the_dead_letter_policy_that_was_recorded(tmp_path):
    story = Recording(kind="Shared").join("c1").publish(0, "k").dispatch(0, "c1").nack("c1", 0)
    story = story.dispatch(0, "c1", again=1).ack(0, "c1").line("dlq", letter(0, "(5,0,-1,-1)"))
    assert story.read(tmp_path).run["topic"] == {"dead_letter": {"topic": DLQ, "max_redeliveries": 1}}


def test_a_delivery_knows_when_its_application_gave_it_back(tmp_path):
    story = Recording().join("c1").publish(0, "k").dispatch(0, "c1").receive(0, "c1")
    story.files["deliveries"][0]["nack_ns"] = story.now + 3 * MS
    assert rows(story.read(tmp_path), "deliveries", "received_at", "refused_at", "nacked_at") == [(5, 8, None)]
