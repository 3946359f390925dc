"""Section ``dispatch`` of a scenario of a Kafka group: what its members and their clients are assumed to do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import AliasChoices, Field

from subreplay.config.dispatch import US, Halt, Service, halts_of
from subreplay.config.fields import INT_31, INT_63, Duration, Model, parse_duration
from subreplay.config.kafka_names import INITIAL_DELAY, OPTIONS, SESSION_TIMEOUT, Millis
from subreplay.rows.model.rows import Consumer
from subreplay.simulation.kafka.simulation_parameters import MemberModel, SimulationParameters
from subreplay.simulation.pulsar.service_model import Service as ServiceModel


class GroupConsumers(Model):
    """A member's application."""

    service: Service = Service()
    factor: Annotated[float, Field(gt=0, le=1_000_000)] = 1.0
    hang: Halt | None = Field(None, validation_alias=AliasChoices("hang", "stuck"))

    def model(self, recorded: ServiceModel, start: int) -> MemberModel:
        """For the kernel; ``start`` is the time (ns) of the first message."""
        hangs_from, hangs_until = (None, None) if self.hang is None else self.hang.span(start)
        return MemberModel(
            service=self.service.service(recorded),
            factor=self.factor,
            stuck_from=hangs_from,
            stuck_until=hangs_until,
        )

    @property
    def words(self) -> str:
        """What differs from the defaults, as a report names it."""
        told = [f"service {self.service.words}"] if self.service != Service() else []
        told += [f"factor {self.factor:g}"] if self.factor != 1 else []
        told += [self.halts] if self.halts else []
        return ", ".join(told)

    @property
    def halts(self) -> str:
        """How it stops to do its work, in words; empty where it does not."""
        return f"finishes no record {self.hang.words}" if self.hang else ""


class GroupDispatch(Model):
    """What is assumed of all members, of some by name, and of their clients' settings.

    The session timeout and the initial rebalance delay are options of the policy: ``None`` leaves them to it.
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
        """What is assumed of a member."""
        return self.others.get(member, self.consumers)

    def halts(self, members: Iterable[Consumer]) -> dict[str, str]:
        """See ``halts_of``."""
        return halts_of(self.of, members)

    @property
    def of_policy(self) -> dict[str, int]:
        """Options of the policy that are told here."""
        told = {OPTIONS[SESSION_TIMEOUT]: self.session_timeout, OPTIONS[INITIAL_DELAY]: self.initial_delay}
        return {name: value for name, value in told.items() if value is not None}

    def parameters(self, recorded: ServiceModel, start: int, interval: int) -> SimulationParameters:
        """For the kernel: ``recorded`` service times, the first message's time and the report windows' width (ns)."""
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
        """Whether anything is drawn at random."""
        return any(c.service.model in ("lognormal", "recorded") for c in (self.consumers, *self.others.values()))

    @property
    def words(self) -> tuple[tuple[str, str], ...]:
        """What is assumed besides service times, as a report names it."""
        common = self.consumers.model_copy(update={"service": Service()}).words
        said = [("every member", common)] if common else []
        said += [(name, model.words or "as the others") for name, model in sorted(self.others.items())]
        said.append(("a poll", f"at most {self.max_poll_records:,} records"))
        said.append(
            ("commits", f"every {self.commit_interval / 1e6:g} s" if self.commit_interval else "with every poll")
        )
        for key in ("max_poll_interval", "heartbeat_interval", "initial_delay", "rebalance_time"):
            declared = type(self).model_fields[key]
            if getattr(self, key) != declared.default:
                said.append((declared.alias or key.replace("_", " "), f"{getattr(self, key) / 1e6:g} s"))
        return tuple(said)

    @property
    def needs_recorded_times(self) -> bool:
        """Whether a member works as the recorded consumers did."""
        return any(c.service.model == "recorded" for c in (self.consumers, *self.others.values()))
