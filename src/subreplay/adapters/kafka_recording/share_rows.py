"""The row contracts of a recorded share group: one model for each file."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from subreplay.adapters.contract_types import Millis, Name, Nanos, Natural, Partition
from subreplay.adapters.kafka_recording.recording_rows import Base64, Offset, ProducedRecord

Seconds = Annotated[float, Field(ge=0)]


class _Row(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class SharedRecord(ProducedRecord):
    """A produced record; ``transaction`` is None outside of transactions."""

    transaction: int | None = None
    aborted: bool | None = None


class TransactionEnd(_Row):
    """A transaction that was committed or aborted."""

    transaction: int
    aborted: bool
    done_at: Nanos


class LogBatch(_Row):
    """A batch of the log, from its first to its last offset."""

    topic: Name
    partition: Partition
    base: Offset
    last: Offset
    control: bool


class ShareDelivery(_Row):
    """A record that an application received. ``type`` None: it was never acknowledged. ``error`` is that of the
    acknowledgement."""

    consumer: Name
    member_id: Name
    topic: Name
    partition: Partition
    offset: Offset
    delivery: Annotated[int, Field(ge=1, le=2**15 - 1, strict=True)]
    polled_at: Nanos
    processed_at: Nanos | None
    type: Literal["accept", "release", "reject", "renew"] | None
    acknowledged_at: Nanos | None
    error: str | None


class ShareEvent(_Row):
    """An action of an application, or on a topic."""

    consumer: Name | None
    event: Name
    at: Nanos
    member_id: str | None = None
    topics: tuple[Name, ...] | None = None
    topic: Name | None = None
    to: Natural | None = None


class ShareRequest(_Row):
    """A request as the broker saw it."""

    api: Literal["share_group_heartbeat", "share_fetch", "share_acknowledge"]
    consumer: Name
    received_at: Nanos
    answered_at: Nanos
    request: dict[str, Any]
    response: dict[str, Any]

    @property
    def member_id(self) -> str:
        return str(self.request["memberId"])

    @property
    def ends_session(self) -> bool:
        """Whether the member leaves the group, or gives up its share session."""
        epoch = "memberEpoch" if self.api == "share_group_heartbeat" else "epoch"
        return self.request.get(epoch) == -1


class DecodedRecord(_Row):
    """A record of ``__share_group_state`` or ``__consumer_offsets``, decoded by Kafka's classes."""

    timestamp: Millis
    type: str | None = None
    decoded_key: dict[str, Any] | None = None
    decoded_value: dict[str, Any] | None = None


class StateRecord(_Row):
    """A record of ``__share_group_state`` as it is stored."""

    offset: Natural
    timestamp: Millis
    key: Base64
    value: Base64 | None


class AcknowledgementRule(_Row):
    """How an application acknowledges, by offset modulo ``mod``: ``release`` [[m, n]] the first n deliveries, and
    ``renew`` [[m, n]] n times before it accepts."""

    mod: Annotated[int, Field(ge=1)]
    release: tuple[tuple[int, int], ...] = ()
    reject: tuple[int, ...] = ()
    renew: tuple[tuple[int, int], ...] = ()
    renew_work: bool = False


class ShareAction(_Row):
    """A planned action of an application or on the topics, ``at_s`` seconds after the start of the scenario.

    *stall* begins with the first batch of ``min`` or more records, *close_in_hand* in the middle of it, when the share
    ``done`` of its records is done.
    """

    at_s: Seconds
    do: Literal["close", "kill", "stall", "close_in_hand", "unsubscribe", "subscribe", "grow"]
    ms: Natural = 0
    min: Natural = 1
    done: Annotated[float, Field(ge=0, le=1)] = 0
    topics: tuple[Name, ...] = ()
    topic: Name | None = None
    to: Natural | None = None


class ShareApplication(_Row):
    """A planned consumer; ``props`` are its client settings under Kafka's names."""

    name: Name
    start_s: Seconds
    process: bool = False
    props: dict[str, Any]
    subscribe: tuple[Name, ...]
    commit: Literal["none", "sync", "async"]
    poll_ms: Natural
    service_us: Annotated[float, Field(ge=0)]
    seed: int | None = None
    ack: AcknowledgementRule | None = None
    actions: tuple[ShareAction, ...] = ()


class ShareScenario(_Row):
    """The plan of a recording; ``t0`` (ns) is its second 0."""

    name: Name
    kafka_version: Name
    group: Name
    protocol: Literal["share"]
    t0: Nanos
    end_s: Seconds
    topics: dict[Name, Annotated[int, Field(ge=1, le=2**31 - 1)]]
    topic_ids: dict[Name, str]
    broker: dict[str, Any]
    group_config: dict[str, Any]
    consumers: Annotated[tuple[ShareApplication, ...], Field(min_length=1)]
    producer: dict[str, Any]
    actions: tuple[ShareAction, ...] = ()

    def find_setting(self, name: str, default: int) -> int:
        """Return a whole-number setting of the group, else of the broker, else ``default``."""
        return int(self.group_config.get(f"share.{name}", self.broker.get(f"group.share.{name}", default)))

    def get_group_setting(self, name: str, default: str) -> str:
        """Return a text setting of the group."""
        return str(self.group_config.get(f"share.{name}", default))
