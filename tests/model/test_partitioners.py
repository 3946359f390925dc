"""Which partitioner explains where keyed messages are: detected where it is sure, and never where it may be chance."""

import numpy as np
import pyarrow as pa
import pytest

from subreplay.hashing.base64_text import encode_base64
from subreplay.hashing.producer_routing import SCHEMES, choose_partitions
from subreplay.rows.model import partitioners
from subreplay.rows.model.partitioner_text import WARNING, build_statements, describe_contradiction, unexplained
from subreplay.rows.model.partitioners import PLACEMENTS, KeyPlacements, count_placements, detect, merge_placements

BEGIN = 1_795_168_800_000_000_000  # 2026-11-20 10:00:00 UTC
SECOND = 1_000_000_000
KEYS = [f"customer-{number}".encode() for number in range(40)]


def sent(producer, scheme, count, *, messages=200, keys=KEYS, begin=0, as_bytes=False):
    """Messages of one producer, a second apart, its keys in turn."""
    key = pa.array([keys[i % len(keys)] for i in range(messages)], pa.binary())
    partition = choose_partitions(encode_base64(key) if as_bytes else key, count, scheme)
    at = BEGIN + (begin + np.arange(messages)) * SECOND
    names = pa.array([producer] * messages, pa.string())
    return pa.table({"key": key, "producer": names, "partition": partition, "at": at})


def seen(*parts):
    return KeyPlacements.of(
        merge_placements([pa.Table.from_batches(count_placements(part.to_batches()), PLACEMENTS) for part in parts])
    )


def found_in(*parts, **more):
    return detect(seen(*parts), **more)


def counts(part):
    return [period.partitions for period in part.periods]


@pytest.mark.parametrize("scheme", [name for name in SCHEMES if name not in ("consistent", "segment_range")])
def test_every_scheme_is_recognised_by_where_its_messages_are(scheme):
    found = found_in(sent("p", scheme, 7))
    assert found.settled
    assert (found.parts[0].way.scheme, counts(found.parts[0])) == (scheme, [7])
    (reported,) = build_statements(found, None, scheme)
    assert reported.value == scheme
    assert reported.sentence.startswith(f"all 200 keyed messages are where {scheme} of 7 partitions puts their keys (")


def test_the_evidence_counts_what_the_systems_default_explains():
    found = found_in(sent(None, "consistent_random", 6))
    murmur2 = int(
        (
            choose_partitions(sent(None, "murmur2", 6)["key"], 6, "murmur2")
            == sent(None, "consistent", 6)["partition"].to_numpy()
        ).sum()
    )
    (reported,) = build_statements(found, None, "murmur2")
    assert reported.sentence.endswith(f"; {murmur2} of 200 are where murmur2 does")


@pytest.mark.row("L-ROUTE-3")
def test_l_route_3_producers_with_different_schemes_are_named():
    custom = sent("router", "murmur2", 4).set_column(2, "partition", pa.array(np.arange(200) % 3))
    found = found_in(sent("java", "JavaStringHash", 4), sent("cpp", "BoostHash", 4), custom)

    assert {part.producers: part.way.scheme for part in found.parts} == {
        ("java",): "JavaStringHash",
        ("cpp",): "BoostHash",
    }
    assert (found.unexplained, found.unexplained_producers) == (200, ("router",))
    (reported,) = build_statements(found, None, "JavaStringHash")
    assert reported.value == WARNING
    assert reported.sentence == (
        "producers hash keys differently, so equal keys go to different partitions: all 200 of cpp are where "
        "BoostHash of 4 partitions puts their keys; all 200 of java are where JavaStringHash of 4 partitions puts "
        "their keys; no known scheme explains 200 (those of router)"
    )


def test_two_schemes_of_producers_without_a_name_are_distinguished():
    found = found_in(sent(None, "murmur2", 12, messages=300), sent(None, "consistent_random", 12))
    assert [part.way.scheme for part in found.parts] == ["murmur2", "consistent_random"]
    assert sum(part.messages for part in found.parts) == found.keyed == 500
    reported = build_statements(found, "murmur2", "murmur2")
    assert [one.value for one in reported] == [WARNING]
    assert f"{found.parts[0].messages} of 500 keyed messages are where murmur2 of 12" in reported[0].sentence
    assert f"; {found.parts[1].messages} others are where consistent_random of 12" in reported[0].sentence


def test_a_producer_that_changes_its_client_has_two_schemes_and_did_not_grow():
    found = found_in(sent(None, "murmur2", 6), sent(None, "consistent_random", 6, begin=200))
    assert [(part.way.scheme, counts(part)) for part in found.parts] == [("murmur2", [6]), ("consistent_random", [6])]
    assert found.growth == ()


@pytest.mark.parametrize("seed", range(5))
def test_a_router_that_remembers_a_partition_for_each_key_is_no_scheme(seed):
    rows = sent("p", "murmur2", 5)
    home = dict(zip(KEYS, np.random.default_rng(seed).integers(0, 5, 40).tolist(), strict=True))
    partition = pa.array([home[key] for key in rows["key"].to_pylist()])
    assert not found_in(rows.set_column(2, "partition", partition)).parts


def test_a_scheme_that_the_run_assumes_is_contradicted_where_nobody_uses_it():
    found = found_in(sent(None, "consistent_random", 6))
    assert describe_contradiction(found, "fnv1a_random") == (
        f"the run assumes fnv1a, but only {found.agreeing['fnv1a']} of 200 keyed messages are where it puts their "
        "keys; 200 are where consistent_random does"
    )
    assert describe_contradiction(found, "crc32") == ""


@pytest.mark.parametrize("producers", [("p", "p"), ("old", "new"), (None, None)])
@pytest.mark.parametrize(("scheme", "before", "after"), [("JavaStringHash", 5, 10), ("murmur2", 6, 8), ("fnv1a", 1, 3)])
def test_a_topic_that_grew_is_named_with_both_numbers_and_the_instant(producers, scheme, before, after):
    first = sent(producers[0], scheme, before)
    found = found_in(first, sent(producers[1], scheme, after, begin=200))
    assert found.settled
    assert [period.partitions for period in found.growth] == [before, after]
    (reported,) = build_statements(found, None, scheme)
    assert reported.value == WARNING
    assert reported.sentence.startswith(
        f"the number of partitions changed from {before} to {after} at 2026-11-20 10:03:2"
    )


def test_a_producer_that_learns_later_that_the_topic_grew_is_named():
    found = found_in(sent("late", "murmur2", 6), sent("early", "murmur2", 12, begin=60))
    assert {part.producers: counts(part) for part in found.parts} == {("late",): [6], ("early",): [12]}
    assert not found.mixed
    assert "changed from 6 to 12 at 2026-11-20 10:01:00" in build_statements(found, None, "murmur2")[0].sentence


def test_a_topic_that_grew_twice_has_three_numbers():
    parts = (sent("p", "murmur2", n, begin=200 * i) for i, n in enumerate((4, 8, 16)))
    assert [period.partitions for period in found_in(*parts).growth] == [4, 8, 16]


def test_keys_set_as_bytes_are_a_reading_of_their_producer():
    found = found_in(sent("a", "JavaStringHash", 5, as_bytes=True), sent("b", "JavaStringHash", 5))
    assert found.as_bytes == {"a"}
    assert {part.producers: part.way.of_bytes for part in found.parts} == {("a",): True, ("b",): False}


def test_a_few_messages_elsewhere_do_not_hide_the_scheme():
    rows = sent("p", "murmur2", 5)
    partition = rows["partition"].to_numpy().copy()
    partition[[3, 50]] = (partition[[3, 50]] + 1) % 5
    found = found_in(rows.set_column(2, "partition", pa.array(partition)))
    assert (found.parts[0].way.scheme, found.parts[0].messages, found.unexplained) == ("murmur2", 198, 2)


@pytest.mark.parametrize("keys", [KEYS[:1], KEYS[:3]])
def test_too_few_keys_prove_nothing(keys):
    found = found_in(sent("p", "murmur2", 5, keys=keys))
    assert not found.parts
    assert build_statements(found, None, "murmur2") == ()


@pytest.mark.parametrize("seed", range(5))
def test_partitions_drawn_by_chance_prove_nothing(seed):
    rows = sent("p", "murmur2", 5)
    random = np.random.default_rng(seed).integers(0, 5, 200)
    found = found_in(rows.set_column(2, "partition", pa.array(random)))
    assert not found.parts
    agree = f"{found.agreeing['murmur2']} of 200 keyed messages are where murmur2 says"
    assert unexplained(found, "murmur2").endswith(agree)
    assert not unexplained(found_in(rows), "murmur2")


@pytest.mark.parametrize("seed", range(5))
def test_a_steady_number_of_partitions_is_not_taken_for_growth(seed):
    keys = [KEYS[i] for i in np.random.default_rng(seed).permutation(40)]
    found = found_in(sent("p", "murmur2", 12, keys=keys, messages=60))
    assert found.settled
    assert found.growth == ()


def test_of_schemes_that_explain_the_same_the_likely_one_is_taken():
    rows = sent("p", "fnv1a_reference", 8)  # a power of two: without its sign and unsigned are the same
    for likely in ("fnv1a_reference", "fnv1a_unsigned"):
        assert found_in(rows, likely=(likely,)).parts[0].way.scheme == likely


def test_messages_without_a_key_with_an_empty_one_or_without_a_partition_are_no_evidence():
    rows = pa.table({"key": [None, b"", b"k"], "producer": ["p"] * 3, "partition": [0, 1, -1], "at": [1, 2, 3]})
    assert (
        len(
            seen(
                rows.cast(
                    pa.schema(
                        [("key", pa.binary()), ("producer", pa.string()), ("partition", pa.int32()), ("at", pa.int64())]
                    )
                )
            )
        )
        == 0
    )


def test_of_many_keys_the_same_few_are_looked_at_in_every_part(monkeypatch):
    monkeypatch.setattr(partitioners, "MOST_KEYS", 16)
    halves = seen(sent("p", "murmur2", 5, messages=120), sent("p", "murmur2", 5, messages=80, begin=120))
    whole = seen(sent("p", "murmur2", 5))
    assert not halves.every_key
    assert len(halves) == 16
    assert (halves.messages == whole.messages).all()
    assert "messages of the examined keys" in build_statements(detect(halves), None, "murmur2")[0].sentence


@pytest.mark.row("L-ROUTE-3")
def test_l_route_3_java_string_hash_is_a_hazard_where_keys_of_several_producers_are_not_ascii():
    strange = [f"schlüssel-{number}".encode() for number in range(40)]
    two = found_in(sent("p", "JavaStringHash", 5), sent("q", "JavaStringHash", 5, keys=strange))
    hazard = [
        reported.sentence
        for reported in build_statements(two, "JavaStringHash", "JavaStringHash")
        if reported.value == WARNING
    ]
    assert hazard[0].startswith(
        "200 keyed messages have keys that are not ASCII, from 2 producers: under JavaStringHash"
    )
    alone = found_in(sent("q", "JavaStringHash", 5, keys=strange))
    assert all(reported.value != WARNING for reported in build_statements(alone, "JavaStringHash", "JavaStringHash"))
