"""Section ``dispatch`` of a scenario of a Kafka group: assumptions about its members and their clients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import AliasChoices, Field

from subreplay.config.dispatch import US, Halt, Service, describe_halts
from subreplay.config.fields import INT_31, INT_63, Duration, Model, parse_duration
from subreplay.config.kafka_names import INITIAL_DELAY, OPTIONS, SESSION_TIMEOUT, Millis
from subreplay.rows.model.rows import Consumer
from subreplay.simulation.kafka.simulation_parameters import MemberModel, SimulationParameters
from subreplay.simulation.pulsar.service_model import Service as ServiceModel


class MemberApplication(Model):
    """The application of a member of a consumer group or a share group."""

    service: Service = Service()
    factor: Annotated[float, Field(gt=0, le=1_000_000)] = 1.0
    hang: Halt | None = None

    @property
    def words(self) -> str:
        """The assumptions that differ from the defaults, as a report describes them."""
        settings = [f"service {self.service.words}"] if self.service != Service() else []
        settings += [f"factor {self.factor:g}"] if self.factor != 1 else []
        return ", ".join([*settings, *self.list_further_words(), *([self.halts] if self.halts else [])])

    def list_further_words(self) -> list[str]:
        """List what else differs from the defaults."""
        return []

    @property
    def halts(self) -> str:
        """How the application stops working, as a report describes it; empty if it does not stop."""
        return f"finishes no record {self.hang.words}" if self.hang else ""


class GroupConsumers(MemberApplication):
    """The application of a member of a consumer group."""

    hang: Halt | None = Field(None, validation_alias=AliasChoices("hang", "stuck"))

    def model(self, recorded: ServiceModel, start: int) -> MemberModel:
        """Return the model for the kernel; ``start`` is the time (ns) of the first message."""
        hangs_from, hangs_until = (None, None) if self.hang is None else self.hang.span(start)
        return MemberModel(
            service=self.service.service(recorded),
            factor=self.factor,
            stuck_from=hangs_from,
            stuck_until=hangs_until,
        )


class GroupDispatch(Model):
    """Assumptions about all members, about some by name, and about the settings of their clients.

    The session timeout and the initial rebalance delay are options of the policy; ``None`` uses the policy's value.
    """

    consumers: GroupConsumers = GroupConsumers()
    others: dict[str, GroupConsumers] = Field(default_factory=dict)
    max_poll_records: Annotated[int, Field(ge=1, le=INT_31)] = Field(500, alias="max.poll.records")
    max_poll_interval: Annotated[Millis, Field(ge=1)] = Field(parse_duration("5m"), alias="max.poll.interval.ms")
    commit_interval: Millis = Field(parse_duration("5s"), alias="auto.commit.interval.ms")
    heartbeat_interval: Annotated[Millis, Field(ge=1)] | None = Field(None, alias="heartbeat.interval.ms")
    session_timeout: Millis | None = Field(None, alias=SESSION_TIMEOUT)
    initial_delay: Millis | None = Field(None, alias=INITIAL_DELAY)
    rebalance_time: Duration = 0
    seed: Annotated[int, Field(ge=0, le=INT_63)] = 0

    def of(self, member: str) -> GroupConsumers:
        """Return the assumptions about a member."""
        return self.others.get(member, self.consumers)

    def halts(self, members: Iterable[Consumer]) -> dict[str, str]:
        """Describe how applications stop working, see ``describe_halts``."""
        return describe_halts(self.of, members)

    @property
    def policy_settings(self) -> dict[str, int]:
        """The options of the policy that this section sets."""
        settings = {OPTIONS[SESSION_TIMEOUT]: self.session_timeout, OPTIONS[INITIAL_DELAY]: self.initial_delay}
        return {name: value for name, value in settings.items() if value is not None}

    def parameters(self, recorded: ServiceModel, start: int, interval: int) -> SimulationParameters:
        """Return the kernel's parameters from ``recorded`` service times, first message and window width (ns)."""
        return SimulationParameters(
            member=self.consumers.model(recorded, start),
            others={name: model.model(recorded, start) for name, model in self.others.items()},
            max_poll_records=self.max_poll_records,
            max_poll_interval=self.max_poll_interval * US,
            commit_interval=self.commit_interval * US,
            heartbeat_interval=None if self.heartbeat_interval is None else self.heartbeat_interval * US,
            rebalance_time=self.rebalance_time * US,
            seed=self.seed,
            interval=interval,
        )

    @property
    def draws(self) -> bool:
        """Whether the simulation draws random numbers."""
        return any(c.service.model in ("lognormal", "recorded") for c in (self.consumers, *self.others.values()))

    @property
    def words(self) -> tuple[tuple[str, str], ...]:
        """The assumptions except service times, as a report describes them."""
        common = self.consumers.model_copy(update={"service": Service()}).words
        described = [("every member", common)] if common else []
        described += [(name, model.words or "as the others") for name, model in sorted(self.others.items())]
        described.append(("a poll", f"at most {self.max_poll_records:,} records"))
        described.append(
            ("commits", f"every {self.commit_interval / 1e6:g} s" if self.commit_interval else "with every poll")
        )
        for key in ("max_poll_interval", "heartbeat_interval", "initial_delay", "rebalance_time"):
            declared = type(self).model_fields[key]
            if getattr(self, key) != declared.default:
                described.append((declared.alias or key.replace("_", " "), f"{getattr(self, key) / 1e6:g} s"))
        return tuple(described)

    @property
    def needs_recorded_times(self) -> bool:
        """Whether a member has the service times of the recorded consumers."""
        return any(c.service.model == "recorded" for c in (self.consumers, *self.others.values()))
