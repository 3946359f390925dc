import gzip
import json
from pathlib import Path

import pyarrow as pa

from subreplay.hashing.murmur2 import choose_kafka_partition, murmur2_32, murmur2_32_array

GOLDEN = Path(__file__).parents[1] / "data" / "golden" / "kafka" / "partitioner.jsonl.gz"


def cases():
    with gzip.open(GOLDEN, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def test_hash_and_partition_are_kafkas():
    for case in cases():
        key = bytes.fromhex(case["key_hex"])
        assert murmur2_32(key) == case["murmur2"] % 2**32
        assert {n: choose_kafka_partition(key, int(n)) for n in case["partition"]} == case["partition"]


def test_a_column_hashes_as_its_rows_do():
    keys = [bytes.fromhex(case["key_hex"]) for case in cases()]
    assert murmur2_32_array(pa.array([*keys, None], pa.binary())).tolist() == [*map(murmur2_32, keys), 0]
