"""Copies of ``__consumer_offsets`` and what is read of them, for tests."""

import base64
import json

import pyarrow.parquet as pq

from subreplay.adapters.kafka_group.consumer_offsets import decode_records
from tests.adapters.kafka_group import encoding as encode
from tests.adapters.kafka_group.encoding import AT, key
from tests.adapters.kafka_group.encoding import records as records_of
from tests.adapters.kafka_group.scenarios import log, records


def decoded(*pairs):
    """What records of these keys and values tell."""
    return decode_records(records_of(*pairs))


def balanced(found):
    assert all(count.valid >= 0 and count.others >= 0 for count in found.counts)
    assert sum(count.quarantined for count in found.counts) == len(found.rejected)
    return True


def json_lines(table, **more):
    """Records as Spark's ``to_json`` writes them, times in ms."""
    rows = []
    for row in table.to_pylist():
        reported = {
            name: None if row[name] is None else base64.b64encode(row[name]).decode() for name in ("key", "value")
        }
        at = round(row["timestamp"].timestamp() * 1_000)
        rows.append(reported | {"partition": row["partition"], "offset": row["offset"], "timestamp": at} | more)
    return "".join(json.dumps(row) + "\n" for row in rows)


def text(name):
    return "".join(f"{line}\n" for line in log(name)["text"].to_pylist())


def as_files(folder, name):
    pq.write_table(records(name), folder / "part-0.parquet")
    (folder / "server.log").write_text("a line before\n" + text(name))
    return folder


def group(*members, generation=1):
    return (
        key(2, "g"),
        encode.classic_group(
            3, 3, {"protocol_type": "consumer", "generation": generation, "protocol": "range", "leader": "m",
                   "state_since": AT, "members": [member(*each) for each in members]},
        ),
    )  # fmt: skip


def member(name, *partitions):
    return {
        "member_id": name, "instance_id": None, "client_id": "c", "client_host": "/h", "rebalance_timeout_ms": 1,
        "session_timeout_ms": 1, "topics": ["t"], "owned": [], "owned_generation": None, "rack": None,
        "user_data": None, "assignment": [{"topic": "t", "partition": p} for p in partitions],
    }  # fmt: skip


def committed(offset, topic="t", partition=0, name="g"):
    return key(1, name, topic, partition=partition), encode.commit(3, offset, 1, "", AT)


def reported(found):
    """What was acknowledged, and the offsets of commits."""
    rows = found.tables["deliveries"].to_pylist()
    return tuple([row["entry"] for row in rows if (row["ack_type"] == "Commit") == commit] for commit in (False, True))
