"""The replay of a consumer group on a real log: every record ends once, and the rules find no broken promise."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from subreplay.audit.codes import Code, drop_exempt
from subreplay.audit.context import Dispatcher
from subreplay.audit.judge import Judge
from subreplay.config.group_dispatch import GroupDispatch
from subreplay.rows.model.rows import RuleStatus, Scope
from subreplay.rows.model.tables import LOG
from subreplay.semantics.policies import ASSIGNORS, make_policy
from subreplay.simulation.pulsar.service_model import Fixed
from subreplay.whatif.dispatch_replay import CHANGE, DELIVERY, INTERVAL, PREDICTED, WAITED
from subreplay.whatif.group_replay import GroupPredictor, GroupSimulation, build_recorded_plan
from subreplay.whatif.scenario import PlannedMember, build_planned_events
from tests.support.pure import ORDER
from tests.whatif.test_predicted import messages_of, of_kind

RECORDING = "4.0.8/s5_failover_partitioned"
MS, SECOND = 1_000_000, 1_000_000_000
EVERY = tuple(assignor.name for assignor in ASSIGNORS)
RESTARTS = (
    PlannedMember("a", 0, None),
    PlannedMember("b", 0, None),
    PlannedMember("c", 0, 1 * SECOND, restart=SECOND // 2),
    PlannedMember("d", 0, None, crash=2 * SECOND, restart=6 * SECOND),
)
SLOW = {"consumers": {"service": {"time": "4ms"}}, "auto.commit.interval.ms": "500ms", "heartbeat.interval.ms": 300}


def records_of(recording):
    """The records as Spark hands them to a predictor: in order of time."""
    rows, _ = messages_of(recording, "x")
    scopes = np.unique(np.asarray(rows["partition"]))
    ready = np.asarray(rows["at"]).copy()
    for partition in scopes:
        mine = np.asarray(rows["partition"]) == partition
        ready[mine] = np.maximum.accumulate(ready[mine])
    rows = rows.append_column("ready", pa.array(ready))
    order = ("ready", "topic", "partition", "ledger", "entry", "batch_index")
    topic = rows["topic"][0].as_py()
    return rows.sort_by([(name, "ascending") for name in order]), tuple(Scope(topic, int(p)) for p in scopes)


def predict(policy, members=RESTARTS, batch=1000, options=None, **assumed):
    rows, scopes = records_of(RECORDING)
    start = pc.min(rows["at"]).as_py()
    options = {"session_timeout_us": 2_000_000, "initial_rebalance_delay_us": 0} | (options or {})
    dispatch = GroupDispatch.model_validate(SLOW | assumed)
    group = GroupSimulation(
        "x", make_policy(policy, "kafka-4.0", **options), build_planned_events(members, Scope(""), start), scopes,
        dispatch.parameters(Fixed(), start, SECOND),
    )  # fmt: skip
    batches = list(GroupPredictor({"x": group}).predict(rows.to_batches(max_chunksize=batch)))
    return group, rows, pa.Table.from_batches(batches, PREDICTED)


def judged(group, rows, found):
    """Judged rows of the predicted deliveries, as the dispatch stage has them made."""
    plan = build_recorded_plan(group, of_kind(found, CHANGE).to_pylist())
    judge = Judge(plan.policy, {s: Dispatcher.of(t) for s, t in plan.timelines.items()})
    given = of_kind(found, DELIVERY)
    given = given.filter(pc.is_valid(given["delivered_at"]))
    log = pa.concat_tables([_log(rows, 0, "at"), _log(given, 1, "delivered_at")])
    facts = pa.Table.from_batches(judge.by_position(log.sort_by([(n, "ascending") for n in ORDER]).to_batches()))
    by_time = ("topic", "partition", "delivered", "at", "seq", "ordinal")
    facts = facts.sort_by([(n, "descending" if n == "delivered" else "ascending") for n in by_time])
    return judge, pa.Table.from_batches(judge.by_time(facts.to_batches()))


def _log(rows, kind, at):
    n = rows.num_rows
    given = {"kind": pa.array([kind] * n), "at": rows[at], "seq": pa.array([2**62 if kind else 0] * n),
             "judged": pa.array([True] * n), "content": pa.array([0] * n), "deliver_at": pa.nulls(n)}  # fmt: skip
    given |= {} if kind == 0 else {"cumulative": pa.array([False] * n)}
    columns = [
        (given[f.name] if f.name in given else rows[f.name] if f.name in rows.column_names else pa.nulls(n))
        .cast(f.type) for f in LOG
    ]  # fmt: skip
    return pa.table(columns, schema=LOG)


@pytest.mark.parametrize("policy", EVERY)
def test_every_record_ends_once_and_no_guarantee_is_violated(policy):
    group, log, found = predict(policy)
    deliveries = of_kind(found, DELIVERY)
    done = deliveries.filter(pc.or_(deliveries["settled"], pc.equal(deliveries["outcome"], "pending")))
    position = ("partition", "ledger", "entry", "batch_index")
    ended = Counter(zip(*(done[name].to_pylist() for name in position), strict=True))
    judge, rows = judged(group, log, found)
    open_ = drop_exempt(np.asarray(rows["codes"]), np.asarray(rows["excuses"]))
    broken = [c.name for c in Code if judge.rule_statuses[c] is RuleStatus.PROMISED and (open_ & c.bit).any()]

    assert set(ended.values()) == {1}
    assert len(ended) == log.num_rows == pc.sum(of_kind(found, INTERVAL)["messages_published"]).as_py()
    assert pc.sum(of_kind(found, INTERVAL)["messages_settled"]).as_py() == pc.sum(deliveries["settled"]).as_py()
    assert broken == []
    assert (np.asarray(rows["codes"]) & Code.REDELIVERED.bit).any()  # d crashed


@pytest.mark.long
def test_the_audit_of_a_replay_finds_an_injected_violation():
    group, log, found = predict("kafka.range")
    wrong = found.set_column(
        found.schema.get_field_index("consumer"),
        PREDICTED.field("consumer"),
        pc.if_else(
            pc.and_(pc.equal(found["kind"], DELIVERY), pc.equal(found["consumer"], "a")), "b", found["consumer"]
        ),
    )
    judge, rows = judged(group, log, wrong)

    assert (np.asarray(rows["codes"]) & Code.WRONG_OWNER.bit).any()
    assert judge.rule_statuses[Code.WRONG_OWNER] is RuleStatus.PROMISED


@pytest.mark.long
@pytest.mark.parametrize("policy", ["kafka.range", "kafka.uniform"])
def test_the_rows_do_not_depend_on_how_the_log_is_cut(policy):
    (_, _, whole), (_, _, cut) = (predict(policy, batch=batch) for batch in (10_000, 7))

    assert whole.num_rows == cut.num_rows
    assert whole.combine_chunks() == cut.combine_chunks()


@pytest.mark.long
def test_a_pause_names_the_partition_the_rebalance_and_the_blocking_member():
    _, _, found = predict("kafka.range")
    waits = of_kind(found, WAITED)

    assert waits.num_rows > 0
    assert pc.all(pc.greater(waits["until"], waits["at"])).as_py()
    assert "d" in waits["holder"].to_pylist()  # it crashed, and nobody knew
    assert waits["generation"].null_count == waits["partition"].null_count == 0
