"""Sources whose columns have known names, as data: Kafka's and Pulsar's messages as connectors write them into tables.

Names and types are those of the connectors' sources: Spark's Kafka source, Iceberg's Kafka Connect with the transform
KafkaMetadataTransform, the S3 sinks of Confluent and Aiven, Redpanda's Iceberg topics, pulsar-spark, the cloud-storage
sink of Pulsar IO, StreamNative's Lakehouse tables.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping as AnyMapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from subreplay.adapters.source.columns import find, kind_of
from subreplay.adapters.source.mapping import Mapping, Source, parse
from subreplay.adapters.source.message_id import PARTS
from subreplay.adapters.source.plan import Plan, bind
from subreplay.errors import ConfigError, InputError


@dataclass(frozen=True)
class Preset:
    """The columns of a known source of messages, our column to theirs."""

    title: str
    needed: AnyMapping[str, Source] = field(default_factory=dict)
    optional: AnyMapping[str, Source] = field(default_factory=dict)  # taken where the source has them
    path: str | None = None  # what takes the names of its files apart
    within: str = ""  # the struct that has what it needs
    asks: tuple[str, ...] = ()  # what no source of its kind has under a known name: its user states it


def _of(**theirs: str) -> dict[str, Source]:
    return {ours: Source(column) for ours, column in theirs.items()}


def _kafka(before: str, **beside: str) -> dict[str, Source]:
    return _of(**beside, **{name: f"{before}{name}" for name in ("partition", "offset", "timestamp")})


_METADATA: Final = "__message_metadata__"
PRESETS: Final[dict[str, Preset]] = {
    "kafka-table.spark": Preset(
        "Spark's Kafka source, or a table written from it", _kafka("", topic="topic"), _of(key="key", value="value")
    ),
    "kafka-table.iceberg-smt": Preset(
        "Iceberg's Kafka Connect sink with KafkaMetadataTransform",
        _kafka("_kafka_metadata_", topic="_kafka_metadata_topic"),
    ),
    "kafka-table.iceberg-smt-nested": Preset(
        "Iceberg's Kafka Connect sink with KafkaMetadataTransform, nested",
        _kafka("_kafka_metadata.", topic="_kafka_metadata.topic"),
        within="_kafka_metadata",
    ),
    "kafka-table.redpanda": Preset(
        "a Redpanda Iceberg topic",
        _kafka("redpanda."),
        _of(key="redpanda.key", value="value"),
        within="redpanda",
        asks=("topic",),
    ),
    "kafka-table.confluent-s3": Preset(
        "Confluent's S3 sink with the transform InsertField", path="confluent_path", asks=("offset", "timestamp")
    ),
    "kafka-table.aiven-s3": Preset(
        "Aiven's S3 sink", _of(offset="offset", timestamp="timestamp"), _of(key="key", value="value"), path="aiven_path"
    ),
    "pulsar-table": Preset(
        "pulsar-spark, or Databricks' format pulsar",
        _of(message_id="__messageId", publish_time="__publishTime") | {"topic": Source("__topic", "pulsar_topic")},
        _of(key="__key", value="value") | {"event_time": Source("__eventTime", "event_time")},
    ),
    "pulsar-cloud-storage": Preset(
        "the cloud-storage sink of Pulsar IO, with metadata, message id and publish time",
        _of(message_id=f"{_METADATA}.messageId", publish_time=f"{_METADATA}.publishTime"),
        _of(key=f"{_METADATA}.messageKey") | {"topic": Source(f"{_METADATA}.topic", "pulsar_topic")},
        path="pulsar_path",
        within=_METADATA,
    ),
    "streamnative-lakehouse": Preset(
        "a Lakehouse table of StreamNative, its __meta read as a struct",
        _of(offset="__meta.__messageOffset", publish_time="__meta.__publishTime"),
        {"event_time": Source("__meta.__eventTime", "event_time")},
        within="__meta",
        asks=("topic", "partition"),
    ),
}
"""Presets of ``messages`` by name."""

TIMES: Final = ("timestamp", "publish_time")
_OF_TIMES: Final = {"integer": "epoch_ms", "text": "iso8601"}  # what all of these sources write
_TARGETS: Final = {
    "offset": ("ledger", "entry", "batch_index"), "message_id": PARTS, "timestamp": ("publish_time",),
    "value": ("size",), "path": ("topic", "partition"),
}  # fmt: skip
_IN_SIZES: Final = ("text", "bytes", "null")


def plan_of(raw: Any, schema: pa.Schema, table: str = "messages") -> Plan:
    """What a section of a run file asks for, bound to a source: ``preset``, ``columns`` and ``values``, of which the
    last two go before what the preset says. Raises ``ConfigError`` and ``InputError`` as ``parse``, ``completed`` and
    ``bind`` do."""
    if not isinstance(raw, dict):
        raise ConfigError(f"{table}: a mapping of names is needed, not {type(raw).__name__}")
    rest = dict(raw)
    name = rest.pop("from", None)
    mapping = parse(rest, table)
    return bind(mapping if name is None else completed(mapping, name, schema), schema)


def completed(mapping: Mapping, name: str, schema: pa.Schema) -> Mapping:
    """A mapping with what a preset knows beside it.

    Raises ``ConfigError`` where there is no such preset or something has to be stated, ``InputError`` where the source
    is another one.
    """
    if mapping.table != "messages" or name not in PRESETS:
        raise ConfigError(f"{mapping.table}: no preset {name!r}; messages have {', '.join(PRESETS)}, other tables none")
    stated = {target for ours in (*mapping.columns, *mapping.values) for target in targets(ours)}
    preset = PRESETS[name]
    needed, optional = (
        {ours: each for ours, each in part.items() if not stated & targets(ours)}
        for part in (preset.needed, preset.optional)
    )
    if absent := [each.column for each in needed.values() if not has(schema, each.column)]:
        others = [f"{other} fits" for other in fitting(schema) if other != name]
        hint = "; ".join(others) or "map its columns under columns"
        raise InputError(f"{name} does not fit: the source has no {', '.join(map(str, absent))}; {hint}")
    if asked := [ours for ours in preset.asks if not stated & targets(ours)]:
        raise ConfigError(f"{name}: no known column has {', '.join(asked)}; write each under columns or values")
    found = {ours: fitted(ours, each, schema) for ours, each in (needed | present(optional, schema)).items()}
    if "key" in found and kind_of(find(schema, str(found["key"].column)).type) == "text":
        raise ConfigError(
            f"{name}: {found['key'].column} is text, and no flag says whether it stands for bytes; "
            "write columns: {key: {column: …, as: base64}}, or as: utf8, or key: null to leave it out"
        )
    by_path = {"path": Source(None, preset.path)} if preset.path and "path" not in mapping.columns else {}
    return Mapping(mapping.table, {**by_path, **found, **mapping.columns}, mapping.values)


def targets(ours: str) -> set[str]:
    """What a name in a mapping fills: itself, or what it is an alias of."""
    return {ours, *_TARGETS.get(ours, ())}


def present(optional: AnyMapping[str, Source], schema: pa.Schema) -> dict[str, Source]:
    """The columns that a source has; a payload only where it is still the payload."""
    found = {ours: each for ours, each in optional.items() if has(schema, each.column)}
    value = found.get("value")
    if value is not None and kind_of(find(schema, str(value.column)).type) not in _IN_SIZES:
        del found["value"]
    return found


def fitted(ours: str, source: Source, schema: pa.Schema) -> Source:
    """A column with the conversion that its type wants, where it is a time."""
    if ours not in TIMES or source.as_ is not None:
        return source
    return source._replace(as_=_OF_TIMES.get(kind_of(find(schema, str(source.column)).type)))


def has(schema: pa.Schema, name: str | None) -> bool:
    """Whether a source has a column."""
    try:
        return name is not None and bool(find(schema, name))
    except InputError:
        return False


def fitting(schema: pa.Schema) -> Iterable[str]:
    """The presets of which a source has every column that they need, if they need one."""
    for name, preset in PRESETS.items():
        if preset.needed and preset.path != "aiven_path" and all(has(schema, e.column) for e in preset.needed.values()):
            yield name
