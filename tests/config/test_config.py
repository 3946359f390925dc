"""The run file: every key documented, and what it may say."""

import re
from datetime import date
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel, ValidationError

from subreplay.config import run as config
from subreplay.config.dispatch import Consumers, Dispatch
from subreplay.config.fields import parse_duration
from subreplay.config.group_dispatch import GroupDispatch
from subreplay.config.kafka_names import OPTIONS
from subreplay.config.run import RunConfig
from subreplay.config.scenario import GroupScenario, Member, Scenario, ShareScenario
from subreplay.config.share_dispatch import ShareDispatch
from subreplay.errors import ConfigError
from subreplay.hashing.profiles import KEYLESS
from subreplay.semantics.policies import ASSIGNORS, POLICIES, REGISTRY, list_option_names, make_policy
from subreplay.simulation.pulsar.service_model import Fixed
from tests.support.run_files import run

CONF = Path(__file__).parents[2] / "conf"
DEFAULT = CONF / "default.yaml"
EXAMPLES = sorted((CONF / "examples").glob("*.yaml"))


# conf/default.yaml and the models say the same


def keys_of_model(model: type[BaseModel], prefix: str = "") -> set[str]:
    keys = set()
    for name, field in model.model_fields.items():
        nested = isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
        reported = field.alias or name
        keys |= keys_of_model(field.annotation, f"{prefix}{reported}.") if nested else {prefix + reported}
    return keys


def keys_of_mapping(raw: dict, prefix: str = "") -> set[str]:
    keys = set()
    for name, value in raw.items():
        keys |= keys_of_mapping(value, f"{prefix}{name}.") if isinstance(value, dict) and value else {prefix + name}
    return keys


def with_a_scenario() -> str:
    """default.yaml with the scenario that stands there as a comment."""
    text = DEFAULT.read_text(encoding="utf-8")
    block = text.split("scenarios: []\n")[1].split("\n\n")[0]
    uncommented = "\n".join(line.removeprefix("#") for line in block.splitlines())
    return text.replace(f"scenarios: []\n{block}", f"scenarios:\n{uncommented}")


def test_default_yaml_and_the_models_have_the_same_keys():
    assert keys_of_mapping(yaml.safe_load(DEFAULT.read_text(encoding="utf-8"))) == keys_of_model(RunConfig)


def test_default_yaml_loads_to_exactly_the_defaults():
    assert config.load(DEFAULT) == RunConfig()


def test_the_scenario_in_default_yaml_has_every_key_and_the_defaults():
    scenario, _, _ = yaml.safe_load(with_a_scenario())["scenarios"]
    assert set(scenario) == set(Scenario.model_fields)
    assert set(scenario["members"][0]) == set(Member.model_fields)
    required = {"name": scenario["name"], "policy": scenario["policy"]}
    assert keys_of_mapping(scenario["dispatch"]) == keys_of_model(Dispatch)
    assert Scenario.model_validate(scenario) == Scenario(
        **required, members=[Member(consumer="C1")], dispatch=Dispatch()
    )


def test_the_group_in_default_yaml_has_every_key_and_the_defaults():
    _, scenario, _ = yaml.safe_load(with_a_scenario())["scenarios"]
    assert set(scenario) == set(GroupScenario.model_fields)
    assert keys_of_mapping(scenario["dispatch"]) == keys_of_model(GroupDispatch)
    assert GroupScenario.model_validate(scenario) == GroupScenario(
        name=scenario["name"],
        policy=scenario["policy"],
        profile=scenario["profile"],
        members=[Member(consumer="C1")],
        dispatch=GroupDispatch(),
    )


def test_the_share_group_in_default_yaml_has_every_key_and_the_defaults():
    *_, scenario = yaml.safe_load(with_a_scenario())["scenarios"]
    assert set(scenario) == set(ShareScenario.model_fields)
    assert keys_of_mapping(scenario["dispatch"]) == keys_of_model(ShareDispatch)
    assert ShareScenario.model_validate(scenario) == ShareScenario(
        name=scenario["name"],
        policy=scenario["policy"],
        profile=scenario["profile"],
        members=[Member(consumer="C1")],
        dispatch=ShareDispatch(),
    )


@pytest.mark.parametrize(
    ("consumers", "message"),
    [
        ({"release_rate": 0.7, "reject_rate": 0.7, "share.acknowledgement.mode": "explicit"}, "1.4 together"),
        ({"release_rate": 0.1}, "implicit acknowledgement accepts every record"),
    ],
)
def test_rates_of_acknowledgements_must_be_possible(consumers, message):
    with pytest.raises(ValidationError, match=message):
        ShareDispatch.model_validate({"consumers": consumers})


def test_every_key_in_default_yaml_has_a_comment_above_it():
    lines = with_a_scenario().splitlines()
    keys = [(above, line) for above, line in pairwise(lines) if re.match(r"[ -]*[a-z_]+:", line)]
    assert len(keys) > 30
    assert [line for above, line in keys if "#" not in above] == []


def test_default_yaml_names_every_policy_profile_and_option():
    text = DEFAULT.read_text(encoding="utf-8")
    assert set(re.findall(r"#   ((?:pulsar|kafka)\.[a-z_.]+) ", text)) == set(REGISTRY)
    kafkas = {ours: name for name, ours in OPTIONS.items()}
    assert set(re.findall(r"#   ([a-z_.]+)  +(?:true|whole)", text)) == {
        kafkas.get(o, o) for name in REGISTRY for o in list_option_names(name)
    }
    assert all(profile in text for profile in KEYLESS)


# examples


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_loads_and_says_how_to_run_it(path):
    config.load(path)
    assert f"--config conf/examples/{path.name}" in path.read_text(encoding="utf-8")


def test_the_nightly_example_takes_its_day_from_the_command_line():
    daily_runs = CONF / "examples" / "nightly_audit.yaml"
    assert config.load(daily_runs).date is None
    assert config.load(daily_runs, date="2026-11-21").date == date(2026, 11, 21)


def test_the_what_if_example_has_every_policy_in_both_brokers():
    scenarios = config.load(CONF / "examples" / "what_if.yaml").scenarios
    compared = {(s.policy, s.profile) for s in scenarios}
    several = {policy.name for policy in POLICIES} - {"pulsar.exclusive", "pulsar.key_hash_range"}
    assert compared == {(policy, profile) for policy in several for profile in ("pulsar-3.2", "pulsar-4.0")}


def test_the_kafka_dispatch_example_has_every_kind_of_rebalance():
    scenarios = config.load(CONF / "examples" / "kafka_dispatch.yaml").scenarios
    assert {make_policy(s.policy, s.profile).rebalance for s in scenarios} == {"eager", "cooperative", "server"}
    assert all(isinstance(s, GroupScenario) and s.dispatch for s in scenarios)


def test_the_kafka_example_has_every_assignor():
    scenarios = config.load(CONF / "examples" / "kafka_assignors.yaml").scenarios
    assert {s.policy for s in scenarios} == {assignor.name for assignor in ASSIGNORS}


# what a run file may say


def test_a_run_file_names_only_what_it_changes(tmp_path):
    changed = run(tmp_path, "windows: {width: 5m}\ndate: 2026-11-21\n")
    assert changed == RunConfig(windows={"width": 300_000_000}, date=date(2026, 11, 21))


def test_an_empty_file_is_the_default_run(tmp_path):
    assert run(tmp_path, "") == RunConfig()


def test_overrides_win_and_leave_the_rest(tmp_path):
    text = "traffic: {path: here, format: parquet}\n"
    changed = run(tmp_path, text, **{"traffic.path": "there", "date": "2026-11-21", "output.tables": None})
    assert (changed.traffic.path, changed.traffic.format) == ("there", "parquet")
    assert (changed.date, changed.output) == (date(2026, 11, 21), RunConfig().output)


@pytest.mark.parametrize(
    ("text", "micros"),
    [("0s", 0), ("500ms", 500_000), ("10s", 10_000_000), ("2 m", 120_000_000), ("1.5h", 5_400_000_000),
     ("1d", 86_400_000_000), (250, 250), ("0.5ms", 500)],
)  # fmt: skip
def test_durations(text, micros):
    assert parse_duration(text) == micros


@pytest.mark.parametrize("text", ["", "10", "ten", "-5s", "5 weeks", "1e3s", "5S", True, 1.5, None, ["5s"]])
def test_what_is_no_duration(text):
    with pytest.raises(ValueError, match=r"write a number and one of ms, s, m, h, d, e\.g\. 10s"):
        parse_duration(text)


def test_anchors_share_members(tmp_path):
    text = """
scenarios:
  - {name: a, policy: pulsar.shared, members: &two [{consumer: x}, {consumer: y, join: 1s}]}
  - {name: b, policy: pulsar.failover, members: *two}
"""
    first, second = run(tmp_path, text).scenarios
    assert first.members == second.members == [Member(consumer="x"), Member(consumer="y", join=1_000_000)]


# the digest of a run


def test_the_digest_follows_what_decides_the_result(tmp_path):
    same = run(tmp_path, "output: {tables: elsewhere}\nspark: {master: 'local[8]'}\ntraffic: {path: copy}\n")
    assert same.digest == RunConfig().digest
    assert run(tmp_path, "windows: {width: 2s}").digest != RunConfig().digest
    assert run(tmp_path, "windows: {width: 2s}\nsubscription: {name: s}").judged == RunConfig().judged
    assert run(tmp_path, "topic: {ttl: 1h}").judged != RunConfig().judged
    assert run(tmp_path, "subscription: {profile: pulsar-3.2}").digest != RunConfig().digest


def test_a_group_of_invented_members_does_not_wait_for_more_unless_the_scenario_says_so():
    def delay(**section):
        policy = GroupScenario(name="s", policy="kafka.range", profile="kafka-4.0", **section).make_policy()
        return policy.initial_rebalance_delay_us

    members, option = [{"consumer": "c"}], "group.initial.rebalance.delay.ms"
    assert delay(members=members) == 0
    assert (
        delay(members=members, options={option: 2000}) == delay(members=members, dispatch={option: 2000}) == 2_000_000
    )
    assert delay() == 3_000_000


def test_an_application_may_hang_or_acknowledge_nothing_from_an_instant_on():
    halts = Consumers.model_validate({"no_ack": {"start": "1s"}, "hang": {"start": "2s", "end": "3s"}})
    model = halts.model(Fixed(), 10)
    assert (model.stuck_from, model.stuck_until) == (10 + 10**9, None)
    assert (model.hangs_from, model.hangs_until) == (10 + 2 * 10**9, 10 + 3 * 10**9)
    assert halts.halts == "takes no message from 2 s to 3 s and acknowledges no message from 1 s on"
    fails = Consumers.model_validate({"failure_rate": 0.5, "on_failure": "nothing"})
    assert fails.halts == "neither acknowledges a message that it fails to process nor requests its redelivery"
    assert not Consumers.model_validate({"failure_rate": 0.5}).halts
    assert not Consumers.model_validate({"failure_rate": 0.5, "on_failure": "nothing", "ack_timeout": "1s"}).halts
    assert Consumers.model_validate({"stuck": {"start": "1s"}}).no_ack == halts.no_ack  # its former name


def test_a_replay_of_a_group_knows_the_releases_that_it_says() -> None:
    old = GroupScenario(name="s", policy="kafka.range", profile="kafka-2.3", dispatch={})
    with pytest.raises(
        ConfigError,
        match=r"the simulation of a group \(dispatch\) has no profile 'kafka-2.3'. Valid profiles: kafka-4.0",
    ):
        old.make_policy()
    assert old.model_copy(update={"dispatch": None}).make_policy().profile == "kafka-2.3"


def test_durations_among_the_settings_of_a_replay_have_their_unit():
    consumers = {"ack_timeout": "1500ms", "nack_delay": "2s", "failure_rate": 0.5}
    words = dict(Dispatch.model_validate({"ttl": "5s", "persistent": False, "consumers": consumers}).words)
    assert (words["ttl"], words["persistent"]) == ("5 s", "false")
    assert words["every consumer"] == "failure_rate 0.5, nack_delay 2 s, ack_timeout 1.5 s"
