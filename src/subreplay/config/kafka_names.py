"""Settings of Kafka under Kafka's names and in its units: numbers are ms, or durations have a unit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BeforeValidator

from subreplay.config.fields import parse_duration
from subreplay.errors import ConfigError
from subreplay.semantics.policies import REGISTRY, list_option_names

SESSION_TIMEOUT: Final = "session.timeout.ms"
INITIAL_DELAY: Final = "group.initial.rebalance.delay.ms"
OPTIONS: Final = {SESSION_TIMEOUT: "session_timeout_us", INITIAL_DELAY: "initial_rebalance_delay_us"}
"""Options of the assignors by Kafka's names of them."""


def parse_millis(value: Any) -> int:
    """A duration in µs; a number is of ms. Raises ``ValueError`` as ``parse_duration``."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return parse_duration(f"{value}ms") if value >= 0 else parse_duration(int(value))
    return parse_duration(f"{value}ms" if str(value).strip().isdecimal() else value)


Millis = Annotated[int, BeforeValidator(parse_millis)]


def policy_options(policy: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a policy as it is made with, from those of a run file. Raises ``ConfigError`` where one of an
    assignor is not known, is no duration, or is called otherwise by Kafka."""
    if policy not in REGISTRY or not policy.startswith("kafka."):
        return dict(options)
    kafkas = {ours: name for name, ours in OPTIONS.items()}
    legal = {kafkas.get(name, name): name for name in list_option_names(policy)}
    told = {}
    for name, value in options.items():
        if name in kafkas:
            raise ConfigError(f"{policy}: option {name!r} is named {kafkas[name]} here, in ms or with a unit")
        if name not in legal:
            raise ConfigError(f"{policy} has no option {name!r}; its options: {', '.join(legal)}")
        try:
            told[legal[name]] = parse_millis(value) if name in OPTIONS else value
        except ValueError as error:
            raise ConfigError(f"{policy}: {name}: {error}") from error
    return told
