"""Ready-made scenarios to start a what-if from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final

from subreplay.config.run import RunConfig, Subscription
from subreplay.config.scenario import get_scenario_kind
from subreplay.errors import ConfigError
from subreplay.hashing.profiles import KEYLESS, LATEST_PROFILES
from subreplay.semantics.policies import make_policy

Section = dict[str, Any]


def apply_preset(run: RunConfig, preset: str, consumers: int) -> RunConfig:
    """Replace the scenarios of a run by those of a preset with so many consumers; raises ``ConfigError``."""
    if preset not in PRESETS:
        near = get_close_matches(preset, PRESETS, n=1)
        hint = f"; did you mean {near[0]}" if near else ""
        raise ConfigError(f"--preset {preset}: there is no such preset. Choose one of {', '.join(PRESETS)}{hint}")
    sections = list(PRESETS[preset](run.subscription, consumers))
    if not sections:
        raise ConfigError(f"--preset {preset}: {run.subscription.policy} has nothing to compare with")
    found = [get_scenario_kind(one["policy"])(**one) for one in sections]
    return run.model_copy(update={"scenarios": found})


def _scale_out(own: Subscription, consumers: int) -> Iterator[Section]:
    """Yield the same policy with more consumers."""
    for many in dict.fromkeys((consumers, consumers + 1, -(-consumers * 3 // 2), consumers * 2)):
        yield _section(f"{many:,} consumers", own.policy, own.profile, many, own.options)


def _upgrade(own: Subscription, consumers: int) -> Iterator[Section]:
    """Yield the same policy under every profile that has it."""
    for profile in dict.fromkeys((own.profile, *KEYLESS)):
        try:
            make_policy(own.policy, profile)
        except ConfigError:
            continue
        yield _section(profile, own.policy, profile, consumers, own.options if profile == own.profile else {})


def _failover_or_key_shared(own: Subscription, consumers: int) -> Iterator[Section]:
    """Yield a subscription with one active consumer for each partition, and subscriptions with one for each key."""
    profile = own.profile if own.profile.startswith("pulsar") else LATEST_PROFILES["pulsar"]
    for name in ("pulsar.failover", "pulsar.key_shared.consistent_hash", "pulsar.key_shared.auto_split"):
        yield _section(name, name, profile, consumers, {})


def _assignors(own: Subscription, consumers: int) -> Iterator[Section]:
    """Yield every assignor of a Kafka group."""
    for name in ("range", "roundrobin", "sticky", "cooperative_sticky", "uniform", "server_range"):
        yield _section(f"kafka.{name}", f"kafka.{name}", LATEST_PROFILES["kafka"], consumers, {})


def _share_group(own: Subscription, consumers: int) -> Iterator[Section]:
    """Yield a consumer group and a share group with as many members."""
    yield _section("consumer group", "kafka.uniform", LATEST_PROFILES["kafka"], consumers, {})
    yield _section("share group", "kafka.share", LATEST_PROFILES["kafka"], consumers, {})


def _section(name: str, policy: str, profile: str, consumers: int, options: Mapping[str, Any]) -> Section:
    width = len(str(consumers))
    members = [{"consumer": f"c{number:0{width}}"} for number in range(1, consumers + 1)]
    return {"name": name, "policy": policy, "profile": profile, "options": dict(options), "members": members}


PRESETS: Final[Mapping[str, Callable[[Subscription, int], Iterator[Section]]]] = {
    "scale-out": _scale_out,
    "upgrade": _upgrade,
    "failover-or-key-shared": _failover_or_key_shared,
    "assignors": _assignors,
    "share-group": _share_group,
}
