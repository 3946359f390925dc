"""Presets: scenarios to start from, each of which can be replayed."""

from __future__ import annotations

import pytest

from subreplay.cli.presets import PRESETS, apply_preset
from subreplay.config.run import parse
from subreplay.errors import ConfigError


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(
    ("policy", "profile"),
    [
        ("pulsar.key_shared.consistent_hash", "pulsar-4.0"),
        ("kafka.range", "kafka-4.0"),
        ("kafka.share", "kafka-4.4"),
    ],
)
def test_a_preset_gives_scenarios_that_differ_in_what_it_compares(preset: str, policy: str, profile: str) -> None:
    run = parse({"subscription": {"policy": policy, "profile": profile}}, "here")
    found = apply_preset(run, preset, 4).scenarios
    assert len({one.name for one in found}) == len(found) > 1
    seen = {"scale-out": lambda s: len(s.members), "upgrade": lambda s: s.profile}.get(preset, lambda s: s.policy)
    assert len({seen(one) for one in found}) == len(found)
    for one in found:
        one.make_policy()


def test_the_options_of_the_subscription_are_kept_where_its_profile_is() -> None:
    policy = {"policy": "pulsar.key_shared.consistent_hash", "options": {"points": 20}}
    run = apply_preset(parse({"subscription": policy}, "here"), "scale-out", 3)
    assert [len(one.members) for one in run.scenarios] == [3, 4, 5, 6]
    assert {one.options["points"] for one in run.scenarios} == {20}


def test_an_unknown_preset_is_reported_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match="did you mean scale-out"):
        apply_preset(parse({}, "here"), "scaleout", 4)
