"""Topics and partitions by name: of files as connectors name them, and of Pulsar's internal topics.

Sources: Confluent's S3 sink (``topics/<topic>/…/<topic>+<partition>+<start offset>.<ext>``), Aiven's
(``<prefix><topic>-<partition>-<start offset>``), the cloud-storage sink of Pulsar IO
(``tenant/namespace/topic[-partition-N]/…``), ``TopicName`` of Pulsar. A start offset is that of a file's first record;
what offset another record has it does not tell, because offsets have gaps.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.rows.encoded import Broken, Mask, Outcome, present, utf8_text
from subreplay.rows.model.topics import DOMAINS

PARTS: Final = ("topic", "partition")
_NUMBER: Final = r"(?P<partition>\d{1,9})"
CONFLUENT: Final = rf"(?:^|/)(?P<topic>[^/+]+)\+{_NUMBER}\+\d+\.[^/+]+$"
AIVEN: Final = rf"(?:^|/)(?P<topic>[^/]+)-{_NUMBER}-\d+(?:\.[A-Za-z0-9.]+)?$"
_PULSAR_PARTITION: Final = r"(?:^|/)(?P<topic>[^/:]+/[^/:]+/[^/:]+)-partition-(?P<partition>0|[1-9]\d{0,8})/"
_PULSAR_WHOLE: Final = r"^(?P<topic>[^/:]+/[^/:]+/[^/:]+)(?P<partition>)/"
_INTERNAL: Final = r"^(?P<topic>.+)-partition-(?P<partition>0|[1-9]\d{0,8})$"
NO_PARTITION: Final = "-1"


def confluent_path(paths: pa.Array, prefix: str = "") -> Outcome:
    """Topic and partition of files that Confluent's S3 sink wrote, by their own names.

    >>> confluent_path(pa.array(["topics/orders/partition=3/orders+3+0000000017.avro"])).values.to_pylist()
    [{'topic': 'orders', 'partition': 3}]
    """
    return _of_files(paths, prefix, (CONFLUENT,), "a file is named <topic>+<partition>+<start offset>.<ext>")


def aiven_path(paths: pa.Array, prefix: str = "") -> Outcome:
    """Topic and partition of files that Aiven's S3 sink wrote, by their own names; ``prefix`` is what its setting
    ``file.name.prefix`` put before the topic.

    >>> aiven_path(pa.array(["day/prod-orders-3-17.gz"]), "prod-").values.to_pylist()
    [{'topic': 'orders', 'partition': 3}]
    """
    return _of_files(paths, prefix, (AIVEN,), "a file is named <prefix><topic>-<partition>-<start offset>")


def pulsar_path(paths: pa.Array, prefix: str = "") -> Outcome:
    """Topic and partition of files that Pulsar IO's cloud-storage sink wrote, by the folders they are in.

    Folders before the tenant are told by ``prefix``, unless the topic's folder names a partition. The path does not
    tell the domain: a topic is taken as persistent.

    >>> pulsar_path(pa.array(["public/default/orders-partition-3/1.2.-1.json"])).values.to_pylist()
    [{'topic': 'persistent://public/default/orders', 'partition': 3}]
    """
    rule = "a file is in the folders tenant/namespace/topic"
    found = _of_files(paths, prefix, (_PULSAR_PARTITION, _PULSAR_WHOLE), rule)
    topic, partition = found.values.flatten()
    named = pc.binary_join_element_wise(f"{DOMAINS[0]}://", topic, "")
    return Outcome(pa.StructArray.from_arrays([named, partition], PARTS), found.broken)


def pulsar_topic(names: pa.Array) -> Outcome:
    """A topic as a whole and its partition, -1 for none, of names that may be those of internal topics."""
    encoded = pc.dictionary_encode(utf8_text(names).values)
    found = pc.extract_regex(encoded.dictionary, _INTERNAL)
    internal = found.is_valid()
    topic = pc.if_else(internal, pc.struct_field(found, "topic"), encoded.dictionary)
    partition = pc.if_else(internal, pc.struct_field(found, "partition"), NO_PARTITION).cast(pa.int64())
    return Outcome(pa.StructArray.from_arrays([part.take(encoded.indices) for part in (topic, partition)], PARTS))


PATHS: Final[dict[str, Callable[..., Outcome]]] = {
    "confluent_path": confluent_path,
    "aiven_path": aiven_path,
    "pulsar_path": pulsar_path,
}
"""Conversions of the path of a row's file, by name."""


def _of_files(paths: pa.Array, prefix: str, patterns: tuple[str, ...], rule: str) -> Outcome:
    """The parts of a name by the first pattern that fits. Files are few: only different names are looked at."""
    encoded = pc.dictionary_encode(paths)
    names = _beyond(encoded.dictionary, prefix)
    topic, partition = pa.nulls(len(names), pa.string()), pa.nulls(len(names), pa.string())
    for pattern in patterns:
        found = pc.extract_regex(names, pattern)
        fits = pc.and_(found.is_valid(), topic.is_null())
        topic = pc.if_else(fits, pc.struct_field(found, "topic"), topic)
        partition = pc.if_else(fits, pc.struct_field(found, "partition"), partition)
    partition = pc.if_else(pc.equal(partition, ""), NO_PARTITION, partition).cast(pa.int64())
    parts = [part.take(encoded.indices) for part in (topic, partition)]
    bad = ~present(parts[0])
    remedy = "name the conversion and the prefix of these files, or map topic and partition"
    return Outcome(pa.StructArray.from_arrays(parts, PARTS), _named(bad, rule, remedy))


def _beyond(names: pa.Array, prefix: str) -> pa.Array:
    """What stands behind the first ``prefix`` that begins a folder's or a file's name; null where there is none."""
    if not prefix:
        return names
    found = pc.extract_regex(names, rf"^(?:.*?/)??{re.escape(prefix)}(?P<rest>.*)$")
    return pc.if_else(found.is_valid(), pc.struct_field(found, "rest"), None)


def _named(bad: Mask, rule: str, remedy: str) -> tuple[Broken, ...]:
    return (Broken(bad, rule, remedy),) if bad.any() else ()
