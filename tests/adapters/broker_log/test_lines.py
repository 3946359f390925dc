"""Logs as they come: cut, mixed, doubled, not UTF-8, of several brokers, with a clock that goes back."""

import gzip

import pyarrow as pa
import pytest

from subreplay.adapters.broker_log.line_events import LOG_LINES, find_duplicates, parse_events, sum_file_counts
from subreplay.adapters.input_files import read_line_batches
from tests.support.broker_log_rows import in_order, of_topic, rows, topics

TOPIC = "persistent://a/b/orders"
BROKER = "org.apache.pulsar.broker.service."
SENDER = "PulsarCommandSenderImpl"
SUBSCRIPTION = f"{TOPIC}-PersistentSubscription{{topic={TOPIC}, name=billing}}"
CONSUMER = (
    f"Consumer{{subscription=PersistentSubscription{{topic={TOPIC}, name=billing}}, consumerId=0, consumerName=c1, "
    "address=[id: 0x1, L:/10.0.0.1:6650 - R:/10.0.0.9:5000] [SR:10.0.0.9, state:Connected]}"
)


def line(message, logger, at="12:00:00,000", thread="pulsar-io-1", level="DEBUG", zone="+0000"):
    return f"2026-03-04T{at}{zone} [{thread}] {level} {BROKER}{logger} - {message}"


def sending(entry, at="12:00:01,000", thread="pulsar-io-1"):
    return line(
        f"[{SUBSCRIPTION}] Sending message to consumerId 0, msg id 7-{entry} with batchSize 1", SENDER, at, thread
    )


def acked(ids, at="12:00:02,000"):
    return line(f"[{TOPIC}][billing] Individual acks on [{ids}]", "persistent.PersistentSubscription", at)


def join(at="12:00:00,000", address="10.0.0.9:5000", thread="pulsar-io-1"):
    return [
        line(
            f"[[id: 0x1, L:/10.0.0.1:6650 - R:/{address}] [SR:10.0.0.9, state:Connected]] "
            f"Subscribing on topic {TOPIC} / billing. consumerId: 0, role: null",
            "ServerCnx", at, thread, "INFO",
        ),
        line(f"[/{address}] Created subscription on topic {TOPIC} / billing", "ServerCnx", at, "Thread-3", "INFO"),
    ]  # fmt: skip


def removed(at="12:00:09,000", name="c1", address="10.0.0.9:5000"):
    shown = CONSUMER.replace("c1", name).replace("10.0.0.9:5000", address)
    return line(f"Removed consumer {shown} with pending 0 acks", "persistent.PersistentDispatcherMultipleConsumers", at)


def table(lines, file="broker.log"):
    raw = [text if isinstance(text, bytes) else text.encode() for text in lines]
    columns = [pa.array([file] * len(raw), pa.string()), pa.array(range(1, len(raw) + 1), pa.int64()), raw]
    return pa.table([*columns[:2], pa.array(raw, pa.binary())], schema=LOG_LINES)


def parsed(*lines, file="broker.log"):
    return parse_events(table(lines, file))


def folded(*files):
    found = [parse_events(table(lines, f"{number}.log")).events for number, lines in enumerate(files)]
    return rows(pa.concat_tables(found))


def test_a_whole_line_is_an_event():
    (row,) = parsed(sending(5)).events.to_pylist()
    assert (row["kind"], row["topic"], row["partition"], row["subscription"]) == ("sending", TOPIC, -1, "billing")
    assert (row["consumer_id"], row["ledger"], row["entry"], row["count"]) == (0, 7, 5, 1)
    assert (row["thread"], row["at"].isoformat()) == ("pulsar-io-1", "2026-03-04T12:00:01+00:00")


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.large_binary()])
def test_text_may_be_of_any_such_type(kind):
    lines = table([sending(5), sending(6)])
    lines = lines.set_column(2, "text", lines["text"].cast(kind)).slice(1)
    assert parse_events(lines).events["entry"].to_pylist() == [6]


@pytest.mark.parametrize(("zone", "hour"), [("+0000", 12), ("Z", 12), ("+0200", 10), ("-05:30", 17), ("+05:30", 6)])
def test_times_are_utc_whatever_the_zone(zone, hour):
    (row,) = parsed(line("Closed connection from /10.0.0.9:1", "ServerCnx", zone=zone)).events.to_pylist()
    assert row["at"].hour == hour


def test_line_breaks_of_both_kinds_are_no_part_of_a_line():
    assert parsed(sending(5) + "\n", sending(6) + "\r\n").events["entry"].to_pylist() == [5, 6]


def test_lines_about_other_things_are_passed_over():
    other = parsed(
        line(f"[{SUBSCRIPTION}] Added 0 minus 1 messages to MESSAGE_PERMITS_UPDATER", "Consumer"),
        line("Created 3 topics", "BrokerService"),
        "java.lang.IllegalStateException: Sending it failed",
        "\tat java.base/java.lang.Thread.run(Thread.java:840)",
        "",
    )
    (file,) = other.files.to_pylist()
    assert (file["lines"], file["known"], file["quarantined"]) == (5, 0, 0)
    assert len(other.events) == 0


@pytest.mark.parametrize(
    "text",
    [
        sending(5)[:-5],  # its last number is gone
        sending(5)[: sending(5).index(" with")] + sending(6),  # two lines in one
        line("Created 3 to", "BrokerService") + sending(5),
        sending(5)[60:],  # its first half is gone
        sending(5).replace("7-5", "7-x"),
        sending(5).replace("7-5", "7-" + "9" * 30),
        sending(5).replace("7-5", "7-9999999999"),
        sending(5).replace("03-04", "02-30"),
        sending(5).replace("12:00:01", "25:00:01"),
        sending(5) + "0 and more",
        acked("7:1, 7:"),
        acked("7:1, 7:2")[:-1],
        acked("7:1; 7:2"),
        acked("7:1 (ackSet with long[]"),
        sending(5).replace("orders", "orders-partition-1000000"),
    ],
)
def test_what_begins_like_a_known_line_and_is_none_is_quarantined(text):
    found = parsed(text, sending(8))
    assert found.events["entry"].to_pylist() == [8]
    (rejected,) = found.rejected
    assert (rejected.file, rejected.row, rejected.raw) == ("broker.log", 1, text)
    assert rejected.reasons[0].remedy
    (file,) = found.files.to_pylist()
    assert (file["lines"], file["known"], file["quarantined"]) == (2, 1, 1)


@pytest.mark.parametrize("size", range(60, len(acked("7:1")), 7))
def test_a_line_cut_anywhere_gives_no_event(size):
    assert len(parsed(acked("7:1")[:size]).events) == 0


def test_a_name_that_is_no_utf8_is_quarantined_and_bytes_elsewhere_are_no_matter():
    broken = sending(5).encode().replace(b"name=billing", b"name=bill\xff")
    stack = b"\xfe\xff not a line"
    found = parsed(broken, stack, sending(6))
    assert found.events["entry"].to_pylist() == [6]
    assert [(r.row, r.reasons[0].column, r.reasons[0].value) for r in found.rejected] == [
        (1, "subscription", "bill\\xff")
    ]


def test_names_that_are_parts_of_each_other_stay_apart():
    found = parsed(sending(5), sending(6).replace("orders", "orders-2"), sending(7).replace("name=b", "name=big b"))
    assert found.events["topic"].to_pylist() == [TOPIC, f"{TOPIC}-2", TOPIC]
    assert found.events["subscription"].to_pylist() == ["billing", "billing", "big billing"]


@pytest.mark.parametrize("address", ["10.0.0.9:5000", "[2001:db8::1]:5000"])
@pytest.mark.parametrize("shown", ["/{}", "client.example/{}"])
def test_an_address_is_the_same_in_every_line(address, shown):
    host = shown.format(address)
    found = parsed(
        line(f"Closed connection from {host}", "ServerCnx"),
        line(f"[{host}] Closing consumer: consumerId=3", "ServerCnx"),
        line(f"Removing consumer {CONSUMER}".replace("/10.0.0.9:5000", host), "AbstractDispatcherSingleActiveConsumer"),
        line(
            f"Removing consumer {CONSUMER[: CONSUMER.index('[id')]}{host}}}", "AbstractDispatcherSingleActiveConsumer"
        ),
    )
    assert found.events["connection"].to_pylist() == [address] * 4


def test_topics_are_known_by_their_partitions():
    found = parsed(sending(5).replace("orders", "orders-partition-3"), sending(6))
    assert topics(found.events) == [(TOPIC, -1), (TOPIC, 3)]
    assert of_topic(found.events, TOPIC, 3)["entry"].to_pylist() == [5]


def test_a_file_that_is_passed_twice_is_reported_and_a_different_file_is_not():
    lines = [sending(n) for n in range(5)]
    files = [parsed(*lines, file="a"), parsed(*lines, file="b"), parsed(*lines[:4], sending(40), file="c")]
    files.append(parsed(*reversed(lines), file="d"))
    assert find_duplicates(sum_file_counts(pa.concat_tables([found.files for found in files]))) == {"b": "a"}


def test_a_file_in_parts_has_the_digest_of_the_whole():
    lines = table([sending(n, f"12:00:0{n},000") for n in range(6)])
    parts = pa.concat_tables([parse_events(lines.slice(0, 2)).files, parse_events(lines.slice(2)).files])
    assert sum_file_counts(parts).equals(parse_events(lines).files)


def test_plain_and_gzip_files_give_the_same_lines_whatever_their_names(tmp_path, monkeypatch):
    text = "\n".join([*join(), sending(1), acked("7:1"), removed()]).encode()
    (tmp_path / "broker.log").write_bytes(text)
    (tmp_path / "broker.log.1").write_bytes(gzip.compress(text))
    monkeypatch.setattr("subreplay.adapters.input_files.BLOCK_BYTES", 100)
    plain, packed = (
        pa.Table.from_batches(read_line_batches(tmp_path / name, "x")) for name in ("broker.log", "broker.log.1")
    )
    assert plain.equals(packed)
    assert plain["line"].to_pylist() == [1, 2, 3, 4, 5]
    assert [parse_events(plain).files[name][0].as_py() for name in ("lines", "known", "quarantined")] == [5, 5, 0]


def test_of_a_gzip_file_that_is_cut_all_before_the_cut_is_read(tmp_path):
    path = tmp_path / "broker.log.gz"
    packed = gzip.compress("".join(f"{sending(n)}\n" for n in range(10_000)).encode())
    path.write_bytes(packed[: len(packed) // 2])
    *lines, rest = read_line_batches(path)
    known = parse_events(pa.Table.from_batches(lines)).events["entry"].to_pylist()
    assert known == [*range(len(known))]
    assert 3_000 < len(known) < 7_000
    assert (rest.row, rest.reasons[0].remedy) == (len(known) + 1, "copy it again")


def test_lines_of_one_file_keep_their_order_though_its_clock_goes_back():
    found = folded([*join(), sending(1, "12:00:05,000"), acked("7:1", "11:59:00,000"), removed("11:59:09,000")])
    (row,) = found.deliveries.to_pylist()
    assert (row["consumer"], row["outcome"], row["acked_at"].isoformat()) == (
        "c1",
        "acked",
        "2026-03-04T11:59:00+00:00",
    )
    assert found.backwards == {"0.log": 65_000}


def test_lines_that_are_a_few_milliseconds_out_of_turn_are_no_clock_that_goes_back():
    assert folded([sending(1, "12:00:05,003"), sending(2, "12:00:05,001")]).backwards == {}


def test_a_topic_that_moves_to_another_broker_goes_on_there():
    first = [
        *join(), sending(1, "12:00:01,000"), acked("7:1", "12:00:02,000"), sending(2, "12:00:03,000"),
        line(f"Disconnecting consumer: {CONSUMER}", "Consumer", "12:00:04,000"), removed("12:00:04,001"),
    ]  # fmt: skip
    second = [
        *join("12:00:05,000", "10.0.0.9:6000"), sending(2, "12:00:06,000"), acked("7:2", "12:00:07,000"),
        removed("12:00:09,000", address="10.0.0.9:6000"),
    ]  # fmt: skip
    for files in ((first, second), (second, first)):
        found = folded(*files)
        reported = [(row["entry"], row["instance"], row["outcome"]) for row in found.deliveries.to_pylist()]
        assert sorted(reported) == [
            (1, "10.0.0.9:5000#0", "acked"), (2, "10.0.0.9:5000#0", "closed"), (2, "10.0.0.9:6000#0", "acked"),
        ]  # fmt: skip
        assert found.membership["event"].to_pylist() == ["join", "leave", "join", "crash"]


def test_rotated_files_are_one_log():
    lines = [*join(), sending(1), sending(2, "12:00:01,001"), acked("7:1"), acked("7:2"), removed()]
    whole = folded(lines)
    rotated = folded(lines[3:], lines[:3])
    assert rotated.deliveries.drop_columns(["seq"]).equals(whole.deliveries.drop_columns(["seq"]))


def test_a_consumer_that_nobody_can_name_is_not_guessed():
    two = [*join(), *join(address="10.0.0.9:7000")]
    leaves = [removed(), removed(name="c2", address="10.0.0.9:7000")]
    found = folded([*two, sending(1), *leaves])
    assert len(found.deliveries) == 0
    assert found.unnamed_deliveries["consumer"].to_pylist() == [None]
    other_thread = [*join(), *join(address="10.0.0.9:7000", thread="pulsar-io-2")]
    assert folded([*other_thread, sending(1), *leaves]).deliveries["consumer"].to_pylist() == ["c1"]


def test_an_acknowledgement_of_an_entry_that_was_not_dispatched_within_the_log_is_counted():
    found = folded([*join(), acked("7:1"), sending(1, "12:00:03,000"), removed()])
    assert found.counts["billing"].unmatched == 1
    assert found.deliveries["acked_at"].to_pylist() == [None]


def test_a_line_that_lists_an_entry_twice_asks_for_it_once():
    back = line(
        f"[{TOPIC} / billing-{CONSUMER}] Redelivering unacknowledged messages for consumer [7:1, 7:1]",
        "persistent.PersistentDispatcherMultipleConsumers", "12:00:02,000",
    )  # fmt: skip
    found = folded([*join(), sending(1), back, sending(1, "12:00:03,000"), removed()]).deliveries
    assert found["redelivery_count"].to_pylist() == [0, 1]
    assert [time is not None for time in found["nacked_at"].to_pylist()] == [True, False]


def test_an_acknowledged_message_is_not_outstanding():
    from subreplay.adapters.broker_log.log_deliveries import DeliveryFold

    lines = [text for n in range(500) for text in (sending(n), acked(f"7:{n}"))]
    ordered, _ = in_order(parsed(*lines, sending(1000)).events)
    fold = DeliveryFold(TOPIC, -1, "billing", [])
    assert len(fold.add(ordered)) == 500
    assert fold.outstanding == 1
    assert fold.finish()["entry"].to_pylist() == [1000]


def test_a_selected_consumer_is_that_of_so_many_lines_of_the_same_thread_and_of_no_more():
    select = line(
        f"[{TOPIC} / billing] select consumer c1 with messages num 1, read type is Normal",
        "persistent.PersistentStickyKeyDispatcherMultipleConsumers", thread="w-1",
    )  # fmt: skip
    added = [
        line(
            f"[{SUBSCRIPTION}] Added 7:{entry} ledger entry with batchSize of 1 to pendingAcks"
            " in broker.service.Consumer for consumerId: 0", "Consumer", thread=thread,
        )
        for entry, thread in ((1, "w-2"), (2, "w-1"), (3, "w-1"))
    ]  # fmt: skip
    two = [*join(), *join(address="10.0.0.9:7000")]
    found = folded([*two, select, *added, removed(), removed(name="c2", address="10.0.0.9:7000")])
    assert found.deliveries.select(["entry", "consumer"]).to_pylist() == [{"entry": 2, "consumer": "c1"}]
    assert found.unnamed_deliveries["entry"].to_pylist() == [1, 3]
    assert found.membership["type"].to_pylist() == ["Key_Shared"] * 4


def test_a_line_without_text_is_a_line_that_says_nothing():
    lines = pa.table({"file": ["a", "a"], "line": [1, 2], "text": pa.array([None, sending(5)])})
    assert parse_events(lines).files.select(["lines", "known"]).to_pylist() == [{"lines": 2, "known": 1}]
    assert len(parse_events(lines.slice(0, 0)).events) == 0
