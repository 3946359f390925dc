"""The dispatch replay of a real log: every message ends once, however the log is cut into batches."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from subreplay.config.dispatch import Dispatch
from subreplay.hashing.murmur3 import MASK_31, murmur3_32
from subreplay.semantics.policies import make_policy
from subreplay.semantics.timelines.membership import build_dispatcher_events
from subreplay.simulation.pulsar.service_model import Fixed
from subreplay.whatif.dispatch_replay import DELIVERY, INTERVAL, PREDICTED, WAITED, DispatchPredictor, DispatchScenario
from subreplay.whatif.scenario import build_plan, build_recorded_events
from tests.support.recordings import ROOT, ingested

SECOND = 1_000_000_000


def messages_of(recording, scenario):
    """The messages as Spark hands them to a predictor."""
    tables = ingested(ROOT / recording).tables
    rows, members = tables["messages"], tables["membership"]
    n = rows.num_rows
    columns = {name: rows[name] for name in rows.column_names if name not in ("publish_time", "deliver_at")}
    columns |= {
        "scenario": pa.array([scenario] * n),
        "at": pc.multiply(rows["publish_time"].cast(pa.int64()), 1000),
        "deliver_at": pc.multiply(rows["deliver_at"].cast(pa.int64()), 1000),
        "last_sequence_id": rows["sequence_id"],
        "sequence_id": pc.coalesce(rows["batch_sequence_id"], rows["sequence_id"]),
    }
    order = [(name, "ascending") for name in ("topic", "partition", "ledger", "entry", "batch_index")]
    return pa.table(columns).sort_by(order), members


def predict(recording, policy, batch=1000, options=None, profile="pulsar-4.0", **assumed):
    """All rows of the replay of a recording's traffic, whose members are those recorded."""
    rows, members = messages_of(recording, "x")
    scopes = {(r["topic"], r["partition"]) for r in rows.select(["topic", "partition"]).to_pylist()}
    events = build_dispatcher_events(_in_ns(members), sorted(scopes))
    folded = build_plan(
        "x", make_policy(policy, profile, **(options or {})), {s: build_recorded_events(e) for s, e in events.items()}
    )
    start = pc.min(rows["at"]).as_py()
    dispatch = Dispatch.model_validate(assumed)
    predictor = DispatchPredictor(
        {"x": DispatchScenario(folded, dispatch.prediction(Fixed(), start, SECOND), dispatch.build_settings(profile))}
    )
    batches = list(predictor.predict(rows.to_batches(max_chunksize=batch)))
    return rows, pa.Table.from_batches(batches, PREDICTED)


def _in_ns(members):
    for row in members.to_pylist():
        for name in ("at", "since"):
            if row[name] is not None:
                row[name] = round(row[name].timestamp() * 1e6) * 1000
        yield row


def of_kind(table, kind):
    return table.filter(pc.equal(table["kind"], kind))


@pytest.mark.parametrize(
    ("recording", "policy"),
    [
        ("4.0.8/s1b_key_shared_stuck", "pulsar.key_shared.consistent_hash"),
        ("4.0.8/s5_failover_partitioned", "pulsar.failover"),
        ("4.0.8/s1e_key_shared_key_based_batching", "pulsar.shared"),
        ("4.0.8/s8_exclusive_cumulative", "pulsar.exclusive"),
        ("4.0.8/s1f_key_shared_default_batching", "pulsar.key_failover"),
    ],
)
@pytest.mark.parametrize("profile", ["documented", "pulsar-4.0"])
def test_every_message_of_a_real_log_ends_exactly_once(recording, policy, profile):
    fails = {"service": {"time": "2ms"}, "failure_rate": 0.05, "nack_delay": "1s", "max_redeliver": 2}
    log, found = predict(recording, policy, profile=profile, consumers=fails)
    deliveries = of_kind(found, DELIVERY)
    done = deliveries.filter(pc.or_(deliveries["settled"], pc.equal(deliveries["outcome"], "pending")))
    position = ("partition", "ledger", "entry", "batch_index")
    ended = Counter(zip(*(done[name].to_pylist() for name in position), strict=True))

    assert set(ended.values()) == {1}
    assert set(ended) == set(zip(*(log[name].to_pylist() for name in position), strict=True))
    assert pc.sum(of_kind(found, INTERVAL)["messages_published"]).as_py() == log.num_rows


@pytest.mark.long
def test_the_rows_do_not_depend_on_how_the_log_is_cut():
    stuck = {"others": {"c2": {"stuck": {"start": "1s", "end": "4s"}}}, "consumers": {"service": {"time": "1ms"}}}
    recording, policy = "4.0.8/s1e_key_shared_key_based_batching", "pulsar.key_shared.consistent_hash"

    (_, whole), (_, cut) = (predict(recording, policy, batch, **stuck) for batch in (10_000, 7))

    assert whole.sort_by(
        [(n, "ascending") for n in ("kind", "at", "ledger", "entry", "batch_index", "delivered_at")]
    ) == (cut.sort_by([(n, "ascending") for n in ("kind", "at", "ledger", "entry", "batch_index", "delivered_at")]))


def test_a_wait_names_the_stuck_consumer():
    _, found = predict(
        "4.0.8/s1b_key_shared_stuck",
        "pulsar.key_shared.consistent_hash",
        consumers={"service": {"time": "1ms"}},
        others={"c2": {"stuck": {"start": "0s", "end": "6s"}}},
    )
    waits = of_kind(found, WAITED)

    assert set(waits["holder"].to_pylist()) == {"c2"}
    assert np.all(pc.subtract(waits["until"], waits["at"]).to_numpy() > 0)


def test_a_message_is_never_delivered_before_it_was_published():
    _, found = predict("4.0.8/s5_failover_partitioned", "pulsar.failover", consumers={"service": {"time": "1ms"}})
    deliveries = of_kind(found, DELIVERY)
    late = pc.subtract(deliveries["delivered_at"], deliveries["at"])

    assert pc.min(late).as_py() >= 0


def owners_by_key(recording, profile="pulsar-4.0"):
    """Of each key: the consumers that its messages went to; nobody leaves or is slow."""
    log, found = predict(recording, "pulsar.key_shared.consistent_hash", profile=profile,
                         consumers={"receiver_queue_size": 100_000})  # fmt: skip
    position = ("partition", "ledger", "entry", "batch_index")
    keys = dict(zip(zip(*(log[n].to_pylist() for n in position), strict=True), log["key"].to_pylist(), strict=True))
    deliveries = of_kind(found, DELIVERY)
    rows = zip(
        zip(*(deliveries[n].to_pylist() for n in position), strict=True), deliveries["slot"].to_pylist(), strict=True
    )
    slots = {}
    for at, slot in rows:
        slots.setdefault(keys[at], set()).add(slot)
    return slots


@pytest.mark.row("P-KS-BAT-1")
@pytest.mark.row("L-BATCH-3")
def test_l_batch_3_with_key_based_batching_every_message_is_dispatched_by_its_own_key():
    slots = owners_by_key("4.0.8/s1e_key_shared_key_based_batching")

    assert len(slots) > 30
    assert all(len(of_key) == 1 for of_key in slots.values())


@pytest.mark.row("P-KS-BAT-1")
@pytest.mark.row("L-BATCH-3")
def test_l_batch_3_with_default_batching_the_first_key_of_the_batch_decides():
    slots = owners_by_key("4.0.8/s1f_key_shared_default_batching")

    assert sum(len(of_key) > 1 for of_key in slots.values()) > 200


@pytest.mark.row("L-BATCH-3")
def test_l_batch_3_messages_without_a_key_are_dispatched_under_non_key():
    slots = owners_by_key("4.0.8/s1d_key_shared_ordering_nokey", "documented")

    assert slots[None] >= {murmur3_32(b"NON_KEY") & MASK_31}
