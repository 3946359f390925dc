"""Section ``dispatch`` of a scenario: assumptions about its consumers, its broker and its topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field, model_validator

from subreplay.config.fields import INT_31, INT_63, Duration, Model, parse_duration
from subreplay.rows.model.rows import Consumer
from subreplay.simulation.pulsar.broker.dispatch_rules import DispatchSettings, find_default_settings
from subreplay.simulation.pulsar.consumer_model import ClientLibrary, ConsumerModel, OnFailure, Prediction
from subreplay.simulation.pulsar.service_model import Fixed, LogNormal, PerByte
from subreplay.simulation.pulsar.service_model import Service as ServiceModel

US = 1_000  # ns


class Service(Model):
    """The time that an application needs for a message.

    ``fixed``: ``time``. ``per_byte``: ``time`` plus ``per_kib`` for every 1,024 bytes. ``lognormal``: ``time`` is the
    median and ``sigma`` the standard deviation of the logarithm. ``recorded``: drawn from the recorded times from
    receipt to acknowledgement.
    """

    model: Literal["fixed", "per_byte", "lognormal", "recorded"] = "fixed"
    time: Duration = 0
    per_kib: Duration = 0
    sigma: Annotated[float, Field(ge=0, le=10)] = 0.5

    def service(self, recorded: ServiceModel) -> ServiceModel:
        """Return the model; ``recorded`` is the model of the recorded times."""
        if self.model == "recorded":
            return recorded
        if self.model == "lognormal":
            return LogNormal(self.time * US, self.sigma)
        if self.model == "per_byte":
            return PerByte(self.per_kib * US / 1024, self.time * US)
        return Fixed(self.time * US)

    @property
    def words(self) -> str:
        """The model, as a report describes it."""
        time = f"{self.time / 1_000:g} ms"
        return {
            "fixed": f"{time} a message",
            "per_byte": f"{time} a message and {self.per_kib / 1_000:g} ms a KiB",
            "lognormal": f"lognormal, median {time}, sigma {self.sigma:g}",
            "recorded": "as recorded, from receipt to acknowledgement",
        }[self.model]


class Halt(Model):
    """A time in which an application does not work; times count from the first message of the traffic."""

    start: Duration = 0
    end: Duration | None = None

    @model_validator(mode="after")
    def _check_order(self) -> Halt:
        if self.end is not None and self.end <= self.start:
            raise ValueError("end must come after start")
        return self

    def span(self, first: int) -> tuple[int, int | None]:
        """Return begin and end (ns since the Unix epoch; None: no end) for a first message at ``first``."""
        return first + self.start * US, None if self.end is None else first + self.end * US

    @property
    def words(self) -> str:
        """The time, as a report describes it."""
        end = "on" if self.end is None else f"to {self.end / 1e6:g} s"
        return f"from {self.start / 1e6:g} s {end}"


_DURATIONS = frozenset(
    {"nack_delay", "retry_delay", "ack_timeout", "longest_redelivery", "chunk_expiry", "failover_delay", "ttl"}
)


def _format_setting(key: str, value: Any) -> str:
    """Format the value of a setting for a report."""
    if key in _DURATIONS:
        return f"{value / 1e6:g} s"
    return str(value).lower() if isinstance(value, bool) else str(value)


class Consumers(Model):
    """A consumer's client and application."""

    service: Service = Service()
    factor: Annotated[float, Field(gt=0, le=1_000_000)] = 1.0
    receiver_queue_size: Annotated[int, Field(ge=0, le=100_000)] = 1000
    failure_rate: Annotated[float, Field(ge=0, le=1)] = 0.0
    on_failure: Literal["nack", "retry", "nothing"] = "nack"
    nack_delay: Duration = parse_duration("1m")
    client: Literal["java", "cpp"] = "java"
    retry_delay: Duration = parse_duration("1s")
    ack_timeout: Duration = 0
    redelivery_multiplier: Annotated[float, Field(ge=1, le=1000)] = 1.0
    longest_redelivery: Duration = parse_duration("10m")
    max_redeliver: Annotated[int, Field(ge=1, le=INT_31)] | None = None
    cumulative: bool = False
    no_ack: Halt | None = Field(None, validation_alias=AliasChoices("no_ack", "stuck"))
    hang: Halt | None = None
    max_pending_chunked: Annotated[int, Field(ge=0, le=INT_31)] = 10
    chunk_expiry: Annotated[Duration, Field(ge=1)] = parse_duration("1h")
    acks_oldest_chunked: bool = False

    def model(self, recorded: ServiceModel, start: int) -> ConsumerModel:
        """Return the model for the kernel; ``start`` is the time (ns) of the first message."""
        no_ack_from, no_ack_until = (None, None) if self.no_ack is None else self.no_ack.span(start)
        hangs_from, hangs_until = (None, None) if self.hang is None else self.hang.span(start)
        return ConsumerModel(
            service=self.service.service(recorded),
            factor=self.factor,
            receiver_queue_size=self.receiver_queue_size,
            failure_rate=self.failure_rate,
            on_failure=OnFailure[self.on_failure.upper()],
            nack_delay=self.nack_delay * US,
            client=ClientLibrary[self.client.upper()],
            retry_delay=self.retry_delay * US,
            ack_timeout=self.ack_timeout * US,
            redelivery_multiplier=self.redelivery_multiplier,
            longest_redelivery=self.longest_redelivery * US,
            max_redeliver=self.max_redeliver,
            cumulative=self.cumulative,
            stuck_from=no_ack_from,
            stuck_until=no_ack_until,
            hangs_from=hangs_from,
            hangs_until=hangs_until,
            max_pending_chunked=self.max_pending_chunked,
            chunk_expiry=self.chunk_expiry * US,
            acks_oldest_chunked=self.acks_oldest_chunked,
        )

    @property
    def halts(self) -> str:
        """How the application stops working, as a report describes it; empty if it does not stop."""
        halts = [f"takes no message {self.hang.words}"] if self.hang else []
        halts += [f"acknowledges no message {self.no_ack.words}"] if self.no_ack else []
        if self.failure_rate and self.on_failure == "nothing" and not self.ack_timeout:
            halts.append("neither acknowledges a message that it fails to process nor requests its redelivery")
        return " and ".join(halts)


def describe_halts(models: Callable[[str], Any], consumers: Iterable[Consumer]) -> dict[str, str]:
    """Describe how applications of ``consumers`` stop working, by label; consumers that do not stop are absent."""
    return {consumer.label: halts for consumer in consumers if (halts := models(consumer.name).halts)}


class Dispatch(Model):
    """Assumptions about all consumers, about some by name, about the broker and about the topic."""

    consumers: Consumers = Consumers()
    others: dict[str, Consumers] = Field(default_factory=dict)
    max_unacked_per_consumer: Annotated[int, Field(ge=0, le=INT_31)] = 50_000
    max_unacked_per_subscription: Annotated[int, Field(ge=0, le=INT_31)] = 200_000
    look_ahead_per_consumer: Annotated[int, Field(ge=0, le=INT_31)] | None = None
    look_ahead_per_subscription: Annotated[int, Field(ge=0, le=INT_31)] | None = None
    failover_delay: Duration = parse_duration("1s")
    ttl: Duration = 0
    deduplicates: bool = False
    persistent: bool = True
    batch_index_acks: bool | None = None
    seed: Annotated[int, Field(ge=0, le=INT_63)] = 0

    @model_validator(mode="after")
    def _check_persistence(self) -> Dispatch:
        if self.persistent:
            return self
        if self.deduplicates:
            raise ValueError("deduplicates: a non-persistent topic remembers no earlier message; remove this key")
        if any(consumers.on_failure == "retry" for consumers in (self.consumers, *self.others.values())):
            raise ValueError("on_failure: a non-persistent topic has no retry letter topic; write nack or nothing")
        return self

    def of(self, consumer: str) -> Consumers:
        """Return the assumptions about a consumer."""
        return self.others.get(consumer, self.consumers)

    def halts(self, consumers: Iterable[Consumer]) -> dict[str, str]:
        """Describe how applications stop working, see ``describe_halts``."""
        return describe_halts(self.of, consumers)

    def prediction(self, recorded: ServiceModel, start: int, interval: int) -> Prediction:
        """Return the kernel's parameters from ``recorded`` service times, first message and window width (ns)."""
        return Prediction(
            consumer=self.consumers.model(recorded, start),
            others={name: model.model(recorded, start) for name, model in self.others.items()},
            ttl=self.ttl * US,
            deduplicates=self.deduplicates,
            persistent=self.persistent,
            batch_index_acks=self.batch_index_acks,
            seed=self.seed,
            interval=interval,
        )

    def build_settings(self, profile: str) -> DispatchSettings:
        """Build the broker's settings; what is not set has the default of the profile's broker."""
        limits = {name: getattr(self, name) for name in ("look_ahead_per_consumer", "look_ahead_per_subscription")}
        return replace(
            find_default_settings(profile),
            max_unacked_per_consumer=self.max_unacked_per_consumer,
            max_unacked_per_subscription=self.max_unacked_per_subscription,
            failover_delay=self.failover_delay * US,
            **{name: limit for name, limit in limits.items() if limit is not None},
        )

    @property
    def draws(self) -> bool:
        """Whether the prediction draws random numbers."""
        models = (self.consumers, *self.others.values())
        return any(c.failure_rate > 0 or c.service.model in ("lognormal", "recorded") for c in models)

    @property
    def words(self) -> tuple[tuple[str, str], ...]:
        """The assumptions that differ from the defaults, except service times, as a report describes them."""
        described: list[tuple[str, str]] = [("receiver queue", f"{self.consumers.receiver_queue_size:,}")]
        for name, model in (("every consumer", self.consumers), *sorted(self.others.items())):
            changed = {key: getattr(model, key) for key in type(model).model_fields if key != "receiver_queue_size"}
            settings = [
                f"{key} {value.words if isinstance(value, Service | Halt) else _format_setting(key, value)}"
                for key, value in changed.items()
                if value != type(model).model_fields[key].default and (name != "every consumer" or key != "service")
            ]
            if settings:
                described.append((name, ", ".join(settings)))
        described += [
            (key, _format_setting(key, getattr(self, key)))
            for key, field in type(self).model_fields.items()
            if key not in ("consumers", "others", "seed") and getattr(self, key) != field.default
        ]
        return tuple(described)

    @property
    def needs_recorded_times(self) -> bool:
        """Whether a consumer has the service times of the recorded ones."""
        return any(c.service.model == "recorded" for c in (self.consumers, *self.others.values()))
