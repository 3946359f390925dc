"""Polled topic statistics made for a test, and what is told of them."""

import json

from subreplay.adapters.pulsar_stats.stats_adapter import read_stats

AT = 1_795_310_700_000_000_000
SECOND = 1_000_000_000
TOPIC = "persistent://public/default/orders"


def consumer(name="c1", since=AT - SECOND, address="/10.0.0.1:5000", **more):
    return {"consumerName": name, "connectedSince": since, "address": address, "unackedMessages": 3,
            "availablePermits": 900, "drainingHashesCount": 0} | more  # fmt: skip


def answer(*consumers, kind="Shared", **more):
    return {"msgInCounter": 0, "subscriptions": {"billing": {"type": kind, "consumers": [*consumers]} | more}}


def poll(at, *consumers, **more):
    return {"at_ns": at, "topic": TOPIC, "stats": answer(*consumers, **more)}


def make_reader(folder):
    """A function of polls, or lines: what they tell as one file of a folder."""

    def read_polls(*polls, **options):
        path = folder / "stats.jsonl"
        texts = (json.dumps(one) if isinstance(one, dict) else one for one in polls)
        path.write_bytes(b"".join((one.encode() if isinstance(one, str) else one) + b"\n" for one in texts))
        return read_stats(path, **options)

    return read_polls


def nanos(row, name):
    return round(row[name].timestamp() * 1_000_000) * 1_000 + row.get(f"{name}_nanos", 0)


def rows(found, table="membership"):
    return getattr(found, table).to_pylist()


def story(found):
    return [(row["event"], row["consumer"], (nanos(row, "at") - AT) / SECOND) for row in rows(found)]


def balanced(found):
    for of in found.counts.values():
        assert of.polls == of.valid + of.repeated + of.quarantined
    assert len(found.rejected) == sum(of.quarantined for of in found.counts.values())
    return True
