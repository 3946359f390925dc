"""A day of one subscription as Parquet tables: what the benchmark of the audit reads.

Key_Shared as Pulsar 4.0 serves it: 100,000 keys, eight consumers that join and leave in between, eight topic
partitions, rows in order of time. One message in a hundred is given back and comes again; some deliveries go to a
consumer that does not own them, so that there is something to find.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from subreplay.hashing.murmur3 import murmur3_32_array
from subreplay.rows.model.columns import Ints
from subreplay.rows.model.rows import Instant, MembershipEvent, Scope
from subreplay.rows.model.tables import DELIVERIES, MEMBERSHIP, MESSAGES
from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.base import Policy
from subreplay.semantics.timelines.timeline import Timeline

TOPIC, SUBSCRIPTION = "persistent://bench/default/orders", "sub"
POLICY, PROFILE = "pulsar.key_shared.consistent_hash", "pulsar-4.0"
PARTITIONS, KEYS, LEDGER, FILE = 8, 100_000, 50_000, 1_000_000  # entries a ledger, rows a file
STRAYS = 100
SECOND = 1_000_000  # µs
MIDNIGHT = 20_000 * 86_400 * SECOND
QUIET = 5 * SECOND  # before a join or a leave, so that nothing is outstanding when keys move
Members: TypeAlias = Sequence[tuple[int, str, str]]
"""Second of the day, event, consumer."""
MEMBERS: Members = (
    *((second, "join", f"c{second}") for second in range(1, 7)),
    (20_000, "join", "c7"), (40_000, "join", "c8"), (60_000, "leave", "c3"), (70_000, "join", "c3"),
)  # fmt: skip


def write(
    folder: Path,
    deliveries: int,
    of_one_key: int = 0,
    partitions: int = PARTITIONS,
    strays: int = STRAYS,
    members: Members = MEMBERS,
    topics: int = 1,
    different: int = KEYS,
) -> None:
    """Write the tables ``messages``, ``membership`` and ``deliveries``; ``of_one_key`` messages share a key. Keys are
    spread over ``partitions``, each of one of ``topics``; ``strays`` deliveries go astray; ``members`` come and go.
    There are so many ``different`` keys, or one for each message if there are fewer messages."""
    draw = np.random.default_rng(7)
    n = deliveries - deliveries // 100
    keys = draw.integers(0, different, n) if different < n else draw.permutation(n)
    keys[draw.permutation(n)[:of_one_key]] = 0
    published = MIDNIGHT + np.sort(draw.integers(100 * SECOND, 86_000 * SECOND, n))
    for second, _, _ in members:
        at = MIDNIGHT + second * SECOND
        published[(published > at - QUIET) & (published <= at)] = at + 1
    partition = (keys % partitions).astype(np.int32)
    index = np.empty(n, np.int64)
    for number in range(partitions):
        mine = np.flatnonzero(partition == number)
        index[mine] = np.arange(len(mine))
    words = pa.array([f"order-{key:06}".encode() for key in range(min(different, max(n, KEYS)))])
    messages = {
        "date": _day(n), "topic": _topics(partition % topics, topics),
        "partition": (partition // topics).astype(np.int32), "ledger": 100 + index // LEDGER,
        "entry": index % LEDGER, "batch_index": np.full(n, -1, np.int32), "key": words.take(pa.array(keys)),
        "producer": _word("p", n), "sequence_id": index, "publish_time": published, "size": draw.integers(100, 2000, n),
    }  # fmt: skip
    _write(folder / "messages", messages, MESSAGES)
    _write(folder / "membership", _membership(members, topics), MEMBERSHIP)
    _write(folder / "deliveries", _deliveries(messages, keys, words, draw, strays, members), DELIVERIES)


def _deliveries(
    messages: dict[str, Any], keys: Ints, words: pa.Array, draw: np.random.Generator, strays: int, members: Members
) -> dict[str, Any]:
    """The deliveries of messages to the owners of their keys, in order of time; ``strays`` of them to another."""
    n = len(keys)
    delivered = messages["publish_time"] + 1_000
    acked = delivered + draw.integers(SECOND // 20, 2 * SECOND, n)
    back = np.sort(draw.permutation(n)[: (n + 98) // 99])
    again = delivered[back] + SECOND
    row = np.concatenate([np.arange(n), back])
    at = np.concatenate([delivered, again])
    order = np.argsort(at, kind="stable")
    row, at, first = row[order], at[order], order < n
    given_back = np.zeros(n, bool)
    given_back[back] = True
    nacked = first & given_back[row]
    end = np.where(first, acked[row], at + SECOND // 5)
    consumer = _owners(keys[row], at, words, members)
    astray = draw.permutation(len(at))[:strays]
    consumer[astray] = (consumer[astray] + 1) % 6
    names = pa.array([f"c{number}" for number in range(1, len(members) + 1)])
    m = len(at)
    return {
        "date": _day(m), "subscription": _word(SUBSCRIPTION, m), "topic": messages["topic"].take(pa.array(row)),
        **{name: messages[name][row] for name in ("partition", "ledger", "entry", "batch_index")},
        "consumer": names.take(pa.array(consumer)), "delivered_at": at, "seq": np.arange(m),
        "redelivery_count": (~first).astype(np.int32), "received_at": at + 500,
        "acked_at": pa.array(end, mask=nacked), "nacked_at": pa.array(at + SECOND // 2, mask=~nacked),
        "ack_type": _word("Individual", m), "source": _word("observed", m),
    }  # fmt: skip


def later(rows: pa.Table, days: int) -> pa.Table:
    """The same rows of a table some days later, in ledgers of their own."""
    found = []
    for field, column in zip(rows.schema, rows.columns, strict=True):
        step = {"date": days, "ledger": days * 1_000}.get(field.name, days * 86_400 * SECOND)
        if field.name in ("date", "ledger") or pa.types.is_timestamp(field.type):
            numbers = pa.int32() if field.name == "date" else pa.int64()
            column = pc.add(column.cast(numbers), pa.scalar(step, numbers)).cast(field.type)
        found.append(column)
    return pa.table(found, schema=rows.schema)


def timeline(partition: int, members: Members = MEMBERS) -> Timeline:
    """The consumers of a topic partition."""
    policy: Policy = make_policy(POLICY, PROFILE)
    scope = Scope(TOPIC, partition)
    instants = [Instant((MIDNIGHT + second * SECOND) * 1_000) for second, _, _ in members]
    events = [
        MembershipEvent(scope, event, name, instant, instant)  # type: ignore[arg-type]
        for (_, event, name), instant in zip(members, instants, strict=True)
    ]
    return Timeline.fold(policy, scope, events)


def _owners(keys: Ints, at: Ints, words: pa.Array, members: Members) -> Ints:
    """The number of the consumer that owns each key at each time, from 0."""
    folded = timeline(0, members)
    hashes = murmur3_32_array(words)
    slots = folded.policy.compute_slots(hashes)
    number = np.array([int(consumer.name[1:]) - 1 for consumer in folded.consumers])
    epoch, found = folded.find_epochs(at * 1_000, np.zeros(len(at), np.int64)), np.empty(len(keys), np.int64)
    for each in np.unique(epoch).tolist():
        owners, mine = folded.find_owners(slots, hashes, np.full(len(words), each, np.int32)), epoch == each
        found[mine] = number[owners[keys[mine]]]
    return found


def _membership(members: Members, topics: int) -> dict[str, Any]:
    seconds, kinds, names = zip(*(members * topics), strict=True)
    n = len(names)
    return {
        "date": _day(n), "subscription": _word(SUBSCRIPTION, n), "topic": _topics(np.arange(n) // len(members), topics),
        "type": _word("Key_Shared", n), "consumer": pa.array(names), "event": pa.array(kinds),
        "at": MIDNIGHT + np.array(seconds) * SECOND, "seq": np.arange(n),
    }  # fmt: skip


def _topics(number: Ints, topics: int) -> pa.Array:
    """The names of topics, by number."""
    names = [TOPIC, *(f"{TOPIC}-{other}" for other in range(1, topics))]
    return pa.DictionaryArray.from_arrays(number.astype(np.int16), names)


def _day(rows: int) -> NDArray[np.int32]:
    return np.full(rows, MIDNIGHT // (86_400 * SECOND), np.int32)


def _word(word: str, rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(np.zeros(rows, np.int8), [word])


def _write(folder: Path, columns: dict[str, Any], schema: pa.Schema) -> None:
    """Files of a million rows each; optional columns that are not given are left out."""
    folder.mkdir(parents=True)
    rows = len(columns["date"])
    for number, begin in enumerate(range(0, rows, FILE)):
        here = {name: values[begin : begin + FILE] for name, values in columns.items()}
        fields = [schema.field(name) for name in here]
        arrays = [pa.array(v).cast(f.type) for v, f in zip(here.values(), fields, strict=True)]
        pq.write_table(pa.table(arrays, schema=pa.schema(fields)), folder / f"{number:03}.parquet")
