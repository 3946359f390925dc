"""Presets for sources with known column names: messages of Kafka and Pulsar as connectors write them into tables.

Names and types are those of the connectors: Spark's Kafka source, Iceberg's Kafka Connect with the transform
KafkaMetadataTransform, the S3 sinks of Confluent and Aiven, Redpanda's Iceberg topics, pulsar-spark, the cloud-storage
sink of Pulsar IO, StreamNative's Lakehouse tables.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping as AnyMapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from subreplay.adapters.source.column_mapping import ColumnMapping, ColumnSource, parse_mapping
from subreplay.adapters.source.mapping_plan import MappingPlan, bind_mapping
from subreplay.adapters.source.message_ids import ID_PARTS
from subreplay.adapters.source.source_columns import find_column, value_kind
from subreplay.errors import ConfigError, InputError


@dataclass(frozen=True)
class SourcePreset:
    """The columns of a known source of messages: canonical column to source column."""

    title: str
    needed: AnyMapping[str, ColumnSource] = field(default_factory=dict)
    optional: AnyMapping[str, ColumnSource] = field(default_factory=dict)  # read where the source has them
    path: str | None = None  # the conversion of its file names
    within: str = ""  # the struct that contains the needed columns
    unnamed: tuple[str, ...] = ()  # columns without a known name, which the user must map


def _build_sources(**source_name: str) -> dict[str, ColumnSource]:
    return {target: ColumnSource(column) for target, column in source_name.items()}


def _build_kafka_sources(before: str, **beside: str) -> dict[str, ColumnSource]:
    return _build_sources(**beside, **{name: f"{before}{name}" for name in ("partition", "offset", "timestamp")})


_METADATA: Final = "__message_metadata__"
PRESETS: Final[dict[str, SourcePreset]] = {
    "kafka-table.spark": SourcePreset(
        "Spark's Kafka source, or a table written from it",
        _build_kafka_sources("", topic="topic"),
        _build_sources(key="key", value="value"),
    ),
    "kafka-table.iceberg-smt": SourcePreset(
        "Iceberg's Kafka Connect sink with KafkaMetadataTransform",
        _build_kafka_sources("_kafka_metadata_", topic="_kafka_metadata_topic"),
    ),
    "kafka-table.iceberg-smt-nested": SourcePreset(
        "Iceberg's Kafka Connect sink with KafkaMetadataTransform, nested",
        _build_kafka_sources("_kafka_metadata.", topic="_kafka_metadata.topic"),
        within="_kafka_metadata",
    ),
    "kafka-table.redpanda": SourcePreset(
        "a Redpanda Iceberg topic",
        _build_kafka_sources("redpanda."),
        _build_sources(key="redpanda.key", value="value"),
        within="redpanda",
        unnamed=("topic",),
    ),
    "kafka-table.confluent-s3": SourcePreset(
        "Confluent's S3 sink with the transform InsertField", path="confluent_path", unnamed=("offset", "timestamp")
    ),
    "kafka-table.aiven-s3": SourcePreset(
        "Aiven's S3 sink",
        _build_sources(offset="offset", timestamp="timestamp"),
        _build_sources(key="key", value="value"),
        path="aiven_path",
    ),
    "pulsar-table": SourcePreset(
        "pulsar-spark, or Databricks' format pulsar",
        _build_sources(message_id="__messageId", publish_time="__publishTime")
        | {"topic": ColumnSource("__topic", "pulsar_topic")},
        _build_sources(key="__key", value="value") | {"event_time": ColumnSource("__eventTime", "event_time")},
    ),
    "pulsar-cloud-storage": SourcePreset(
        "the cloud-storage sink of Pulsar IO, with metadata, message id and publish time",
        _build_sources(message_id=f"{_METADATA}.messageId", publish_time=f"{_METADATA}.publishTime"),
        _build_sources(key=f"{_METADATA}.messageKey") | {"topic": ColumnSource(f"{_METADATA}.topic", "pulsar_topic")},
        path="pulsar_path",
        within=_METADATA,
    ),
    "streamnative-lakehouse": SourcePreset(
        "a Lakehouse table of StreamNative, its __meta read as a struct",
        _build_sources(offset="__meta.__messageOffset", publish_time="__meta.__publishTime"),
        {"event_time": ColumnSource("__meta.__eventTime", "event_time")},
        within="__meta",
        unnamed=("topic", "partition"),
    ),
}
"""The presets of ``messages`` by name."""

TIME_TARGETS: Final = ("timestamp", "publish_time")
_TIME_CONVERSIONS: Final = {"integer": "epoch_ms", "text": "iso8601"}  # the format that all these sources write
_ALIAS_TARGETS: Final = {
    "offset": ("ledger", "entry", "batch_index"), "message_id": ID_PARTS, "timestamp": ("publish_time",),
    "value": ("size",), "path": ("topic", "partition"),
}  # fmt: skip
_PAYLOAD_KINDS: Final = ("text", "bytes", "null")


def build_plan(raw: Any, schema: pa.Schema, table: str = "messages") -> MappingPlan:
    """Build the plan of a section of a run file: ``from``, ``columns`` and ``values``. The last two precede the preset.

    Raises ``ConfigError`` and ``InputError`` as ``parse_mapping``, ``complete_mapping`` and ``bind_mapping`` do.
    """
    if not isinstance(raw, dict):
        raise ConfigError(f"{table} is {type(raw).__name__}, but must be a mapping of names")
    rest = dict(raw)
    name = rest.pop("from", None)
    mapping = parse_mapping(rest, table)
    return bind_mapping(mapping if name is None else complete_mapping(mapping, name, schema), schema)


def complete_mapping(mapping: ColumnMapping, name: str, schema: pa.Schema) -> ColumnMapping:
    """Complete a mapping with the columns of a preset.

    Raises ``ConfigError`` where the preset does not exist or the user must map a column, and ``InputError`` where the
    source does not have the preset's columns.
    """
    if mapping.table != "messages" or name not in PRESETS:
        raise ConfigError(
            f"{mapping.table}: preset {name!r} does not exist. Presets of messages are {', '.join(PRESETS)}; other "
            "tables have none"
        )
    stated = {name for target in (*mapping.columns, *mapping.values) for name in expand_target(target)}
    preset = PRESETS[name]
    needed, optional = (
        {target: each for target, each in part.items() if not stated & expand_target(target)}
        for part in (preset.needed, preset.optional)
    )
    if absent := [each.column for each in needed.values() if not has_column(schema, each.column)]:
        others = [f"{other} fits" for other in find_fitting_presets(schema) if other != name]
        hint = "; ".join(others) or "map its columns under columns"
        raise InputError(f"{name} does not fit: the source has no {', '.join(map(str, absent))}. Instead, {hint}")
    if open_ := [target for target in preset.unnamed if not stated & expand_target(target)]:
        raise ConfigError(
            f"{name}: the source has no known column for {', '.join(open_)}. Write each under columns or values"
        )
    found = {
        target: add_time_conversion(target, each, schema)
        for target, each in (needed | select_optional(optional, schema)).items()
    }
    if "key" in found and value_kind(find_column(schema, str(found["key"].column)).type) == "text":
        raise ConfigError(
            f"{name}: {found['key'].column} is text, and the source does not say whether it encodes bytes. "
            "Write columns: {key: {column: …, as: base64}}, or as: utf8, or key: null to omit it"
        )
    by_path = {"path": ColumnSource(None, preset.path)} if preset.path and "path" not in mapping.columns else {}
    return ColumnMapping(mapping.table, {**by_path, **found, **mapping.columns}, mapping.values)


def expand_target(target: str) -> set[str]:
    """Return the columns that a name in a mapping fills: itself, or those of the alias."""
    return {target, *_ALIAS_TARGETS.get(target, ())}


def select_optional(optional: AnyMapping[str, ColumnSource], schema: pa.Schema) -> dict[str, ColumnSource]:
    """Select the optional columns that a source has; a payload only where it is unparsed."""
    found = {target: each for target, each in optional.items() if has_column(schema, each.column)}
    value = found.get("value")
    if value is not None and value_kind(find_column(schema, str(value.column)).type) not in _PAYLOAD_KINDS:
        del found["value"]
    return found


def add_time_conversion(target: str, source: ColumnSource, schema: pa.Schema) -> ColumnSource:
    """Add the conversion of a time by the type of its column."""
    if target not in TIME_TARGETS or source.as_ is not None:
        return source
    return source._replace(as_=_TIME_CONVERSIONS.get(value_kind(find_column(schema, str(source.column)).type)))


def has_column(schema: pa.Schema, name: str | None) -> bool:
    """Check whether a source has a column."""
    try:
        return name is not None and bool(find_column(schema, name))
    except InputError:
        return False


def find_fitting_presets(schema: pa.Schema) -> Iterable[str]:
    """Yield the presets whose needed columns the source has."""
    for name, preset in PRESETS.items():
        if (
            preset.needed
            and preset.path != "aiven_path"
            and all(has_column(schema, e.column) for e in preset.needed.values())
        ):
            yield name
