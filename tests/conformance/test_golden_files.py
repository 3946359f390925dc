"""``subreplay conformance``: golden files in, counts and first differences out."""

import gzip
import json
import random
from pathlib import Path

import pytest

from subreplay.cli.main import main
from subreplay.conformance.golden.golden_files import CASES, judge_file, list_golden_files
from subreplay.conformance.golden.selector_cases import _compute_impacted
from subreplay.errors import InputError

GOLDEN = Path(__file__).parents[1] / "data" / "golden"


@pytest.mark.parametrize("path", list_golden_files([GOLDEN]), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_golden_case_passes(path):
    judged = judge_file(path)

    assert judged.passed >= (4 if path.name.startswith("quirks") else 100)
    assert judged.failures == ()


def first_case(kind, version="4.0.8"):
    with gzip.open(GOLDEN / "pulsar" / version / f"{kind}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return json.loads(next(lines))


def test_a_wrong_expectation_is_reported_with_both_values():
    active, sent = first_case("failover"), first_case("dispatch_shared")
    active["events"][0]["active"] = 99
    sent["events"][2]["delivered"]["0"][0] = [7, 7]

    assert CASES["failover"](active, "pulsar-4.0") == "event 0 (add 0), active: expected 99, actual 0"
    reported = CASES["dispatch_shared"](sent, "pulsar-4.0")
    assert reported.startswith("event 2 (add 0), delivered: expected {'0': [[7, 7], ")


@pytest.mark.long
def test_a_profile_is_not_another_one():
    assert judge_file(GOLDEN / "pulsar" / "4.0.8" / "dispatch_key_shared.jsonl.gz", "pulsar-4.2").failed > 0


def test_what_a_consumer_lost_is_one_range_whoever_has_it_now():
    impacted = _compute_impacted({0: [(0, 9)], 1: [(10, 19)]}, {1: [(0, 4), (10, 19)], 2: [(5, 9)]})
    assert impacted == {"removed": {"0": [[0, 9]]}, "added": {"1": [[0, 4]], "2": [[5, 9]]}}


def leaves(value, path=()):
    """Every number, text and flag that a golden file says a class answered."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, (*path, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from leaves(inner, (*path, index))
    elif value is not None:
        yield path


def altered(value):
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else f"{value}~"


def change(case, path):
    part = case
    for step in path[:-1]:
        part = part[step]
    part[path[-1]] = altered(part[path[-1]])


ANSWERS = {
    "hash": {"murmur3_32", "sticky_hash", "java_string_hash", "partition_key", "partition_key_bytes"},
    "auto_split": {"sel", "sel_keys", "ranges", "impacted", "error"},
    "consistent_hash": {"sel", "sel_keys", "ranges_sha256", "ranges_count", "owned"},
    "exclusive": {"sel", "sel_probe", "ranges", "error"},
    "failover": {"active", "order", "active_changes_total"},
    "shared": {"picks", "rr_index"},
    "range": {"assignment"},
    "sticky": {"assignment"},
    "cooperative_sticky": {"assignment", "revoked", "followup_required"},
    "uniform": {"assignment"},
    "server_range": {"assignment"},
    "simple": {"assignment"},
    "partitioner": {"murmur2", "partition"},
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_a_file_with_one_value_altered_fails(kind, tmp_path, capsys):
    source = next(path for path in list_golden_files([GOLDEN]) if path.name.split(".")[0] == kind)
    with gzip.open(source, "rt", encoding="utf-8") as lines:
        cases = [json.loads(line) for line in lines][:12]
    answers = [(n, p) for n, case in enumerate(cases) for p in leaves(case) if ANSWERS[kind] & {*map(str, p)}]
    folder = tmp_path / source.parent.name
    folder.mkdir()
    for n, path in random.Random(kind).sample(answers, 15):
        spoilt, beside = json.loads(json.dumps([cases[n], cases[n - 1]]))
        change(spoilt, path)
        file = folder / f"{kind}.other.jsonl"
        file.write_text(f"{json.dumps(beside)}\n{json.dumps(spoilt)}\n", encoding="utf-8")

        assert main(["conformance", str(file)]) == 1, path
        assert f"{kind}.other.jsonl: 1 passed, 1 failed" in capsys.readouterr().out


def test_the_version_folder_or_the_option_picks_the_profile(tmp_path, capsys):
    lines = gzip.decompress((GOLDEN / "pulsar" / "3.2.3" / "hash.jsonl.gz").read_bytes())
    (tmp_path / "hash.jsonl").write_bytes(lines)

    assert main(["conformance", str(tmp_path / "hash.jsonl")]) == 2  # the path names no version
    assert main(["conformance", "--profile", "pulsar-3.2", str(tmp_path / "hash.jsonl")]) == 0
    assert main(["conformance", "--profile", "pulsar-4.0", str(tmp_path / "hash.jsonl")]) == 1
    assert main(["conformance", "--profile", "pulsar-9", str(tmp_path / "hash.jsonl")]) == 2


@pytest.mark.parametrize(
    ("name", "text", "reported"),
    [
        ("weather.jsonl", "{}\n", "does not say what the cases are about"),
        ("partitioner.jsonl", "", "contains no case"),
        ("partitioner.jsonl", "{", "not in the JSON Lines format"),
        ("partitioner.jsonl", "[1]\n", "is not a JSON object"),
        ("partitioner.jsonl.gz", "not gzip", "cannot be read"),
    ],
)
def test_a_file_that_is_not_understood_is_an_error_and_the_others_are_judged(name, text, reported, tmp_path, capsys):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / name).write_text(text)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "partitioner.jsonl.gz").write_bytes((GOLDEN / "kafka" / "partitioner.jsonl.gz").read_bytes())

    assert main(["conformance", str(tmp_path)]) == 2
    shown = capsys.readouterr()
    assert reported in shown.err
    assert "300 passed, 0 failed" in shown.out


def test_json_output_contains_every_file(tmp_path, capsys):
    (tmp_path / "partitioner.jsonl.gz").write_bytes((GOLDEN / "kafka" / "partitioner.jsonl.gz").read_bytes())
    (tmp_path / "weather.jsonl").write_text("{}")

    assert main(["conformance", str(tmp_path), "--json", "--quiet"]) == 2
    passed, failed = json.loads(capsys.readouterr().out)["files"]
    assert (passed["passed"], passed["failed"]) == (300, 0)
    assert "does not say what the cases are about" in failed["error"]


def test_a_case_that_is_not_understood_has_failed(tmp_path):
    (tmp_path / "range.jsonl").write_text('{"assignor": "range", "generations": [{"events": [{"type": "eclipse"}]}]}\n')

    judged = judge_file(tmp_path / "range.jsonl")

    assert (judged.passed, judged.failed) == (0, 1)
    assert judged.failures[0].difference.startswith("the case could not be replayed")


def test_a_folder_without_golden_files_is_an_error(tmp_path):
    with pytest.raises(InputError, match=r"contains no .*jsonl"):
        list_golden_files([tmp_path])
