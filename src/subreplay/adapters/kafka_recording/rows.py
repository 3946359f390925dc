"""The row contracts of a recording of a Kafka consumer group: one model for each of its files."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from subreplay.adapters.contract_types import Millis, Name, Nanos, Natural, Partition, Size
from subreplay.rows.model.contracts import ENTRY
from subreplay.semantics.policies.kafka.assignor import TopicPartition


def _bytes(text: Any) -> Any:
    """Bytes of base64 text."""
    if not isinstance(text, str):
        return text
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise PydanticCustomError("contract", "bytes are base64", {"remedy": "write them in base64"}) from error


def _named(text: Any) -> Any:
    """``orders-3`` as topic and partition."""
    if not isinstance(text, str):
        return text
    topic, _, partition = text.rpartition("-")
    if not topic or not partition.isdecimal():
        rule = {"remedy": "name a topic, a hyphen and a partition"}
        raise PydanticCustomError("contract", "a partition is named <topic>-<number>", rule)
    return topic, int(partition)


def _offset(value: int) -> int:
    if not 0 <= value <= ENTRY.most:
        raise PydanticCustomError("contract", "{rule}", {"rule": ENTRY.rule, "remedy": ENTRY.remedy})
    return value


Base64 = Annotated[bytes, BeforeValidator(_bytes)]
Offset = Annotated[int, Field(strict=True), AfterValidator(_offset)]
Named = Annotated[TopicPartition, BeforeValidator(_named)]
Generation = Annotated[int, Field(ge=-1, le=2**31 - 1, strict=True)]


class _Row(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Record(_Row):
    """A produced record."""

    topic: Name
    partition: Partition
    offset: Offset
    key: Base64 | None
    timestamp: Millis
    size: Size
    produced_at: Nanos


class Poll(_Row):
    """A record given to the application; ``processed_at`` None: its process was killed before the work was done."""

    consumer: Name
    topic: Name
    partition: Partition
    offset: Offset
    polled_at: Nanos
    processed_at: Nanos | None
    generation: Generation
    member_id: str


class Commit(_Row):
    """A commit as the client saw it; ``at`` None: the client tells its end only (auto commit)."""

    consumer: Name
    topic: Name
    partition: Partition
    offset: Offset
    kind: Literal["sync", "async", "revoke", "auto", "close"]
    at: Nanos | None
    done_at: Nanos
    ok: bool
    error: str | None


class Seek(_Row):
    """One partition of a rewind."""

    topic: Name
    partition: Partition
    from_: Annotated[Offset, Field(alias="from")]
    to: Offset
    at: Nanos


class Happening(_Row):
    """A row of ``membership``: what a consumer did, or was told by its callbacks."""

    consumer: Name | None
    event: Literal[
        "subscribe", "poll_started", "subscription_changed", "assigned", "revoked", "lost", "revoke_done", "rewind",
        "stall_begin", "stall_end", "close_begin", "close_end", "killed", "poll_error", "partitions_grown",
    ]  # fmt: skip
    at: Nanos
    partitions: tuple[Named, ...] | None
    topics: tuple[Name, ...] | None
    generation: Generation | None
    member_id: str | None
    instance_id: str | None
    topic: Name | None = None
    to: Natural | None = None
    done_at: Nanos | None = None
    seeks: tuple[Seek, ...] = ()


class Request(_Row):
    """A group request as the broker saw it."""

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
        """The response's error code; 0: none."""
        return int(self.response.get("errorCode", 0))


class LogLine(_Row):
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


class Snapshot(_Row):
    """What Admin.describeConsumerGroups answered between ``at`` and ``done_at``."""

    at: Nanos
    state: Name
    done_at: Nanos | None = None
    error: str | None = None


class Action(_Row):
    """What is planned for an application, or for the topics: ``at_s`` seconds after the scenario's beginning."""

    at_s: Annotated[float, Field(ge=0)]
    do: Literal["close", "kill", "stall", "rewind", "subscribe", "grow"]
    commit: bool = False
    ms: Natural = 0
    min: Natural = 1
    records: Natural = 0
    topics: tuple[Name, ...] = ()
    topic: Name | None = None
    to: Natural | None = None


class Application(_Row):
    """A consumer of the plan; ``props`` are its client's settings under Kafka's names."""

    name: Name
    instance: Name | None = None
    start_s: Annotated[float, Field(ge=0)]
    process: bool = False  # it has a process of its own
    props: dict[str, Any]
    subscribe: tuple[Name, ...]
    commit: Literal["sync", "async", "auto"]
    commit_every_ms: Natural = 0
    commit_on_revoke: bool = False
    service_us: Annotated[float, Field(ge=0)]
    poll_ms: Natural
    seed: int | None = None  # of the times that it works
    actions: tuple[Action, ...] = ()

    @property
    def reset(self) -> str:
        """Where it begins a partition that its group never committed in."""
        return str(self.props.get("auto.offset.reset", "latest"))


class Scenario(_Row):
    """The plan of a recording: ``t0`` (ns) is its second 0."""

    name: Name
    kafka_version: Name
    group: Name
    protocol: Literal["classic", "consumer"]
    assignor: Literal["range", "roundrobin", "sticky", "cooperative-sticky", "uniform"]
    t0: Nanos
    end_s: Annotated[float, Field(ge=0)]
    topics: dict[Name, Annotated[int, Field(ge=1, le=2**31 - 1)]]
    broker: dict[str, Any]
    consumers: tuple[Application, ...]
    actions: tuple[Action, ...] = ()

    @property
    def policy(self) -> str:
        """The assignor's name as a policy."""
        server = self.protocol == "consumer" and self.assignor == "range"
        return "kafka.server_range" if server else f"kafka.{self.assignor.replace('-', '_')}"
