"""Recordings of brokers whose limits stopped a consumer, a subscription, or the look-ahead of Key_Shared.

Cut after the limit was reached; without receipts of what came later.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from subreplay.cli.main import main
from subreplay.conformance.fidelity.dispatch_reenactment import reenact_dispatcher
from subreplay.conformance.fidelity.fidelity_measure import measure_fidelity
from subreplay.conformance.fidelity.recorded_dispatchers import find_recorded_profile, read_recorded_dispatchers
from subreplay.conformance.fidelity.replay_inputs import build_inputs
from subreplay.errors import ConfigError
from subreplay.simulation.pulsar.broker.dispatch_rules import DEFAULTS, MILLISECOND, parse_settings

ROOT = Path(__file__).parents[1] / "data" / "recordings-limits" / "4.2.4"
CONSUMER, SUBSCRIPTION, LOOK_AHEAD = (next(ROOT.glob(f"{name}_*")) for name in ("i3", "i4", "i10"))


def changed(folder, to, **settings):
    """The recording as if the broker had had other settings."""
    copied = to / folder.parent.name / folder.name
    shutil.copytree(folder, copied)
    scenario = json.loads((folder / "scenario.json").read_text())
    (copied / "scenario.json").write_text(json.dumps(scenario | {"broker_settings": settings}))
    return copied


@pytest.mark.parametrize("folder", [CONSUMER, SUBSCRIPTION, LOOK_AHEAD], ids=lambda f: f.name)
def test_under_the_broker_s_limits_every_entry_goes_to_the_consumer_it_went_to(folder):
    result = measure_fidelity(folder)

    assert result.compared >= 480
    assert result.same_consumer == result.same_order == result.same_count == 100


@pytest.mark.parametrize(("folder", "most"), [(CONSUMER, 90), (SUBSCRIPTION, 80)], ids=lambda v: getattr(v, "name", ""))
def test_without_them_somebody_else_gets_what_the_limit_kept_back(folder, most, tmp_path):
    assert measure_fidelity(changed(folder, tmp_path)).same_consumer < most


def blocked(folder):
    """How many messages each consumer holds unacknowledged when the re-enactment ends, and how many were handed out."""
    (recorded,) = read_recorded_dispatchers(folder, find_recorded_profile(folder))
    given = build_inputs(recorded)
    replayed = reenact_dispatcher(recorded, given)
    acked = np.unique(given.commands.ordinal[given.commands.kind == 1])
    held = replayed.consumer[~np.isin(replayed.ordinal, acked)]
    return {recorded.timeline.consumers[c].name: n for c, n in enumerate(np.bincount(held).tolist()) if n}, len(
        replayed
    )


def test_a_consumer_is_stopped_at_its_limit():
    found, _ = blocked(CONSUMER)
    assert found["s2"] == 60


def test_a_subscription_is_stopped_at_its_limit():
    found, handed = blocked(SUBSCRIPTION)
    assert found == {"batch-2": 118}  # the others held two more when it stopped
    assert handed == 534


def test_settings_have_the_names_and_units_of_broker_conf():
    reported = {
        "maxUnackedMessagesPerConsumer": 60,
        "keySharedUnblockingIntervalMs": 5,
        "isDelayedDeliveryDeliverAtTimeStrict": True,
    }
    settings = parse_settings(reported | {"managedLedgerMaxEntriesPerLedger": 3}, "pulsar-4.2")
    assert (settings.max_unacked_per_consumer, settings.unblocking_interval) == (60, 5 * MILLISECOND)
    assert settings.delay_strict
    assert parse_settings({}, "pulsar-5.0") == DEFAULTS["pulsar-5.0"] != parse_settings({}, "pulsar-4.2")


@pytest.mark.parametrize("value", [-1, "60", 1.5, True])
def test_a_setting_that_is_no_number_is_refused_with_its_file(value, tmp_path, capsys):
    with pytest.raises(ConfigError, match="maxUnackedMessagesPerConsumer must be a whole number of at least 0"):
        parse_settings({"maxUnackedMessagesPerConsumer": value}, "pulsar-5.0")
    folder = changed(CONSUMER, tmp_path, maxUnackedMessagesPerConsumer=value)
    assert main(["fidelity", str(folder)]) == 2
    assert "scenario.json: broker_settings: maxUnackedMessagesPerConsumer" in capsys.readouterr().err
