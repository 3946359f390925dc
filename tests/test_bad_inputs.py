"""What a stranger does wrong, command by command: exit code, what is blamed, what to do. Nothing here needs Spark."""

import shlex
import shutil
from pathlib import Path

import pytest

from subreplay.audit import input_statistics
from subreplay.cli import main
from subreplay.engine.spark import session
from subreplay.errors import InputError
from subreplay.pipeline import engines
from tests.support.recordings import ROOT

RECORDING = "4.0.8/s1f_key_shared_default_batching"
BOMB = "\n".join(["l0: &l0 [x]", *(f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]" for i in range(1, 30))])
SCENARIOS = "scenarios: [{name: a, policy: pulsar.shared, %s}]"
FILES = {
    "run.yaml": "",
    "binary.yaml": b"\x00\xff\xfe\x80",
    "bomb.yaml": BOMB,
    "twice.yaml": "keys: {show: true}\nkeys: {show: false}\n",
    "list.yaml": "- audit\n",
    "typo.yaml": "subscripton: {name: s}\n",
    "policy.yaml": "subscription: {policy: pulsar.key_shard}\n",
    "profile.yaml": "subscription: {profile: pulsar-9}\n",
    "option.yaml": "subscription: {options: {points: 1000000000}}\n",
    "lookback.yaml": "traffic: {lookback_days: 999999999}\n",
    "windows.yaml": "windows: {width: 0.5ms}\n",
    "long.yaml": f"windows: {{width: {'9' * 400}d}}\n",
    "queue.yaml": SCENARIOS % "dispatch: {consumers: {receiver_queue_size: 2147483647}}",
    "seed.yaml": SCENARIOS % f"dispatch: {{seed: {'9' * 30}}}",
    "ranges.yaml": SCENARIOS % f"members: [{{consumer: c, ranges: [[0, {'9' * 30}]]}}]",
    "group.yaml": SCENARIOS % "dispatch: {max.poll.records: 5}",
    "memory.yaml": "spark: {driver_memory: much}\n",
    "text.txt": "hello",
    "cut.json": '{"schema_version": "1.1", "run": {',
    "deep.json": "[" * 100_000,
    "range.jsonl": "[" * 100_000,
}
CASES = """
autid --config run.yaml                              | 2 | No such command 'autid'
audit --cofnig run.yaml                              | 2 | No such option: --cofnig
audit                                                | 2 | Missing option '--config'
audit --config run.yaml --date                       | 2 | Option '--date' requires an argument
audit --config run.yaml --quite                      | 2 | No such option: --quite
audit --config run.yaml --config typo.yaml           | 2 | subreplay: --config appears 2 times; pass it once
whatif --config run.yaml --out a --out b --out c     | 2 | subreplay: --out appears 3 times; pass it once
whatif --messages t --consumers 2 --consumers=3      | 2 | subreplay: --consumers appears 2 times; pass it once
explain --config run.yaml --key a --key b            | 2 | subreplay: --key appears 2 times; pass it once
ingest cut --to out --to there                       | 2 | subreplay: --to appears 2 times; pass it once
ingest cut --to out --with clock=a --with clock=b    | 2 | --with clock: clock appears 2 times; pass it once
ingest cut --to out --topic a --with topic=b         | 2 | --with topic: topic appears 2 times; pass it once
audit --config nowhere.yaml                          | 2 | nowhere.yaml: cannot be read: No such file or directory
audit --config empty                                 | 2 | empty: cannot be read: Is a directory
audit --config binary.yaml                           | 2 | binary.yaml:1: not YAML
audit --config /dev/zero                             | 2 | /dev/zero is longer than 1,000,000 bytes
audit --config bomb.yaml                             | 2 | expands to more than 100,000 values, aliases included
audit --config twice.yaml                            | 2 | key 'keys' appears twice
audit --config list.yaml                             | 2 | a run is a mapping of keys, not list
audit --config typo.yaml                             | 2 | unknown key subscripton; did you mean 'subscription'?
audit --config policy.yaml                           | 2 | unknown policy 'pulsar.key_shard'.
audit --config profile.yaml                          | 2 | has no profile 'pulsar-9'. Valid profiles: documented
audit --config option.yaml                           | 2 | points must be at most 10000
audit --config lookback.yaml                         | 2 | traffic.lookback_days: must be at most 3650
audit --config windows.yaml                          | 2 | windows: width must be at least 1ms
audit --config long.yaml                             | 2 | windows.width: a duration is from 0s to 36525d, a century
audit --config queue.yaml                            | 2 | receiver_queue_size: must be at most 100000
audit --config seed.yaml                             | 2 | seed: must be at most
audit --config ranges.yaml                           | 2 | ranges.0.1: must be at most
audit --config group.yaml                            | 2 | only scenarios of kafka.* policies have it
audit --config memory.yaml                           | 2 | spark.driver_memory: not a size of memory
audit --config run.yaml --date 21.11.2026            | 2 | --date '21.11.2026': not a day; write YYYY-MM-DD
audit --config run.yaml --date 2026-02-30            | 2 | --date '2026-02-30': day is out of range for month
audit --config run.yaml --date 9999-12-31            | 2 | --date '9999-12-31': a day is from 1970-01-01 to 2149-12-31
audit --config run.yaml --tables ''                  | 2 | --tables '': not a folder
audit --config run.yaml --out ''                     | 2 | --out '': not a folder
audit --config run.yaml --out text.txt               | 4 | text.txt/report: cannot be written: Not a directory
audit --config run.yaml --out /proc/here             | 4 | /proc/here/report: cannot be written
whatif --config run.yaml                             | 2 | scenarios is empty; a what-if needs at least one
ingest nowhere --to out                              | 2 | there is no file or folder nowhere; check the name
ingest cut --to ''                                   | 2 | --to '': not a folder
ingest cut --to out --from carrier-pigeon            | 2 | no such adapter; there are: capture, pulsar-recording
ingest cut --to out --format csv                     | 2 | write delta or parquet
explain --config run.yaml                            | 2 | pass either --key or --message
explain --config run.yaml --message 5:120            | 2 | write TOPIC:LEDGER:ENTRY
explain --config run.yaml --key k --last 0           | 2 | Invalid value for '--last'
report nowhere.json --out out                        | 2 | nowhere.json: cannot be read: No such file or directory
report cut.json --out out                            | 2 | cut.json: not a report
report deep.json --out out                           | 2 | deep.json is not a report: it is nested too deeply
report text.txt --out out                            | 2 | text.txt: not a report
conformance text.txt                                 | 2 | text.txt: the name does not say what the cases
conformance range.jsonl                              | 2 | range.jsonl: the file is not in the JSON
conformance empty                                    | 2 | empty: the folder contains no
fidelity empty                                       | 2 | empty: the path contains no recording
fidelity cut                                         | 4 | cut/deliveries.jsonl.gz: cannot be read: damaged or cut off
"""


@pytest.fixture(scope="module")
def strange(tmp_path_factory):
    """A folder of files that are not what they should be."""
    folder = tmp_path_factory.mktemp("strange")
    for name, content in FILES.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    (folder / "empty").mkdir()
    shutil.copytree(ROOT / RECORDING, folder / "cut")
    cut = folder / "cut" / "deliveries.jsonl.gz"
    cut.write_bytes(cut.read_bytes()[:2_000])
    return folder


@pytest.mark.parametrize("line", CASES.strip().splitlines(), ids=lambda line: line.partition("|")[0].strip())
def test_a_mistake_has_its_exit_code_and_one_sentence(strange, line, monkeypatch, capsys):
    def no_session(options: object) -> None:
        raise AssertionError("this is found before Spark starts")

    monkeypatch.setattr(session, "open_session", no_session)
    monkeypatch.setattr(engines, "has_session_elsewhere", lambda: False)
    monkeypatch.chdir(strange)
    command, code, sentence = (part.strip() for part in line.split(" | "))
    returned = main.main(shlex.split(command))
    out, err = capsys.readouterr()
    assert (returned, out) == (int(code), "")
    assert sentence in " ".join(err.split())
    assert "Traceback" not in err
    assert "log: " not in err or returned == 4
    assert not Path("out").exists()


A = "scenarios:\n  - name: a\n    policy: pulsar.shared\n"
D = A + "    dispatch:\n      consumers:\n"
SECTION = "must be a section of keys: "
DURATION = "not a duration; write a number and one of ms, s, m, h, d, e.g. 10s"
MISTAKES = [
    ("orders", ": a run is a mapping of keys, not str"),
    (
        "subscription: orders",
        f":1: subscription: {SECTION}name, topic, policy, profile, options, isolation (found: 'orders')",
    ),
    (
        "subscription:\n  - name: s",
        f":1: subscription: {SECTION}name, topic, policy, profile, options, isolation (found: [{{",
    ),
    (
        "date:\nsubscription:",
        f":2: subscription: {SECTION}name, topic, policy, profile, options, isolation (found: nothing)",
    ),
    ("subscription:\n  nmae: s", ":2: unknown key subscription.nmae; did you mean 'name'?"),
    (
        "subscription:\n  zzz: s",
        ":2: unknown key subscription.zzz; legal keys: name, topic, policy, profile, options, isolation",
    ),
    ("subscription:\n  name: 5", ":2: subscription.name: must be a text; put it into quotes (found: 5)"),
    ("subscription:\n  name: yes", ":2: subscription.name: must be a text; put it into quotes (found: true)"),
    ("subscription:\n  policy: [a]", ":2: subscription.policy: must be a text (found: ['a'])"),
    ("keys:\n  show: perhaps", ":2: keys.show: must be true or false (found: 'perhaps')"),
    ("traffic:\n  lookback_days: many", ":2: traffic.lookback_days: must be a whole number (found: 'many')"),
    ("traffic:\n  format: excel", ":2: traffic.format: must be 'delta' or 'parquet' (found: 'excel')"),
    ("report:\n  worst: 2.5", ":2: report.worst: must be a whole number (found: 2.5)"),
    ("tolerate:\n  messages: 5%", ":2: tolerate.messages: must be a number (found: '5%')"),
    ("require:\n  share_judged: 99", ":2: require.share_judged: must be at most 1 (found: 99)"),
    ("windows:\n  width: 10", f":2: windows.width: {DURATION} (found: 10)"),
    ("windows:\n  width: 10 min", f":2: windows.width: {DURATION} (found: '10 min')"),
    ("date: 2026-02-30", ":1: not YAML: '2026-02-30': day is out of range for month (column 7)"),
    ("scenarios:\n  name: a", ":1: scenarios: must be a list: lines that begin with - (found: {'name': 'a'})"),
    (A + "    members: 4", ":4: scenarios.0.members: must be recorded, or a list of consumers (found: 4)"),
    (A + "    members: [x]", f":4: scenarios.0.members.0: {SECTION}consumer, join, leave, priority, ranges, instance"),
    (A + "  - policy: pulsar.shared", ":4: scenarios.1.name is required"),
    (D + "        on_failure: nak", ":6: scenarios.0.dispatch.consumers.on_failure: must be 'nack', 'retry' or 'noth"),
    (D + "        service: 5ms", f":6: scenarios.0.dispatch.consumers.service: {SECTION}model, time, per_kib, sigma"),
    (
        D + "        failure_rate: 1.5",
        ":6: scenarios.0.dispatch.consumers.failure_rate: must be at most 1 (found: 1.5)",
    ),
    ("a:\n  b: c\n    d: e", ":3: not YAML: mapping values are not allowed here (column 6); indent the line like its"),
    ("a:\n   b: c\n  d: e", ":3: not YAML: expected <block end>, but found '<block mapping start>' (column 3); indent"),
    (
        "a:\n\tb: c",
        ":2: not YAML: found character '\\t' that cannot start any token (column 1); indent with spaces, no",
    ),
    ("a: {b: c\nd: e", ":1: not YAML: expected ',' or '}', but got ':' (column 4); close the bracket or the brace"),
    (
        "a: {b: c",
        ":1: not YAML: expected ',' or '}', but got '<stream end>' (column 4); close the bracket or the brace",
    ),
    ('a:\n  b: "c', ":2: not YAML: found unexpected end of stream (column 6); close the quotes"),
    ("a: @home", ":1: not YAML: found character '@' that cannot start any token (column 4); put the value into quotes"),
    ("a: *x", ":1: not YAML: found undefined alias 'x' (column 4); put a value that begins with * into quotes"),
    ("a: !Env B", ":1: not YAML: could not determine a constructor for the tag '!Env' (column 4); write a plain value"),
    ("a: b\n---\na: c", ":2: not YAML: expected a single document in the stream, but found another document"),
    ("a: \0", ":1: not YAML: the character '\\x00' is not allowed"),
    ("a: \ud800", ":1: not YAML: byte 0xed is not UTF-8"),
]


@pytest.mark.parametrize(("text", "sentence"), MISTAKES, ids=[repr(text) for text, _ in MISTAKES])
@pytest.mark.parametrize("command", ["audit", "whatif"])
def test_a_mistake_in_a_run_file_is_one_sentence_with_its_line(tmp_path, monkeypatch, capsys, command, text, sentence):
    monkeypatch.chdir(tmp_path)
    Path("run.yaml").write_bytes(text.encode(errors="surrogatepass"))
    assert main.main([command, "--config", "run.yaml"]) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert err.startswith(f"subreplay: run.yaml{sentence}")


def test_a_membership_that_the_driver_cannot_fold_is_refused(monkeypatch):
    monkeypatch.setattr(input_statistics, "MOST_EVENTS", 2)
    assert input_statistics.check_event_count([{}, {}]) == [{}, {}]
    with pytest.raises(InputError, match="leave out rows of events assigned, lost"):
        input_statistics.check_event_count([{}, {}, {}])
