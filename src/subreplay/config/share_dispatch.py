"""Section ``dispatch`` of a scenario of a share group: assumptions about its members, their clients and the broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field, model_validator

from subreplay.config.dispatch import US, Service, describe_halts
from subreplay.config.fields import INT_31, INT_63, Model, parse_duration
from subreplay.config.group_dispatch import MemberApplication
from subreplay.config.kafka_names import Millis
from subreplay.rows.model.rows import Consumer
from subreplay.semantics.policies.kafka.share import ShareGroupPolicy
from subreplay.simulation.kafka.share.share_parameters import ShareMemberModel, ShareParameters
from subreplay.simulation.kafka.share.share_window import ShareSettings
from subreplay.simulation.pulsar.service_model import Service as ServiceModel

Rate = Annotated[float, Field(ge=0, le=1)]


class ShareConsumers(MemberApplication):
    """A member's application. It releases, rejects or renews a fraction of its deliveries, and accepts the others."""

    acknowledgement: Literal["implicit", "explicit"] = Field("implicit", alias="share.acknowledgement.mode")
    release_rate: Rate = 0.0
    reject_rate: Rate = 0.0
    renew_rate: Rate = 0.0

    @model_validator(mode="after")
    def _check_rates(self) -> ShareConsumers:
        whole = self.release_rate + self.reject_rate + self.renew_rate
        if whole > 1:
            raise ValueError(f"release_rate, reject_rate and renew_rate are {whole:g} together; at most 1 is possible")
        if whole and self.acknowledgement == "implicit":
            raise ValueError(
                "implicit acknowledgement accepts every record; set share.acknowledgement.mode: explicit, or remove "
                "the rates"
            )
        return self

    def model(self, recorded: ServiceModel, start: int) -> ShareMemberModel:
        """Return the model for the kernel; ``start`` is the time (ns) of the first message."""
        hangs_from, hangs_until = (None, None) if self.hang is None else self.hang.span(start)
        return ShareMemberModel(
            service=self.service.service(recorded),
            factor=self.factor,
            stuck_from=hangs_from,
            stuck_until=hangs_until,
            explicit=self.acknowledgement == "explicit",
            commits=self.acknowledgement == "explicit",
            release_rate=self.release_rate,
            reject_rate=self.reject_rate,
            renew_rate=self.renew_rate,
        )

    def list_further_words(self) -> list[str]:
        rates = (("releases", self.release_rate), ("rejects", self.reject_rate), ("renews", self.renew_rate))
        return [f"{verb} {100 * rate:g} % of its deliveries" for verb, rate in rates if rate]


class ShareDispatch(Model):
    """Assumptions about all members, about some by name, and about their group.

    The duration of locks, the delivery limit and the limit of locks are options of the policy.
    """

    consumers: ShareConsumers = ShareConsumers()
    others: dict[str, ShareConsumers] = Field(default_factory=dict)
    max_poll_records: Annotated[int, Field(ge=1, le=INT_31)] = Field(500, alias="max.poll.records")
    acquire_mode: Literal["batch_optimized", "record_limit"] = Field("batch_optimized", alias="share.acquire.mode")
    heartbeat_interval: Annotated[Millis, Field(ge=1)] = Field(
        parse_duration("5s"), alias="group.share.heartbeat.interval.ms"
    )
    assignment_interval: Millis = Field(parse_duration("1s"), alias="group.share.assignment.interval.ms")
    seed: Annotated[int, Field(ge=0, le=INT_63)] = 0

    def of(self, member: str) -> ShareConsumers:
        """Return the assumptions about a member."""
        return self.others.get(member, self.consumers)

    def halts(self, members: Iterable[Consumer]) -> dict[str, str]:
        """Describe how applications stop working, see ``describe_halts``."""
        return describe_halts(self.of, members)

    def parameters(
        self, policy: ShareGroupPolicy, recorded: ServiceModel, start: int, interval: int
    ) -> ShareParameters:
        """Return the kernel's parameters from the policy, ``recorded`` service times, first message and window width
        (ns)."""
        return ShareParameters(
            member=self.consumers.model(recorded, start),
            others={name: model.model(recorded, start) for name, model in self.others.items()},
            settings=ShareSettings(
                lock_duration=policy.lock_duration_us * US,
                max_locks=policy.max_locks,
                delivery_limit=policy.delivery_limit,
                record_limit=self.acquire_mode == "record_limit",
            ),
            max_poll_records=self.max_poll_records,
            heartbeat_interval=self.heartbeat_interval * US,
            assignment_interval=self.assignment_interval * US,
            seed=self.seed,
            interval=interval,
        )

    @property
    def draws(self) -> bool:
        """Whether the simulation draws random numbers."""
        every = (self.consumers, *self.others.values())
        is_random = any(one.service.model in ("lognormal", "recorded") for one in every)
        return is_random or any(one.release_rate + one.reject_rate + one.renew_rate > 0 for one in every)

    @property
    def words(self) -> tuple[tuple[str, str], ...]:
        """The assumptions except service times, as a report describes them."""
        common = self.consumers.model_copy(update={"service": Service()}).words
        described = [("every member", common)] if common else []
        described += [(name, model.words or "as the others") for name, model in sorted(self.others.items())]
        described.append(("a poll", f"at most {self.max_poll_records:,} records"))
        described.append(("acquisition", self.acquire_mode.replace("_", " ")))
        for key in ("heartbeat_interval", "assignment_interval"):
            declared = type(self).model_fields[key]
            if getattr(self, key) != declared.default:
                described.append((declared.alias or key, f"{getattr(self, key) / 1e6:g} s"))
        return tuple(described)

    @property
    def needs_recorded_times(self) -> bool:
        """Whether a member has the service times of the recorded consumers."""
        return any(c.service.model == "recorded" for c in (self.consumers, *self.others.values()))
