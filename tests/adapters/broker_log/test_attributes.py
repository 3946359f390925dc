"""Logs of Pulsar 5.0: a constant text with its values as attributes."""

import pytest

from subreplay.adapters import Options
from subreplay.errors import InputError
from tests.adapters.broker_log.test_lines import BROKER, TOPIC, line, parsed
from tests.adapters.broker_log.test_logs import read, write

OF_TOPIC = f"subscription=billing, topic={TOPIC}}}"


def connection(port):
    return f"[id: 0x1, L:/10.0.0.1:6650 - R:/10.0.0.9:{port}] [SR:10.0.0.9, state:Connected]"


def joined(port):
    remote = f"localAddress=/10.0.0.1:6650, remoteAddress=/10.0.0.9:{port}, {OF_TOPIC}"
    return [
        line(f"Subscribing on topic {{cnx={connection(port)}, consumerId=0, {remote}", "ServerCnx"),
        line(f"Created subscription on topic {{{remote}", "ServerCnx"),
    ]


def added(entry, port, name):
    return line(
        f"Added entry to pendingAcks {{batchSize=1, cnx={connection(port)}, consumerId=0, consumerName={name}, "
        f"entryId={entry}, ledgerId=7, {OF_TOPIC}", "Consumer",
    )  # fmt: skip


def test_consumers_of_a_shared_subscription_on_one_thread_are_named(tmp_path):
    given = [(1, 5000, "c1"), (2, 5001, "c2"), (3, 5001, "c2"), (4, 5000, "c1")]
    acked = line(f"Individual acks on {{positions=[7:1, 7:2], {OF_TOPIC}", "persistent.PersistentSubscription")
    write(tmp_path, "broker.log", [*joined(5000), *joined(5001), *(added(*of) for of in given), acked])
    found = read(tmp_path)
    delivered = found.tables["deliveries"].select(["entry", "consumer", "outcome"]).to_pylist()
    assert [(row["entry"], row["consumer"]) for row in delivered] == [(entry, name) for entry, _, name in given]
    assert [row["outcome"] for row in delivered] == ["acked", "acked", "pending", "pending"]
    assert set(found.tables["membership"]["consumer"].to_pylist()) == {"c1", "c2"}
    assert found.run["subscription"]["profile"] == "pulsar-5.0"


def test_an_act_of_an_operator_is_found_with_its_target(tmp_path):
    act = f"{BROKER.removesuffix('service.')}web.PulsarWebResource"
    lines = [
        text.replace(f"{BROKER}act", act)
        for text in (
            line(f"Received reset cursor on subscription to time {{clientAppId=null, subscription=billing, "
                 f"time=1772625000000, topic={TOPIC}}}", "act", "12:00:01,000"),
            line(f"Reset cursor on subscription to time {{clientAppId=null, subscription=billing, "
                 f"time=1772625000000, topic={TOPIC}}}", "act", "12:00:02,000"),
            line(f"Unloading topic {{clientAppId=null, topic={TOPIC}}}", "act", "12:00:03,000"),
        )
    ]  # fmt: skip
    write(tmp_path, "broker.log", [*joined(5000), added(1, 5000, "c1"), *lines])
    assert read(tmp_path).run["topic"]["resets"] == [
        {
            "at": "2026-03-04T12:00:01.000000Z",
            "kind": "reset",
            "to": {"time": "2026-03-04T11:50:00.000000Z"},
            "by": "operator",
        },
        {"at": "2026-03-04T12:00:03.000000Z", "kind": "unload", "by": "operator"},
    ]


def test_a_line_that_is_cut_within_its_attributes_is_quarantined():
    whole = added(1, 5000, "c1")
    assert parsed(whole).rejected == ()
    assert [len(parsed(whole[:-size]).rejected) for size in (1, 20, 150)] == [1, 1, 1]


def test_a_log_without_its_values_is_refused_with_the_remedy(tmp_path):
    write(tmp_path, "broker.log", [text.partition(" {")[0] for text in (*joined(5000), added(1, 5000, "c1"))])
    with pytest.raises(InputError, match=r"without the values .* Add %X after %msg to the pattern"):
        read(tmp_path, Options())
