"""What the page edits: scenarios, windows and planning settings, as sections of a run file.

A state is a mapping with the sections ``scenarios``, ``windows`` and ``plan`` of a run file. Together with the run that
the studio was started with it is a complete run file. Limits keep the work of one request small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pprint import pformat
from typing import Any, Final

import yaml

from subreplay.config.run import RunConfig, parse
from subreplay.config.scenario import AnyScenario, Member
from subreplay.errors import ConfigError

MOST_SETUPS: Final = 6
MOST_CONSUMERS: Final = 1_000
MOST_POINTS: Final = 200_000
"""Points of a hash ring: those of one consumer, times consumers."""
MOST_CHANGES: Final = 2_000
"""Joins, leaves, crashes and returns of a set-up."""
MOST_PARTITIONS: Final = 10_000
SECTIONS: Final = ("scenarios", "windows", "plan")
_POINTS: Final = 100  # of a consumer, unless options set them


@dataclass(frozen=True)
class StudioRun:
    """The run that the studio was started with: its sections as written, and where they are from.

    ``sections`` is what a run file contains; ``source`` names it in messages.
    """

    sections: Mapping[str, Any]
    source: str

    def parse(self, state: Mapping[str, Any], **overrides: Any) -> RunConfig:
        """Return the run with a state, or without one. ``overrides`` are those of ``config.run.load``.

        Raises ``ConfigError`` for wrong sections, or if a limit is exceeded.
        """
        unknown = [name for name in state if name not in SECTIONS]
        if unknown:
            raise ConfigError(f"the state has no section {unknown[0]!r}; it has {', '.join(SECTIONS)}")
        config = parse({**self.sections, **state}, self.source, None, **{"keys.show": False, **overrides})
        if state:
            _check_limits(config.scenarios)
        return config

    def write_run_file(self, state: Mapping[str, Any]) -> str:
        """Return the run file of a state, for ``subreplay whatif --config``. It contains no secret in plain text."""
        self.parse(state)
        merged = self._merge(state)
        notes = "" if self._has_messages else "# Add the messages of the profile: traffic.messages or traffic.path.\n"
        text: str = yaml.safe_dump(merged, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)
        return f"# Written by subreplay studio\n{notes}{text}"

    def write_python(self, state: Mapping[str, Any]) -> str:
        """Return a program that evaluates the scenarios of a state with ``subreplay.TrafficProfile``.

        Raises ``ConfigError`` if the run names no messages.
        """
        self.parse(state)
        if not self._has_messages:
            raise ConfigError("A program needs the messages. Start the studio with --config or --messages.")
        merged = self._merge(state)
        traffic = dict(merged.get("traffic", {}))
        tables = {name: traffic.pop(name) for name in ("messages", "membership") if name in traffic}
        if folder := traffic.pop("path", None):
            form = {"format": traffic["format"]} if "format" in traffic else {}
            tables = {name: {"path": f"{folder}/{name}", **form} for name in ("messages",)} | tables
        others = ("subscription", "topic", "windows", "keys", "date")
        arguments = tables | {name: merged[name] for name in others if name in merged}
        if traffic := {name: value for name, value in traffic.items() if name == "profile"}:
            arguments["traffic"] = traffic
        lines = [f"    {name}={pformat(value, width=110, sort_dicts=False)}," for name, value in arguments.items()]
        scenarios = pformat(merged["scenarios"], width=116, sort_dicts=False)
        return "\n".join(
            [
                "import subreplay",
                "",
                "profile = subreplay.TrafficProfile.load(",
                *lines,
                ")",
                f"scenarios = {scenarios}",
                "for scenario in scenarios:",
                "    found = profile.evaluate(scenario).figures",
                '    print(f"{found.name}: busiest consumer {found.max_share:.1%}, skew {found.skew:.2f}")',
                "",
            ]
        )

    @property
    def _has_messages(self) -> bool:
        traffic = self.sections.get("traffic") or {}
        return bool(traffic.get("messages") or traffic.get("path"))

    def _merge(self, state: Mapping[str, Any]) -> dict[str, Any]:
        merged = {**self.sections, **{name: value for name, value in state.items() if value}}
        keys = merged.get("keys")
        if isinstance(keys, Mapping) and isinstance(keys.get("secret"), str):
            merged["keys"] = {name: value for name, value in keys.items() if name != "secret"}
        return {name: value for name, value in merged.items() if value not in ({}, None)}


def _check_limits(scenarios: Sequence[AnyScenario]) -> None:
    """Raise ``ConfigError`` if a state would take too much work."""
    if not 1 <= len(scenarios) <= MOST_SETUPS:
        raise ConfigError(f"scenarios: there are {len(scenarios):,} set-ups. The studio compares 1 to {MOST_SETUPS}.")
    for scenario in scenarios:
        if (scenario.partitions or 0) > MOST_PARTITIONS:
            raise ConfigError(
                f"{scenario.name}: {scenario.partitions:,} partitions. The studio allows {MOST_PARTITIONS:,}."
            )
        members = [member for member in scenario.members if isinstance(member, Member)]
        if len(members) > MOST_CONSUMERS:
            raise ConfigError(f"{scenario.name}: {len(members):,} consumers. The studio allows {MOST_CONSUMERS:,}.")
        points = scenario.options.get("points", _POINTS)
        if isinstance(points, int) and points * len(members) > MOST_POINTS:
            raise ConfigError(
                f"{scenario.name}: {points * len(members):,} points of the hash ring. The studio allows "
                f"{MOST_POINTS:,}; set fewer points or consumers."
            )
        changes = sum(map(_count_changes, members))
        if changes > MOST_CHANGES:
            raise ConfigError(f"{scenario.name}: {changes:,} membership changes. The studio allows {MOST_CHANGES:,}.")


def _count_changes(member: Member) -> int:
    times = (member.join or None, member.leave, member.crash, member.restart)
    return sum(time is not None for time in times)
