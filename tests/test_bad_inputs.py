"""What a stranger does wrong, command by command: exit code, what is blamed, what to do. Nothing here needs Spark."""

import shlex
import shutil
from pathlib import Path

import pytest

from subreplay import cli
from subreplay.spark import session
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
    "windows.yaml": "windows: {width: 1}\n",
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
audit --config nowhere.yaml                          | 2 | nowhere.yaml: cannot be read: No such file or directory
audit --config empty                                 | 2 | empty: cannot be read: Is a directory
audit --config binary.yaml                           | 2 | binary.yaml: not YAML
audit --config /dev/zero                             | 2 | /dev/zero: longer than 1,000,000 bytes; is this a run file?
audit --config bomb.yaml                             | 2 | stands for more than 100,000 values, aliases included
audit --config twice.yaml                            | 2 | key 'keys' is there twice
audit --config list.yaml                             | 2 | a run is a mapping of keys, not list
audit --config typo.yaml                             | 2 | unknown key subscripton; did you mean 'subscription'?
audit --config policy.yaml                           | 2 | unknown policy 'pulsar.key_shard'; nearest: pulsar.
audit --config profile.yaml                          | 2 | has no profile 'pulsar-9'; it has: documented
audit --config option.yaml                           | 2 | points must be at most 10000
audit --config lookback.yaml                         | 2 | traffic.lookback_days: Input should be less than
audit --config windows.yaml                          | 2 | windows: width must be at least 1ms
audit --config long.yaml                             | 2 | windows.width: a duration is from 0s to 36525d, a century
audit --config queue.yaml                            | 2 | receiver_queue_size: Input should be less than or equal to
audit --config seed.yaml                             | 2 | seed: Input should be less than or equal to
audit --config ranges.yaml                           | 2 | ranges.0.1: Input should be less than or equal to
audit --config group.yaml                            | 2 | only scenarios of kafka.* policies have it
audit --config memory.yaml                           | 2 | spark.driver_memory: String should match pattern
audit --config run.yaml --date 21.11.2026            | 2 | --date '21.11.2026': not a day; write YYYY-MM-DD
audit --config run.yaml --date 2026-02-30            | 2 | --date '2026-02-30': day is out of range for month
audit --config run.yaml --date 9999-12-31            | 2 | --date '9999-12-31': a day is from 1970-01-01 to 2149-12-31
audit --config run.yaml --tables ''                  | 2 | --tables '': not a folder
audit --config run.yaml --out ''                     | 2 | --out '': not a folder
audit --config run.yaml --out text.txt               | 4 | text.txt/report: cannot be written: Not a directory
audit --config run.yaml --out /proc/here             | 4 | /proc/here/report: cannot be written
whatif --config run.yaml                             | 2 | scenarios is empty; a what-if needs at least one
ingest nowhere --to out                              | 2 | nowhere: no file messages.jsonl.gz or messages.jsonl
ingest empty --to out                                | 2 | empty: no file messages.jsonl.gz
ingest text.txt --to out                             | 2 | text.txt: no file messages.jsonl.gz
ingest cut --to out                                  | 4 | cut/deliveries.jsonl.gz: cannot be read: damaged or cut off
ingest plain --to out                                | 2 | plain/messages.jsonl.gz: cannot be read: Not a gzipped file
ingest folders --to out                              | 2 | folders/messages.jsonl.gz: cannot be read: Is a directory
ingest cut --to ''                                   | 2 | --to '': not a folder
ingest cut --to out --from carrier-pigeon            | 2 | no such adapter; there are: capture, pulsar-recording
ingest cut --to out --format csv                     | 2 | write delta or parquet
explain --config run.yaml                            | 2 | give either --key or --message
explain --config run.yaml --message 5:120            | 2 | write TOPIC:LEDGER:ENTRY
explain --config run.yaml --key k --last 0           | 2 | Invalid value for '--last'
report nowhere.json --out out                        | 2 | nowhere.json: cannot be read: No such file or directory
report cut.json --out out                            | 2 | cut.json: not a report
report deep.json --out out                           | 2 | deep.json: not a report: nested too deeply
report text.txt --out out                            | 2 | text.txt: not a report
conformance text.txt                                 | 2 | text.txt: no golden file that is understood
conformance range.jsonl                              | 2 | range.jsonl: not JSON lines
conformance empty                                    | 2 | empty: no *.jsonl or *.jsonl.gz file in this folder
fidelity empty                                       | 2 | empty: no recording
fidelity cut                                         | 4 | cut/deliveries.jsonl.gz: cannot be read: damaged or cut off
"""


@pytest.fixture(scope="module")
def strange(tmp_path_factory):
    """A folder of files that are not what they should be."""
    folder = tmp_path_factory.mktemp("strange")
    for name, content in FILES.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    (folder / "empty").mkdir()
    for name in ("cut", "plain", "folders"):
        shutil.copytree(ROOT / RECORDING, folder / name)
    cut = folder / "cut" / "deliveries.jsonl.gz"
    cut.write_bytes(cut.read_bytes()[:2_000])
    (folder / "plain" / "messages.jsonl.gz").write_text("hello")
    (folder / "folders" / "messages.jsonl.gz").unlink()
    (folder / "folders" / "messages.jsonl.gz").mkdir()
    return folder


@pytest.mark.parametrize("line", CASES.strip().splitlines(), ids=lambda line: line.partition("|")[0].strip())
def test_a_mistake_has_its_exit_code_and_one_sentence(strange, line, monkeypatch, capsys):
    def no_session(options: object) -> None:
        raise AssertionError("this is found before Spark starts")

    monkeypatch.setattr(session, "open_session", no_session)
    monkeypatch.chdir(strange)
    command, code, sentence = (part.strip() for part in line.split(" | "))
    returned = cli.main(shlex.split(command))
    out, err = capsys.readouterr()
    assert (returned, out) == (int(code), "")
    assert sentence in " ".join(err.split())
    assert "Traceback" not in err
    assert "log: " not in err or returned == 4
    assert not Path("out").exists()
