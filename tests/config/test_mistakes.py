"""What a run file may not say: every mistake named with file, key and remedy, nothing evaluated."""

import pytest

from subreplay.config import run as config
from subreplay.errors import ConfigError, InputError
from tests.support.run_files import complaint, run


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("subscripton: {name: a}", "unknown key subscripton; did you mean 'subscription'?"),
        ("subscription: {polcy: a}", "unknown key subscription.polcy; did you mean 'policy'?"),
        ("windows: {zzz: 1}", "unknown key windows.zzz; legal keys: width, slide"),
        ("scenarios: [{name: a, policy: p, profle: b}]", "unknown key scenarios.0.profle; did you mean 'profile'?"),
        (
            "scenarios: [{name: a, policy: pulsar.shared, members: [{consumer: a}, {consumer: b, prioriy: 1}]}]",
            "unknown key scenarios.0.members.1.prioriy; did you mean 'priority'?",
        ),
    ],
)  # fmt: skip
def test_an_unknown_key_is_an_error_with_a_hint(tmp_path, text, message):
    assert complaint(tmp_path, text) == f"run.yaml:1: {message}"


KAFKA = "scenarios: [{name: a, policy: kafka.range, profile: kafka-4.0, dispatch: %s}]"
PULSAR = "scenarios: [{name: a, policy: pulsar.shared, dispatch: %s}]"
OTHERS_KEYS = """
KAFKA  | {ttl: 1s}                         | unknown key %s.ttl; only scenarios of pulsar.* policies have it
KAFKA  | {consumers: {nack_delay: 1s}}     | unknown key %s.consumers.nack_delay; only scenarios of pulsar.* policies
KAFKA  | {others: {x: {ack_timeout: 1s}}}  | unknown key %s.others.x.ack_timeout; only scenarios of pulsar.* policies
PULSAR | {max.poll.records: 9}             | unknown key %s.max.poll.records; only scenarios of kafka.* policies have it
KAFKA  | {max.pol.records: 9}              | unknown key %s.max.pol.records; did you mean 'max.poll.records'?
KAFKA  | {max.poll.records: 0}             | %s.max.poll.records: must be at least 1 (found: 0)
KAFKA  | {max_poll_records: 9}             | unknown key %s.max_poll_records; its name is 'max.poll.records'
KAFKA  | {commit_interval: 1s}             | unknown key %s.commit_interval; its name is 'auto.commit.interval.ms'
KAFKA  | {heartbeat.interval.ms: soon}     | %s.heartbeat.interval.ms: not a duration
"""


@pytest.mark.parametrize("line", OTHERS_KEYS.strip().splitlines())
def test_a_key_of_the_other_kind_of_policy_is_an_error_that_says_so(tmp_path, line):
    kind, section, message = (part.strip() for part in line.split(" | "))
    said = complaint(tmp_path, {"KAFKA": KAFKA, "PULSAR": PULSAR}[kind] % section)
    assert said.startswith(f"run.yaml:1: {message}" % "scenarios.0.dispatch")


@pytest.mark.parametrize("reported", ["2000", "2s", "'2000'", "2000ms"])
def test_settings_of_kafka_have_its_names_and_ms_or_a_unit(tmp_path, reported):
    options = f"options: {{session.timeout.ms: {reported}}}"
    found = run(tmp_path, f"{KAFKA[:-2] % f'{{max.poll.interval.ms: {reported}}}'}, {options}}}]").scenarios[0]

    assert found.dispatch.max_poll_interval == found.make_policy().session_timeout_us == 2_000_000


def test_a_session_timeout_is_set_once_as_an_option_or_in_the_dispatch(tmp_path):
    found = run(tmp_path, KAFKA % "{session.timeout.ms: 7s, group.initial.rebalance.delay.ms: 0}").scenarios[0]
    twice = KAFKA[:-2] % "{session.timeout.ms: 7s}" + ", options: {session.timeout.ms: 8s}}]"

    assert (found.make_policy().session_timeout_us, found.make_policy().initial_rebalance_delay_us) == (7_000_000, 0)
    assert "session.timeout.ms appears in options and in dispatch; set it once" in complaint(tmp_path, twice)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("session_timeout_us: 1", "write option 'session_timeout_us' as session.timeout.ms, in ms or with a unit"),
        ("points: 1", "kafka.range has no option 'points'; its options: session.timeout.ms, group.initial"),
        ("session.timeout.ms: soon", "kafka.range: session.timeout.ms: not a duration"),
        ("session.timeout.ms: -1", "kafka.range: session.timeout.ms: a duration is from 0s"),
    ],
)
def test_options_of_assignors_have_kafkas_names(tmp_path, option, message):
    text = f"subscription: {{policy: kafka.range, profile: kafka-4.0, options: {{{option}}}}}"
    assert message in complaint(tmp_path, text)


MEMBER = "scenarios: [{name: a, policy: pulsar.shared, members: [{consumer: c, %s}]}]"


@pytest.mark.parametrize(
    ("member", "message"),
    [
        ("leave: 1s, crash: 2s", "c leaves and crashes; keep one of the two"),
        ("join: 2s, crash: 1s", "c crashes before it joins"),
        ("restart: 1s", "c restarts but neither leaves nor crashes; set leave or crash"),
    ],
)
def test_a_member_ends_in_one_way_and_restarts_after_that(tmp_path, member, message):
    assert f"scenarios.0.members.0: {message}" in complaint(tmp_path, MEMBER % member)


WRONG_VALUES = """
traffic: {format: csv}         | traffic.format: must be 'delta' or 'parquet' (found: 'csv')
traffic: {lookback_days: -1}   | traffic.lookback_days: must be at least 0 (found: -1)
traffic: here                  | traffic: must be a section of keys: path, format, messages, membership
keys: {show: maybe}            | keys.show: must be true or false (found: 'maybe')
report: {worst: 0}             | report.worst: must be at least 1 (found: 0)
spark: {conf: {a: 1}}          | spark.conf.a: must be a text; put it into quotes (found: 1)
windows: {width: soon}         | windows.width: not a duration; write a number and one of ms, s, m, h, d
windows: {width: 0s}           | windows: width must be at least 1ms
windows: {width: 1}            | windows.width: not a duration; write a number and one of ms, s, m, h, d
windows: {width: 1ms, slide: 0.5ms} | windows: slide must be at least 1ms
windows: {slide: 300ms}        | windows: slide must divide width: each window is a whole number of slides
windows: {slide: 0s}           | windows: slide must divide width: each window is a whole number of slides
windows: {width: 1d, slide: 1s} | windows: slide must be at least a 1,440th of width: so often everything is counted
windows: {width: 40000d}       | windows.width: a duration is from 0s to 36525d, a century (found: '40000d')
topic: {ttl: -1}               | topic.ttl: not a duration; write a number and one of ms, s, m, h, d
traffic: {lookback_days: 999999999} | traffic.lookback_days: must be at most 3650
traffic: {path: ""}            | traffic.path: not a folder; write a path of printable characters (found: '')
output: {tables: "a\\0b"}       | output.tables: not a folder; write a path of printable characters
spark: {driver_memory: lots}   | spark.driver_memory: not a size of memory; write a whole number and one of
date: yesterday                | date: not a day; write YYYY-MM-DD (found: 'yesterday')
date: 20261121                 | date: not a day; write YYYY-MM-DD (found: 20261121)
date: 2026-11-21 10:00:00      | date: not a day; write YYYY-MM-DD
date: 9999-12-31               | date: a day is from 1970-01-01 to 2149-12-31
scenarios: [{name: a}]         | scenarios.0.policy is required
scenarios: [{name: a, policy: pulsar.shared, members: all}] | scenarios.0.members: must be recorded, or a list
scenarios: [{name: a, policy: pulsar.shared, members: []}]  | scenarios.0.members: must not be empty
scenarios: [{name: a, policy: pulsar.shared, members: [{consumer: c, join: 5s, leave: 5s}]}] | scenarios.0.members.0: c
"""


@pytest.mark.parametrize("line", WRONG_VALUES.strip().splitlines())
def test_a_wrong_value_names_file_key_and_value(tmp_path, line):
    text, _, message = line.partition(" | ")
    said = complaint(tmp_path, text)
    assert said.startswith(f"run.yaml:1: {message}")
    assert "\n" not in said


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a list", "a run is a mapping of keys, not list"),
        ("1: 2", "1: a key must be a word (found: 1)"),
    ],
)
def test_what_is_no_run_at_all_has_no_line(tmp_path, text, message):
    assert complaint(tmp_path, text) == f"run.yaml: {message}"


def test_every_mistake_is_named_at_once(tmp_path):
    said = complaint(tmp_path, "traffic: {format: csv}\nwindow: {}\n").splitlines()
    assert len(said) == 2
    assert [line[:12] for line in said] == ["run.yaml:1: ", "run.yaml:2: "]


def test_scenario_names_must_differ(tmp_path):
    text = "scenarios: [{name: a, policy: pulsar.shared}, {name: a, policy: pulsar.failover}]"
    assert complaint(tmp_path, text) == "run.yaml: scenario names must differ; twice: a"


def test_a_scenario_is_not_named_as_the_recorded_subscription_is(tmp_path):
    text = "scenarios: [{name: as recorded, policy: pulsar.shared, members: recorded}]"
    assert complaint(tmp_path, text).endswith("is that of the recorded subscription itself; choose another")


WRONG_POLICIES = """
policy: pulsar.key_shared.autosplit         | unknown policy 'pulsar.key_shared.autosplit'. Use one of
policy: pulsar.shared, profile: pulsar-9    | pulsar.shared has no profile 'pulsar-9'. Valid profiles
policy: pulsar.shared, options: {points: 5} | pulsar.shared has no option 'points'. Valid options: none
options: {points: many}                     | pulsar.key_shared.consistent_hash: points must be of type int, got 'many'
policy: pulsar.key_shared.auto_split, options: {range_size: 1000} | pulsar.key_shared.auto_split: range size must be
policy: pulsar.failover, profile: pulsar-3.2, options: {consistent_hashing: true} | pulsar.failover: profile
"""


@pytest.mark.parametrize("line", WRONG_POLICIES.strip().splitlines())
def test_a_wrong_policy_profile_or_option_is_found_at_load_and_says_where(tmp_path, line):
    part, _, message = (side.strip() for side in line.partition(" | "))
    assert complaint(tmp_path, f"subscription: {{{part}}}").startswith(f"run.yaml:1: subscription: {message}")
    if part.startswith("policy"):
        scenarios = f"scenarios: [{{name: fine, policy: pulsar.shared}}, {{name: wrong, {part}}}]"
        assert complaint(tmp_path, scenarios).startswith(f"run.yaml:1: scenarios.1: {message}")


def test_a_wrong_section_is_named_even_under_an_override(tmp_path):
    said = complaint(tmp_path, "traffic: here", **{"traffic.path": "there"})
    assert said.startswith("run.yaml:1: traffic: must be a section of keys: path, format")
    assert said.endswith("(found: 'here')")


@pytest.mark.parametrize("line", ["traffic: [", "999: d", "9" * 400, "9" * 5000, "1e400"])
@pytest.mark.parametrize("unit", ["d", ""])
def test_a_number_of_any_length_is_only_too_long(tmp_path, line, unit):
    assert complaint(tmp_path, f"windows: {{width: {line}{unit}}}").startswith("run.yaml:1: ")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("date", "2026-02-30", "--date '2026-02-30': day is out of range for month"),
        ("date", "21.11.2026", "--date '21.11.2026': not a day; write YYYY-MM-DD"),
        ("date", "9999-12-31", "--date '9999-12-31': a day is from 1970-01-01 to 2149-12-31"),
        ("traffic.path", "", "--tables '': not a folder; write a path of printable characters"),
        ("output.tables", "\0/tables", "--out '\\x00/tables': not a folder; write a path of printable characters"),
    ],
)
def test_an_option_is_blamed_for_its_own_value(tmp_path, key, value, message):
    assert complaint(tmp_path, "", **{key: value}) == message


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.yaml: cannot be read: No such file or directory"):
        config.load(tmp_path / "nowhere.yaml")


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        config.load(tmp_path)


@pytest.mark.parametrize("text", ["a: [", "a: b: c", "\tx: 1", "date: 2026-13-45", "a: \x00"])
def test_what_is_not_yaml_is_an_error(tmp_path, text):
    assert complaint(tmp_path, text).startswith("run.yaml:1: not YAML: ")


def test_a_file_that_is_no_text_is_an_error(tmp_path):
    (tmp_path / "run.yaml").write_bytes(b"\xff\xfe\xfd")
    with pytest.raises(ConfigError, match=r"run\.yaml:1: not YAML: byte 0xff is not UTF-8"):
        config.load(tmp_path / "run.yaml")


def bomb(layers: int) -> str:
    """Nine aliases of nine aliases of …"""
    lines = ["l0: &l0 [x]", *(f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]" for i in range(1, layers))]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (bomb(30), "expands to more than 100,000 values, aliases included"),
        ("[" * 60 + "]" * 60, "nested more than 50 deep"),
        ("x: " + "y" * 1_000_001, "longer than 1,000,000 bytes"),
        ("windows: {width: 1s}\nkeys: {}\nwindows: {}\n", "key 'windows' appears twice"),
        ("keys:\n  show: true\n  show: false\n", "key 'show' appears twice"),
    ],
)
def test_a_file_has_limits_and_each_key_once(tmp_path, text, message):
    assert message in complaint(tmp_path, text)


def test_a_duplicate_key_is_found_by_its_line(tmp_path):
    said = complaint(tmp_path, "keys:\n  show: true\n  show: false\n")
    assert said == "run.yaml:3: not YAML: key 'show' appears twice (column 3)"


def test_aliases_and_merges_within_the_limits_are_read(tmp_path):
    text = "x-: 1"  # an unknown key is named, so the file was read
    assert "unknown key x-" in complaint(tmp_path, text)
    found = run(
        tmp_path,
        "scenarios:\n  - &one {name: a, policy: pulsar.shared, members: [{consumer: c}]}\n  - {<<: *one, name: b}\n",
    )
    assert [(s.name, s.members) for s in found.scenarios] == [(n, found.scenarios[0].members) for n in "ab"]


def test_a_value_that_holds_itself_is_an_error(tmp_path):
    assert complaint(tmp_path, "scenarios: &a [*a]").startswith("run.yaml:1: ")


@pytest.mark.parametrize("tag", ["object/apply:os.system ['touch {}']", "name:os.system ''", "object:pathlib.Path []"])
def test_nothing_is_evaluated(tmp_path, tag):
    trace = tmp_path / "evaluated"
    said = complaint(tmp_path, f"report: {{title: !!python/{tag.format(trace)}}}")
    assert "could not determine a constructor for the tag" in said
    assert not trace.exists()
