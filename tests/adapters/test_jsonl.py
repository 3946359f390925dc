"""Files against their contracts: what cannot be read at all, and what goes to quarantine row by row."""

import gzip
import json

import pytest

from subreplay.adapters import ADAPTERS
from subreplay.errors import EnvironmentFailed, InputError
from tests.adapters.pulsar_recording.recording import Recording, counts, reasons, rows

read = ADAPTERS["pulsar-recording"]


def story() -> Recording:
    return Recording().join("c1").publish(0, "a").publish(1, "b").dispatch(0, "c1").dispatch(1, "c1").ack(0, "c1")


def without(column: str, rows: list[dict]) -> list[dict]:
    return [{name: value for name, value in row.items() if name != column} for row in rows]


def test_a_good_recording_has_every_row_valid(tmp_path):
    made = story().receive(0, "c1").read(tmp_path)
    assert counts(made) == {"messages": (2, 2, 0), "broker_events": (5, 5, 0), "deliveries": (1, 1, 0)}
    assert made.rejected == ()


@pytest.mark.parametrize(
    ("file", "column"),
    [("messages", "publish_time_ms"), ("broker_events", "seq"), ("deliveries", "recv_ns"), ("membership", "t_ns")],
)
def test_a_missing_column_is_an_error_naming_file_and_column(tmp_path, file, column):
    recording = story().receive(0, "c1").line("membership", {"event": "join", "consumer": "c1", "t_ns": 1})
    recording.files[file] = without(column, recording.files[file])
    with pytest.raises(InputError) as error:
        recording.read(tmp_path)
    assert f"{file}.jsonl.gz: none of its" in str(error.value)
    assert f"{column} = (absent): the column is required (add the column" in str(error.value)


def test_one_row_without_the_column_goes_to_quarantine_with_the_reason(tmp_path):
    recording = story()
    recording.files["messages"][1] = without("key", recording.files["messages"][1:])[0]
    made = recording.read(tmp_path)
    assert counts(made)["messages"] == (2, 1, 1)
    assert reasons(made) == [
        "messages.jsonl.gz, row 2: key = (absent): the column is required "
        "(add the column, or record with a version that writes it)"
    ]
    assert json.loads(made.rejected[0].raw)["entry"] == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"entry": "one"}, "entry = 'one': Input should be a valid integer"),
        ({"entry": -1}, "entry = -1: a ledger has entries 0 to 2,147,483,647 (map the entry column"),
        (
            {"ledger": 2**63},
            "ledger = 9223372036854775808: a ledger id is not negative, and of 64 bits (map",
        ),
        ({"batch_index": 2**31}, "batch_index = 2147483648: a batch index is -1 (no batch), or from 0 to 1,048,574"),
        (
            {"publish_time_ms": 10**15},
            "publish_time_ms = 1000000000000000: a time is from 1971 to 2169 (-1 and 0 mean no timestamp; else check",
        ),
        ({"deliver_at_ms": 253402214400000}, "(write null where it never happened; else check its unit"),
        ({"payload_size": 2**31}, "payload_size = 2147483648: a size is from 0 to 2,147,483,647 bytes (map the size"),
        ({"topic": "t-partition-99999999999999999999"}, "a partition is -1 (none), or from 0 to 999,999"),
        ({"sequence_id": 0.5}, "sequence_id = 0.5: Input should be a valid integer"),
        ({"topic": ""}, "topic = '': String should have at least 1 character"),
        ({"key": 7}, "key = (int): Input should be a valid string"),
    ],
)
def test_a_wrong_value_goes_to_quarantine_naming_column_value_and_rule(tmp_path, change, reason):
    made = story().publish(2, "c", **change).read(tmp_path)
    assert counts(made)["messages"] == (3, 2, 1)
    assert reason in reasons(made)[0]


def test_a_wrong_value_without_a_specific_remedy_is_to_be_corrected_at_its_source(tmp_path):
    made = story().publish(2, "c", entry="two").read(tmp_path)
    assert reasons(made)[0].endswith("(correct the value at its source and ingest again)")


def test_a_rejected_row_shows_only_the_length_of_its_key_and_is_cut_with_its_length(tmp_path):
    long = "persistent://public/default/" + "x" * 5_000
    made = story().publish(2, "secret", entry=-1, ordering_key="hidden").publish(3, "c", entry=-1, topic=long)
    made = made.line("messages", '{"key": "secret", ').line("messages", '"secret"').read(tmp_path)
    first, second, third, fourth = (rejected.raw for rejected in made.rejected)
    assert json.loads(first)["key"] == "(6 bytes)"
    assert json.loads(first)["ordering_key"] == "(6 bytes)"
    assert second.endswith(" characters)")
    assert 2_000 < len(second) < 2_100
    assert (third, fourth) == ("(17 characters that are not JSON)", "(8 characters that are not a JSON object)")
    assert not [rejected for rejected in made.rejected if "secret" in repr(rejected) or "hidden" in repr(rejected)]


def test_every_wrong_column_of_a_row_is_a_reason(tmp_path):
    made = story().publish(2, "c", ledger=-5, producer="").read(tmp_path)
    assert [reason.column for reason in made.rejected[0].reasons] == ["ledger", "producer"]


@pytest.mark.parametrize(
    ("ids", "value"), [([[5]], "(absent)"), ([[5, "x"]], "'x'"), ([[5, -1]], "-1"), ([[5, 0, ["x"]]], "'x'")]
)
def test_a_wrong_acknowledgement_names_its_ids(tmp_path, ids, value):
    made = story().ack(1, "c1", ids=ids).read(tmp_path)
    assert ("ids", value) in {(reason.column, reason.value) for reason in made.rejected[0].reasons}


def test_an_unknown_event_goes_to_quarantine_and_permits_do_not(tmp_path):
    made = story().event("flow", consumer="c1", permits=10).event("teleport").read(tmp_path)
    assert counts(made)["broker_events"] == (7, 6, 1)
    assert "teleport" in reasons(made)[0]


def test_a_line_that_is_not_json_goes_to_quarantine(tmp_path):
    made = story().line("messages", '{"topic": ').read(tmp_path)
    assert counts(made)["messages"] == (3, 2, 1)
    assert reasons(made)[0].startswith("messages.jsonl.gz, row 3: (row) = ")


def test_blank_lines_are_no_rows_but_count_as_lines(tmp_path):
    recording = story()
    recording.files["messages"][1:1] = ["", "  ", "5"]
    made = recording.read(tmp_path)
    assert counts(made)["messages"] == (3, 2, 1)
    assert made.rejected[0].row == 4


def test_plain_files_are_read_like_zipped_ones(tmp_path):
    folder = story().save(tmp_path)
    for path in list(folder.glob("*.gz")):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    assert rows(read(folder), "messages", "entry") == [0, 1]


@pytest.mark.parametrize("file", ["messages", "broker_events"])
def test_a_missing_file_is_an_error_naming_it(tmp_path, file):
    (story().save(tmp_path) / f"{file}.jsonl.gz").unlink()
    with pytest.raises(InputError, match=rf"the recording has no file {file}\.jsonl\.gz or {file}\.jsonl\."):
        read(tmp_path)


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(InputError, match=r"nowhere: the recording has no file broker_events"):
        read(tmp_path / "nowhere")


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def garble(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes(255 - byte for byte in data[middle : middle + 8]) + data[middle + 8 :]


def text(data: bytes) -> bytes:
    return b"plain text"


def latin(data: bytes) -> bytes:
    return gzip.compress("ключ".encode("koi8-r"))


@pytest.mark.parametrize(
    ("spoil", "kind", "words"),
    [
        (cut, EnvironmentFailed, "damaged or cut off"),
        (garble, EnvironmentFailed, "damaged or cut off"),
        (text, InputError, r"cannot be read as \(gzip\) JSON lines"),
        (latin, InputError, r"cannot be read as \(gzip\) JSON lines"),
    ],
)
def test_an_unreadable_file_is_an_error_naming_it(tmp_path, spoil, kind, words):
    path = story().save(tmp_path) / "broker_events.jsonl.gz"
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(kind, match=rf"broker_events\.jsonl\.gz: .*{words}"):
        read(tmp_path)


def test_a_file_of_something_else_is_an_error(tmp_path):
    recording = story()
    recording.files["messages"] = ["this", "is", "no", "recording"]
    with pytest.raises(InputError, match=r"messages\.jsonl\.gz: none of its 4 rows fits the contract"):
        recording.read(tmp_path)


@pytest.mark.parametrize(
    ("scenario", "what"),
    [
        ("{", "Invalid JSON"),
        ("[]", "Input should be an object"),
        ('{"selector": "coin"}', "selector: Input should be 'consistent_hashing' or 'hash_range_auto_split'"),
        ('{"consumers": [{}]}', "consumers: 0: name: Field required"),
    ],
)
def test_a_wrong_scenario_file_is_an_error(tmp_path, scenario, what):
    (story().save(tmp_path) / "scenario.json").write_text(scenario)
    with pytest.raises(InputError) as error:
        read(tmp_path)
    assert f"scenario.json: {what}" in str(error.value)
