"""Parse topics and partitions from names: file names of connectors, and names of Pulsar's topic partitions.

Sources: Confluent's S3 sink (``topics/<topic>/…/<topic>+<partition>+<start offset>.<ext>``), Aiven's
(``<prefix><topic>-<partition>-<start offset>``), the cloud-storage sink of Pulsar IO
(``tenant/namespace/topic[-partition-N]/…``), ``TopicName`` of Pulsar. The start offset is that of a file's first
record. It does not determine the offsets of the other records, because offsets have gaps.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.rows.encoded import Broken, Mask, Outcome, is_present, utf8_text
from subreplay.rows.model.topics import DOMAINS

TOPIC_PARTS: Final = ("topic", "partition")
_NUMBER: Final = r"(?P<partition>\d{1,9})"
CONFLUENT: Final = rf"(?:^|/)(?P<topic>[^/+]+)\+{_NUMBER}\+\d+\.[^/+]+$"
AIVEN: Final = rf"(?:^|/)(?P<topic>[^/]+)-{_NUMBER}-\d+(?:\.[A-Za-z0-9.]+)?$"
_PULSAR_PARTITION: Final = r"(?:^|/)(?P<topic>[^/:]+/[^/:]+/[^/:]+)-partition-(?P<partition>0|[1-9]\d{0,8})/"
_PULSAR_WHOLE: Final = r"^(?P<topic>[^/:]+/[^/:]+/[^/:]+)(?P<partition>)/"
_INTERNAL: Final = r"^(?P<topic>.+)-partition-(?P<partition>0|[1-9]\d{0,8})$"
NO_PARTITION: Final = "-1"


def parse_confluent_paths(paths: pa.Array, prefix: str = "") -> Outcome:
    """Parse the topic and partition from names of files that Confluent's S3 sink wrote.

    >>> parse_confluent_paths(pa.array(["topics/orders/partition=3/orders+3+0000000017.avro"])).values.to_pylist()
    [{'topic': 'orders', 'partition': 3}]
    """
    return _parse_names(paths, prefix, (CONFLUENT,), "a file name must be <topic>+<partition>+<start offset>.<ext>")


def parse_aiven_paths(paths: pa.Array, prefix: str = "") -> Outcome:
    """Parse the topic and partition from names of files that Aiven's S3 sink wrote; ``prefix`` is the text that its
    setting ``file.name.prefix`` put before the topic.

    >>> parse_aiven_paths(pa.array(["day/prod-orders-3-17.gz"]), "prod-").values.to_pylist()
    [{'topic': 'orders', 'partition': 3}]
    """
    return _parse_names(paths, prefix, (AIVEN,), "a file name must be <prefix><topic>-<partition>-<start offset>")


def parse_pulsar_paths(paths: pa.Array, prefix: str = "") -> Outcome:
    """Parse the topic and partition from the folders of files that Pulsar IO's cloud-storage sink wrote.

    ``prefix`` names the folders before the tenant, unless the topic's folder contains a partition. The path does not
    contain the domain, so a topic is read as persistent.

    >>> parse_pulsar_paths(pa.array(["public/default/orders-partition-3/1.2.-1.json"])).values.to_pylist()
    [{'topic': 'persistent://public/default/orders', 'partition': 3}]
    """
    rule = "a file must be in the folders tenant/namespace/topic"
    found = _parse_names(paths, prefix, (_PULSAR_PARTITION, _PULSAR_WHOLE), rule)
    topic, partition = found.values.flatten()
    named = pc.binary_join_element_wise(f"{DOMAINS[0]}://", topic, "")
    return Outcome(pa.StructArray.from_arrays([named, partition], TOPIC_PARTS), found.broken)


def parse_pulsar_topics(names: pa.Array) -> Outcome:
    """Split names of topics and topic partitions into the topic and the partition (-1 for none)."""
    encoded = pc.dictionary_encode(utf8_text(names).values)
    found = pc.extract_regex(encoded.dictionary, _INTERNAL)
    internal = found.is_valid()
    topic = pc.if_else(internal, pc.struct_field(found, "topic"), encoded.dictionary)
    partition = pc.if_else(internal, pc.struct_field(found, "partition"), NO_PARTITION).cast(pa.int64())
    return Outcome(pa.StructArray.from_arrays([part.take(encoded.indices) for part in (topic, partition)], TOPIC_PARTS))


PATH_CONVERSIONS: Final[dict[str, Callable[..., Outcome]]] = {
    "confluent_path": parse_confluent_paths,
    "aiven_path": parse_aiven_paths,
    "pulsar_path": parse_pulsar_paths,
}
"""The conversions of the path of a row's file, by name."""


def _parse_names(paths: pa.Array, prefix: str, patterns: tuple[str, ...], rule: str) -> Outcome:
    """Parse names by the first pattern that fits. There are few files, so only distinct names are parsed."""
    encoded = pc.dictionary_encode(paths)
    names = _strip_prefix(encoded.dictionary, prefix)
    topic, partition = pa.nulls(len(names), pa.string()), pa.nulls(len(names), pa.string())
    for pattern in patterns:
        found = pc.extract_regex(names, pattern)
        fits = pc.and_(found.is_valid(), topic.is_null())
        topic = pc.if_else(fits, pc.struct_field(found, "topic"), topic)
        partition = pc.if_else(fits, pc.struct_field(found, "partition"), partition)
    partition = pc.if_else(pc.equal(partition, ""), NO_PARTITION, partition).cast(pa.int64())
    parts = [part.take(encoded.indices) for part in (topic, partition)]
    bad = ~is_present(parts[0])
    remedy = "name the conversion and the prefix of these files, or map topic and partition"
    return Outcome(pa.StructArray.from_arrays(parts, TOPIC_PARTS), _build_broken(bad, rule, remedy))


def _strip_prefix(names: pa.Array, prefix: str) -> pa.Array:
    """Return the rest after the first ``prefix`` that begins a folder or file name; null where there is none."""
    if not prefix:
        return names
    found = pc.extract_regex(names, rf"^(?:.*?/)??{re.escape(prefix)}(?P<rest>.*)$")
    return pc.if_else(found.is_valid(), pc.struct_field(found, "rest"), None)


def _build_broken(bad: Mask, rule: str, remedy: str) -> tuple[Broken, ...]:
    return (Broken(bad, rule, remedy),) if bad.any() else ()
