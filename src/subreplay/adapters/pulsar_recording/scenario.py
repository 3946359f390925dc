"""What the recorder noted of a session as a whole: ``scenario.json``, as far as it is used."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from subreplay.adapters.contract_types import QueueSize
from subreplay.adapters.pulsar_policies import TYPES
from subreplay.errors import InputError

_SELECTORS: Final = {
    "consistent_hashing": "pulsar.key_shared.consistent_hash",
    "hash_range_auto_split": "pulsar.key_shared.auto_split",
}


class PlannedConsumer(BaseModel):
    """A consumer as it was planned: its queue, how long it works on a message, and how it acknowledges."""

    model_config = ConfigDict(extra="ignore")
    name: str
    receiver_queue_size: QueueSize | None = None
    delay_s: Annotated[float, Field(ge=0)] | None = None
    delay_ms: Annotated[float, Field(ge=0)] | None = None
    ack: str | None = None

    @property
    def work(self) -> float:
        """ns for a message."""
        return (self.delay_s or 0) * 1e9 + (self.delay_ms or 0) * 1e6


class BrokerSettings(BaseModel):
    """Settings of the broker or policies of the topic that decide who may be given messages, and all others."""

    model_config = ConfigDict(extra="allow", strict=True)
    max_unacked_per_consumer: Annotated[int | None, Field(ge=0, alias="maxUnackedMessagesPerConsumer")] = None
    max_unacked_per_subscription: Annotated[int | None, Field(ge=0, alias="maxUnackedMessagesPerSubscription")] = None

    @property
    def limits(self) -> dict[str, int]:
        """Those that an audit looks at."""
        return self.model_dump(exclude_none=True, include=set(type(self).model_fields))

    @property
    def by_name(self) -> dict[str, Any]:
        """Those that the recorder noted, by their names in ``broker.conf``."""
        return self.model_dump(by_alias=True, exclude_none=True)


class Scenario(BaseModel):
    """The broker's version, its selector for Key_Shared, the clients' queues, and settings of the broker or the topic's
    policies that were not the defaults, by their names in ``broker.conf``. What the recorder left out is None."""

    model_config = ConfigDict(extra="ignore")
    version: str | None = None
    selector: Literal["consistent_hashing", "hash_range_auto_split"] = "consistent_hashing"
    consumers: tuple[PlannedConsumer, ...] = ()
    broker_settings: BrokerSettings = BrokerSettings()

    @property
    def queue_sizes(self) -> dict[str, int]:
        """The receiver queues that are told, by consumer."""
        return {c.name: c.receiver_queue_size for c in self.consumers if c.receiver_queue_size is not None}

    def policy_of(self, subscription_type: str, key_shared_mode: str | None) -> str:
        """The name of the policy that such a subscription has at this broker."""
        of_key_shared = "pulsar.key_shared.sticky" if key_shared_mode == "STICKY" else _SELECTORS[self.selector]
        return TYPES.get(subscription_type, of_key_shared)


def read_scenario(folder: Path) -> Scenario:
    """The scenario of a recording; raises InputError where it is not understood."""
    path = folder / "scenario.json"
    if not path.exists():
        return Scenario()
    try:
        return Scenario.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        at = "".join(f"{part}: " for part in first["loc"])
        raise InputError(f"{path}: {at}{first['msg']}; correct it, or leave the file out") from error
