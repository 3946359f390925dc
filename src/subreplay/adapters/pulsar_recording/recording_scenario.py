"""Read the recorder's notes about a whole session from ``scenario.json``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from subreplay.adapters.contract_types import QueueSize
from subreplay.adapters.pulsar_policies import TYPES
from subreplay.errors import InputError
from subreplay.failures import describe_read_error
from subreplay.rows.model.segments import parse_segment

_SELECTORS: Final = {
    "consistent_hashing": "pulsar.key_shared.consistent_hash",
    "hash_range_auto_split": "pulsar.key_shared.auto_split",
}


class PlannedConsumer(BaseModel):
    """A planned consumer: its receiver queue, its time for each message, and how it acknowledges.

    ``mode`` is ``eager`` if it takes messages before it has done the ones that it has. ``nack``: it refuses some.
    """

    model_config = ConfigDict(extra="ignore")
    name: str
    receiver_queue_size: QueueSize | None = None
    delay_s: Annotated[float, Field(ge=0)] | None = None
    delay_ms: Annotated[float, Field(ge=0)] | None = None
    ack: str | None = None
    mode: str | None = None
    nack: bool = False

    @property
    def work(self) -> float:
        """The time for a message in ns."""
        return (self.delay_s or 0) * 1e9 + (self.delay_ms or 0) * 1e6


class BrokerSettings(BaseModel):
    """Settings of the broker or the topic that limit dispatch, and all other settings."""

    model_config = ConfigDict(extra="allow", strict=True)
    max_unacked_per_consumer: Annotated[int | None, Field(ge=0, alias="maxUnackedMessagesPerConsumer")] = None
    max_unacked_per_subscription: Annotated[int | None, Field(ge=0, alias="maxUnackedMessagesPerSubscription")] = None

    @property
    def limits(self) -> dict[str, int]:
        """The limits that an audit uses."""
        return self.model_dump(exclude_none=True, include=set(type(self).model_fields))

    @property
    def by_name(self) -> dict[str, Any]:
        """The recorded settings by their names in ``broker.conf``."""
        return self.model_dump(by_alias=True, exclude_none=True)


class PulsarScenario(BaseModel):
    """The broker's version, a subscription, the Key_Shared selector, the clients' queues, and settings of the broker or
    the topic that are not the defaults, by their names in ``broker.conf``. A missing value is None."""

    model_config = ConfigDict(extra="ignore")
    version: Annotated[str | None, Field(validation_alias=AliasChoices("version", "broker"))] = None
    subscription: str | None = None
    selector: Literal["consistent_hashing", "hash_range_auto_split"] = "consistent_hashing"
    consumers: tuple[PlannedConsumer, ...] = ()
    broker_settings: BrokerSettings = BrokerSettings()

    @property
    def queue_sizes(self) -> dict[str, int]:
        """The recorded receiver queue sizes by consumer."""
        return {c.name: c.receiver_queue_size for c in self.consumers if c.receiver_queue_size is not None}

    def choose_policy(self, subscription_type: str, key_shared_mode: str | None, topic: str = "") -> str:
        """Return the policy of such a subscription at this broker, of a topic or of a segment's ``topic``.

        The members of a segment are Exclusive or, with the ranges of all buckets, Key_Shared; see ``StreamPolicy``.
        """
        if parse_segment(topic):
            return "pulsar.scalable.queue" if subscription_type == "Shared" else "pulsar.scalable.stream"
        of_key_shared = "pulsar.key_shared.sticky" if key_shared_mode == "STICKY" else _SELECTORS[self.selector]
        return TYPES.get(subscription_type, of_key_shared)


def read_scenario(folder: Path) -> PulsarScenario:
    """Read the scenario of a recording. Raises ``InputError`` where it is malformed, and as ``describe_read_error``."""
    path = folder / "scenario.json"
    if not path.exists():
        return PulsarScenario()
    try:
        return PulsarScenario.model_validate_json(path.read_bytes())
    except OSError as error:
        raise describe_read_error(error, path) from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        at = "".join(f"{part}: " for part in first["loc"])
        raise InputError(f"{path}: {at}{first['msg']}. Correct it, or remove the file") from error
