"""Kafka's settings under Kafka's names: numbers are ms, other durations have a unit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, WithJsonSchema

from subreplay.config.fields import DURATION_FORMAT, DURATION_PATTERN, parse_duration
from subreplay.errors import ConfigError
from subreplay.semantics.policies import REGISTRY, list_option_names

SESSION_TIMEOUT: Final = "session.timeout.ms"
INITIAL_DELAY: Final = "group.initial.rebalance.delay.ms"
ASSIGNMENT_INTERVAL: Final = "group.consumer.assignment.interval.ms"
DURATIONS: Final = {
    SESSION_TIMEOUT: "session_timeout_us",
    INITIAL_DELAY: "initial_rebalance_delay_us",
    ASSIGNMENT_INTERVAL: "assignment_interval_us",
    "group.share.record.lock.duration.ms": "lock_duration_us",
}
OPTIONS: Final = {
    **DURATIONS,
    "group.share.delivery.count.limit": "delivery_limit",
    "group.share.partition.max.record.locks": "max_locks",
}
"""The option of an assignor or of a share group by Kafka's name for it."""


def parse_millis(value: Any) -> int:
    """Convert a duration to µs; a plain number counts as ms. Raises ``ValueError`` as ``parse_duration`` does."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return parse_duration(f"{value}ms") if value >= 0 else parse_duration(int(value))
    return parse_duration(f"{value}ms" if str(value).strip().isdecimal() else value)


Millis = Annotated[
    int,
    BeforeValidator(parse_millis),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": rf"{DURATION_PATTERN}|^\s*\d+\s*$"},
                {"type": "number", "minimum": 0},
            ],
            "format": DURATION_FORMAT,
        }
    ),
]


def translate_policy_options(policy: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Translate the options of a run file to those of a policy.

    Raises ``ConfigError`` if an option is unknown, has another name in Kafka, or should be a duration and is none.
    """
    if policy not in REGISTRY or not policy.startswith("kafka."):
        return dict(options)
    kafka_names = {option: name for name, option in OPTIONS.items()}
    legal = {kafka_names.get(name, name): name for name in list_option_names(policy)}
    translated = {}
    for name, value in options.items():
        if name in kafka_names:
            unit = ", in ms or with a unit" if kafka_names[name] in DURATIONS else ""
            raise ConfigError(f"{policy}: write option {name!r} as {kafka_names[name]}{unit}")
        if name not in legal:
            raise ConfigError(f"{policy} has no option {name!r}; its options: {', '.join(legal)}")
        try:
            translated[legal[name]] = parse_millis(value) if name in DURATIONS else value
        except ValueError as error:
            raise ConfigError(f"{policy}: {name}: {error}") from error
    return translated
