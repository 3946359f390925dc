"""How fast the dispatch replay is: ``python -m tests.bench.dispatch [--quick]`` prints a table.

Each row runs in a process of its own, so that its peak memory is its own. Seconds are of the processor, on one core:
what else runs on the machine counts less. The load is steady: a message every 100 µs, eight consumers that take 600 µs
for one, and receiver queues of 1000.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from subreplay.hashing.profiles import PULSAR_3_2, PULSAR_4_0, PULSAR_4_2
from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.base import Policy
from subreplay.semantics.timelines.timeline import Timeline
from subreplay.simulation.pulsar.broker.broker_records import Records, create_records
from subreplay.simulation.pulsar.broker.broker_state import create_broker
from subreplay.simulation.pulsar.broker.dispatch_rules import MILLISECOND
from subreplay.simulation.pulsar.consumer_model import SECOND, ConsumerModel, Prediction
from subreplay.simulation.pulsar.dispatcher_choice import build_options
from subreplay.simulation.pulsar.reenact import CLIENT_COMMANDS, ENTRIES, ClientCommand, iterate_changes, reenact
from subreplay.simulation.pulsar.service_model import Fixed
from subreplay.simulation.pulsar.subscription_replay import SubscriptionReplay
from tests.bench import figures, queue_in_simpy
from tests.support.joins import fold
from tests.support.log import log_of

START, GAP, SERVICE, QUEUE = SECOND, 100_000, 600_000, 1_000
BATCH = 65_536
AUTO_SPLIT, STICKY = "pulsar.key_shared.auto_split", "pulsar.key_shared.sticky"
STEADY = ConsumerModel(Fixed(SERVICE), receiver_queue_size=QUEUE)
FAILING = ConsumerModel(Fixed(SERVICE), receiver_queue_size=QUEUE, failure_rate=0.02, nack_delay=100 * MILLISECOND)
Figures = dict[str, float]


def members(name: str, profile: str) -> Timeline:
    """Eight consumers; sticky ones bring equal ranges."""
    ranges = [f"[{i * 8192}-{i * 8192 + 8191}]" if name == STICKY else "" for i in range(8)]
    return fold(make_policy(name, profile), " ".join(f"+c{i}{at}" for i, at in enumerate(ranges)))


def stream(policy: Policy, messages: int) -> Iterator[Records]:
    """Single messages of random keys: one array, filled anew, as the replay is done with it when it asks for more."""
    hashes = np.random.default_rng(1).integers(0, 2**32, BATCH, dtype=np.uint32)
    rows = log_of(policy, START + np.arange(BATCH) * GAP, hashes)
    for first in range(0, messages, BATCH):
        yield rows[: min(BATCH, messages - first)]
        rows.at += BATCH * GAP


def replay(timeline: Timeline, messages: int, model: ConsumerModel = STEADY) -> SubscriptionReplay:
    prediction = Prediction(model, interval=60 * SECOND)
    return SubscriptionReplay(timeline, stream(timeline.policy, messages), prediction)


def timed(play: Callable[[], int]) -> Figures:
    """Seconds a message of the best of what fits into three seconds, but at least one."""
    best, end = float("inf"), time.process_time() + 3
    while best == float("inf") or time.process_time() < end:
        began = time.process_time()
        messages = play()
        best = min(best, (time.process_time() - began) / messages)
    return {"ns": best * 1e9, "messages_per_s": 1 / best}


def predict(name: str, profile: str, model: ConsumerModel, messages: int) -> Figures:
    timeline = members(name, profile)

    def play() -> int:
        delivered = sum(len(rows) for rows in replay(timeline, messages, model).predict_deliveries())
        assert delivered >= messages
        return messages

    loaded()
    return timed(play)


def beside_simpy(profile: str, messages: int) -> Figures:
    """The replay and the same queue in SimPy, in turns; both have to come to the same deliveries."""
    timeline = members(AUTO_SPLIT, profile)
    log = np.concatenate([rows.copy() for rows in stream(timeline.policy, messages)]).view(np.recarray)
    owners = timeline.find_owners(log.slot, log.hash, np.full(messages, len(timeline.epochs) - 1, np.int32))
    published = log.at.tolist(), np.asarray(owners).tolist()
    ratios = []
    for _ in range(3):
        began = time.process_time()
        of_simpy = queue_in_simpy.deliveries(*published, consumers=8, service=SERVICE, queue=QUEUE)
        simpy = (time.process_time() - began) / messages
        rows = np.concatenate(list(replay(timeline, messages).predict_deliveries())).view(np.recarray)
        mine = sorted(zip(rows.ordinal.tolist(), rows.consumer.tolist(), rows.delivered_at.tolist(), strict=True))
        assert mine == sorted(of_simpy)
        ratios.append((simpy, predict(AUTO_SPLIT, profile, STEADY, 1_000_000)["ns"] / 1e9))
    best_simpy, best = (min(column) for column in zip(*ratios, strict=True))
    return {"messages_per_s": 1 / best, "simpy_per_s": 1 / best_simpy, "times": best_simpy / best}


def long_log(messages: int) -> Figures:
    timeline = members(AUTO_SPLIT, PULSAR_4_0)

    def play() -> int:
        assert sum(len(rows) for rows in replay(timeline, messages).predict_deliveries()) == messages
        return messages

    loaded()
    return timed(play)


def reenacted(profile: str, messages: int) -> Figures:
    """What consumers did in a prediction, re-enacted: the dispatcher has to hand out the same."""
    timeline = members(AUTO_SPLIT, profile)
    log = np.concatenate([rows.copy() for rows in stream(timeline.policy, messages)]).view(np.recarray)
    reported = np.concatenate(list(replay(timeline, messages).predict_deliveries())).view(np.recarray)
    entries, commands = create_records(messages, ENTRIES), _commands(reported)
    for name in ENTRIES.names or ():
        entries[name] = log[name]

    def play() -> int:
        broker = create_broker(build_options(timeline.policy))
        found = list(reenact(broker, iterate_changes(timeline), [entries], [commands], int(log.at[-1]) + SECOND))
        assert sum(len(rows) for rows in found) == messages
        return messages

    play()
    return timed(play)


def _commands(reported: Records) -> Records:
    """Every acknowledgement, and half a queue of permits whenever a consumer has taken as many messages."""
    first = [(START - 1, 0, ClientCommand.FLOW, consumer, QUEUE, 0) for consumer in range(8)]
    flows = []
    for consumer in range(8):
        taken = np.sort(reported.received_at[reported.consumer == consumer])[QUEUE // 2 - 1 :: QUEUE // 2]
        flows += [(at, 0, ClientCommand.FLOW, consumer, QUEUE // 2, 0) for at in taken.tolist()]
    acks = create_records(len(reported), CLIENT_COMMANDS)
    acks.at, acks.ordinal, acks.kind, acks.consumer = (
        reported.acked_at,
        reported.ordinal,
        ClientCommand.ACK,
        reported.consumer,
    )
    commands = np.concatenate([np.array(first + flows, CLIENT_COMMANDS), acks])
    return commands[np.argsort(commands["at"], kind="stable")].view(np.recarray)


def loaded() -> Figures:
    """Seconds until the first messages are replayed: kernels are compiled, or loaded."""
    began = time.process_time()
    assert sum(len(rows) for rows in replay(members(AUTO_SPLIT, PULSAR_4_0), 1_000).predict_deliveries()) == 1_000
    return {"seconds": time.process_time() - began}


MILLION = 1_000_000
ROWS: dict[str, Callable[[], Figures]] = {
    **{
        f"predict {name} {profile}{', 2 % nacked' if model is FAILING else ''}": partial(
            predict, name, profile, model, MILLION
        )
        for name in (AUTO_SPLIT, STICKY)
        for profile in (PULSAR_3_2, PULSAR_4_0, PULSAR_4_2)
        for model in (STEADY, FAILING)
        if model is STEADY or name == AUTO_SPLIT
    },
    **{f"beside SimPy {profile}": partial(beside_simpy, profile, 20_000) for profile in (PULSAR_3_2, PULSAR_4_0)},
    **{f"re-enact {profile}": partial(reenacted, profile, MILLION) for profile in (PULSAR_3_2, PULSAR_4_0)},
    **{
        f"predict {size // MILLION} M messages": partial(long_log, size)
        for size in (MILLION, 10 * MILLION, 50 * MILLION)
    },
}
SLOW = ("predict 10 M messages", "predict 50 M messages")


def of_child(row: str, **environment: str) -> Figures:
    command = [sys.executable, "-m", "tests.bench.dispatch", row]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | environment)
    found: Figures = json.loads(done.stdout)
    return found


def main(quick: bool = False) -> None:
    print(f"{'dispatch replay':56}{'found':>34}   required")
    with tempfile.TemporaryDirectory() as cache:
        for row, environment in ("cold", {"NUMBA_CACHE_DIR": cache}), ("cached", {"NUMBA_CACHE_DIR": cache}):
            if not quick:
                seconds = of_child("load", **environment)["seconds"]
                print(f"{'kernels, ' + row:56}{seconds:>32.1f} s   {'once, not per task' if row == 'cold' else ''}")
    lengths = []
    for row in ROWS:
        if quick and row in SLOW:
            continue
        found = of_child(row)
        figures.tell(row, ns_a_message=1e9 / found["messages_per_s"], MiB=found["peak"])
        speed, required = f"{found['messages_per_s'] / MILLION:.2f} M/s", "at least 3 M/s"
        if "times" in found:
            speed += f", SimPy {found['simpy_per_s'] / MILLION:.3f} M/s: {found['times']:.0f} x"
            required = "at least 20 x, same deliveries"
        elif row.endswith("M messages"):
            lengths.append(found["ns"])
            spread = max(lengths) / min(lengths) - 1
            speed = f"{found['ns']:.0f} ns a message, {spread:+.0%}, {found['peak']:.0f} MiB"
            required = "within 20 %, below 2048 MiB"
        elif row.startswith("re-enact"):
            required = ""
        print(f"{row:50}{speed:>40}   {required}", flush=True)


if __name__ == "__main__":
    requested = sys.argv[1:]
    if requested and requested[0] != "--quick":
        reported = loaded() if requested[0] == "load" else ROWS[requested[0]]()
        print(json.dumps(reported | {"peak": figures.peak()}))
    else:
        main(quick=bool(requested))
