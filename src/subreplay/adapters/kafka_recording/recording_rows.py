"""The row contracts of a recorded Kafka consumer group: one model for each file."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from subreplay.adapters.contract_types import Millis, Name, Nanos, Natural, Partition, Size
from subreplay.rows.model.contracts import ENTRY
from subreplay.semantics.policies.kafka.assignor import TopicPartition


def _decode_base64(text: Any) -> Any:
    """Decode base64 text to bytes."""
    if not isinstance(text, str):
        return text
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise PydanticCustomError("contract", "bytes must be base64", {"remedy": "write them in base64"}) from error


def _parse_partition(text: Any) -> Any:
    """Parse ``orders-3`` as topic and partition."""
    if not isinstance(text, str):
        return text
    topic, _, partition = text.rpartition("-")
    if not topic or not partition.isdecimal():
        rule = {"remedy": "name a topic, a hyphen and a partition"}
        raise PydanticCustomError("contract", "a partition must be named <topic>-<number>", rule)
    return topic, int(partition)


def _check_offset(value: int) -> int:
    if not 0 <= value <= ENTRY.most:
        raise PydanticCustomError("contract", "{rule}", {"rule": ENTRY.rule, "remedy": ENTRY.remedy})
    return value


Base64 = Annotated[bytes, BeforeValidator(_decode_base64)]
Offset = Annotated[int, Field(strict=True), AfterValidator(_check_offset)]
PartitionName = Annotated[TopicPartition, BeforeValidator(_parse_partition)]
Generation = Annotated[int, Field(ge=-1, le=2**31 - 1, strict=True)]


class _Row(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class ProducedRecord(_Row):
    """A produced record."""

    topic: Name
    partition: Partition
    offset: Offset
    key: Base64 | None
    timestamp: Millis
    size: Size
    produced_at: Nanos


class PolledRecord(_Row):
    """A record that the application polled. ``processed_at`` None: its process was killed before the work was done."""

    consumer: Name
    topic: Name
    partition: Partition
    offset: Offset
    polled_at: Nanos
    processed_at: Nanos | None
    generation: Generation
    member_id: str


class ClientCommit(_Row):
    """A commit as the client reports it. ``at`` None: the client reports only its end (automatic commit)."""

    consumer: Name
    topic: Name
    partition: Partition
    offset: Offset
    kind: Literal["sync", "async", "revoke", "auto", "close"]
    at: Nanos | None
    done_at: Nanos
    ok: bool
    error: str | None


class PartitionSeek(_Row):
    """One partition of a rewind."""

    topic: Name
    partition: Partition
    from_: Annotated[Offset, Field(alias="from")]
    to: Offset
    at: Nanos


class ClientEvent(_Row):
    """A row of ``membership``: an action of a consumer, or a callback."""

    consumer: Name | None
    event: Literal[
        "subscribe", "poll_started", "subscription_changed", "assigned", "revoked", "lost", "revoke_done", "rewind",
        "stall_begin", "stall_end", "close_begin", "close_end", "killed", "poll_error", "partitions_grown",
    ]  # fmt: skip
    at: Nanos
    partitions: tuple[PartitionName, ...] | None
    topics: tuple[Name, ...] | None
    generation: Generation | None
    member_id: str | None
    instance_id: str | None
    topic: Name | None = None
    to: Natural | None = None
    done_at: Nanos | None = None
    seeks: tuple[PartitionSeek, ...] = ()


class GroupRequest(_Row):
    """A group request as the broker received it."""

    api: Literal[
        "join_group", "sync_group", "heartbeat", "leave_group", "consumer_group_heartbeat", "offset_fetch",
        "offset_commit",
    ]  # fmt: skip
    consumer: Name
    received_at: Nanos
    answered_at: Nanos
    request: dict[str, Any]
    response: dict[str, Any]

    @property
    def error(self) -> int:
        """The response's error code; 0 means none."""
        return int(self.response.get("errorCode", 0))


class CoordinatorLine(_Row):
    """A line of the group coordinator's own log."""

    at: Nanos
    level: str
    text: Name


class GroupRecord(_Row):
    """A record of ``__consumer_offsets``."""

    offset: Offset
    timestamp: Millis
    key: Base64
    value: Base64 | None


class GroupSnapshot(_Row):
    """The answer of Admin.describeConsumerGroups between ``at`` and ``done_at``."""

    at: Nanos
    state: Name
    done_at: Nanos | None = None
    error: str | None = None


class PlannedAction(_Row):
    """A planned action of an application or on the topics, ``at_s`` seconds after the start of the scenario."""

    at_s: Annotated[float, Field(ge=0)]
    do: Literal["close", "kill", "stall", "rewind", "subscribe", "grow"]
    commit: bool = False
    ms: Natural = 0
    min: Natural = 1
    records: Natural = 0
    topics: tuple[Name, ...] = ()
    topic: Name | None = None
    to: Natural | None = None


class PlannedApplication(_Row):
    """A planned consumer; ``props`` are its client settings under Kafka's names."""

    name: Name
    instance: Name | None = None
    start_s: Annotated[float, Field(ge=0)]
    process: bool = False  # whether it runs in its own process
    props: dict[str, Any]
    subscribe: tuple[Name, ...]
    commit: Literal["sync", "async", "auto"]
    commit_every_ms: Natural = 0
    commit_on_revoke: bool = False
    service_us: Annotated[float, Field(ge=0)]
    poll_ms: Natural
    seed: int | None = None  # of its random service times
    actions: tuple[PlannedAction, ...] = ()

    @property
    def reset(self) -> str:
        """The start position in a partition without a commit of the group."""
        return str(self.props.get("auto.offset.reset", "latest"))


class GroupScenario(_Row):
    """The plan of a recording; ``t0`` (ns) is its second 0. From 4.1 on the coordinator's records have topic ids only,
    of which ``topic_ids`` has the names."""

    name: Name
    kafka_version: Name
    topic_ids: dict[Name, Name] = Field(default_factory=dict)
    group: Name
    protocol: Literal["classic", "consumer"]
    assignor: Literal["range", "roundrobin", "sticky", "cooperative-sticky", "uniform"]
    t0: Nanos
    end_s: Annotated[float, Field(ge=0)]
    topics: dict[Name, Annotated[int, Field(ge=1, le=2**31 - 1)]]
    broker: dict[str, Any]
    group_config: dict[str, Any] = Field(default_factory=dict)  # dynamic settings of the group
    consumers: tuple[PlannedApplication, ...]
    actions: tuple[PlannedAction, ...] = ()

    @property
    def policy(self) -> str:
        """The policy of the assignor."""
        server = self.protocol == "consumer" and self.assignor == "range"
        return "kafka.server_range" if server else f"kafka.{self.assignor.replace('-', '_')}"
