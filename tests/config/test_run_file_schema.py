"""The JSON Schema of a run file accepts what the program accepts, and refuses mistakes."""

import json
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from subreplay.cli import main
from subreplay.config import run as config
from subreplay.config.run_file_keys import KeyExample, RunFileKey, read_default_file, read_entry_keys, read_keys
from subreplay.config.run_file_schema import RUN_FILE_SCHEMA_ID, RUN_FILE_SCHEMA_VERSION, build_run_file_schema
from subreplay.errors import ConfigError
from tests.docs.pages import ROOT, blocks, name, pages

SCHEMA = build_run_file_schema()
VALIDATOR = Draft202012Validator(SCHEMA)
RUN_FILES = [
    *(ROOT / "conf").rglob("*.yaml"),
    *(ROOT / "src/subreplay/demo").rglob("*.yaml"),
]
A_SCENARIO = {"name": "a", "policy": "pulsar.shared"}


def as_json(value: Any) -> Any:
    """A value of YAML as an editor reads it: dates are text."""
    if isinstance(value, dict):
        return {key: as_json(each) for key, each in value.items()}
    if isinstance(value, list):
        return [as_json(each) for each in value]
    return value.isoformat() if isinstance(value, date) else value


def errors(value: Any) -> list[str]:
    return [f"{list(error.absolute_path)}: {error.message}" for error in VALIDATOR.iter_errors(as_json(value))]


def run_files_on_pages() -> Iterator[Any]:
    for page in pages():
        for number, block in enumerate(blocks(page.read_text(encoding="utf-8"))):
            if block.language == "yaml" and "part" not in block.notes:
                yield pytest.param(block.text, id=f"{name(page)}-{number}")


def test_the_schema_is_a_json_schema_with_id_and_version() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert (SCHEMA["$id"], SCHEMA["version"]) == (RUN_FILE_SCHEMA_ID, RUN_FILE_SCHEMA_VERSION)


def test_config_prints_the_schema_that_the_site_publishes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["config", "--schema"]) == 0
    printed = capsys.readouterr().out
    assert printed == (ROOT / "docs/assets/run-file.schema.json").read_text(encoding="utf-8")
    assert json.loads(printed) == SCHEMA


@pytest.mark.parametrize("path", RUN_FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_it_accepts_every_run_file_of_the_repository(path: Path) -> None:
    assert errors(yaml.safe_load(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("text", [*run_files_on_pages()])
def test_it_accepts_every_run_file_on_a_page(text: str) -> None:
    assert errors(yaml.safe_load(text) or {}) == []


def test_it_accepts_the_scenarios_that_default_yaml_shows() -> None:
    (example,) = (key for key in read_keys(read_default_file().splitlines()) if isinstance(key, KeyExample))
    assert errors({"scenarios": yaml.safe_load("\n".join(example.lines))}) == []


@pytest.mark.parametrize(
    "right",
    [
        {"subscriptions": "all"},
        {"subscriptions": ["billing", {"name": "orders-*", "owner": "payments", "liveness": {"late_after": "1h"}}]},
        {"keys": {"secret": {"env": "KEYS"}}},
        {"keys": {"secret": {"databricks": "scope/key"}}},
        {"output": {"tables": {"schema": "main.audits"}}},
        {"liveness": {"stalled_after": None, "late_after": 0}},
        {"topic": {"resets": [{"at": "2026-11-20T10:00:30Z", "to": {"offset": 5}}]}},
        {"traffic": {"messages": {"from": "kafka-live", "options": {
            "kafka.bootstrap.servers": "b:9092", "subscribe": "t", "kafka.sasl.jaas.config": {"env": "JAAS"}}}}},
        {"scenarios": [{"name": "a", "policy": "kafka.range", "profile": "kafka-4.0",
                        "dispatch": {"max.poll.records": 5, "max.poll.interval.ms": "5m"}}]},
        {"scenarios": [A_SCENARIO | {"members": [{"consumer": "C1", "join": "5s"}], "retention": "100GB"}]},
    ],
)  # fmt: skip
def test_it_accepts_each_way_to_write_a_value(right: Any) -> None:
    assert errors(right) == []
    config.parse(right, "run.yaml")


@pytest.mark.parametrize(
    "wrong",
    [
        {"subscripton": {"name": "a"}},
        {"subscription": {"nam": "a"}},
        {"subscription": {"name": ""}},
        {"subscription": {"policy": "pulsar.key_share"}},
        {"subscription": {"profile": "pulsar-9.9"}},
        {"subscription": "billing"},
        {"subscription": {"isolation": "read_most"}},
        {"subscriptions": []},
        {"subscriptions": [{"liveness": {"late": "1s"}}]},
        {"traffic": {"format": "csv"}},
        {"traffic": {"lookback_days": -1}},
        {"traffic": {"messages": "messages.csv"}},
        {"liveness": {"stalled_after": "30"}},
        {"liveness": {"stalled_after": 30}},
        {"date": "21.11.2026"},
        {"topic": {"resets": [{"at": "2026-11-20T10:00:30"}]}},
        {"topic": {"routing": {"mode": "RoundRobinPartition"}}},
        {"keys": {"secret": {"vault": "a"}}},
        {"keys": {"secret": {"env": "A", "file": "b"}}},
        {"require": {"share_judged": 1.5}},
        {"scenarios": [{"policy": "pulsar.shared"}]},
        {"scenarios": [A_SCENARIO | {"dispatch": {"max.poll.records": 5}}]},
        {"scenarios": [A_SCENARIO | {"policy": "kafka.range", "dispatch": {"ttl": "1s"}}]},
        {"scenarios": [A_SCENARIO | {"members": "two"}]},
        {"scenarios": [A_SCENARIO | {"retention": "100"}]},
        {"plan": {"consumers": 0}},
        {"output": {"tables": {"schema": "a.b.c"}}},
        {"engine": "flink"},
        {"spark": {"driver_memory": "2 gigabytes"}},
        ["subscription"],
    ],
)
def test_it_refuses_a_mistake_that_the_program_refuses(wrong: Any) -> None:
    assert errors(wrong)
    with pytest.raises(ConfigError):
        config.parse(wrong, "run.yaml")


def test_every_key_is_explained_as_in_default_yaml() -> None:
    described = json.dumps(SCHEMA)
    for key in read_keys(read_default_file().splitlines()):
        keys = [key] if isinstance(key, RunFileKey) else [each for _, each in read_entry_keys(key)]
        for each in keys:
            first = each.remarks[0] if each.remarks else "As above"
            assert first.startswith("As ") or json.dumps(first)[1:-1] in described, each.path


def test_defaults_are_written_as_in_a_run_file() -> None:
    definitions = SCHEMA["$defs"]
    assert definitions["Liveness"]["properties"]["stalled_after"]["default"] == "30s"
    assert definitions["PlanStatic"]["properties"]["timeouts"]["default"] == ["10s", "45s", "2m", "5m", "10m"]
    assert "default" not in definitions["Keys"]["properties"]["secret"]
