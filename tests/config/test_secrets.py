"""Secrets: given by where they are kept, fetched where they are needed, and shown nowhere."""

from __future__ import annotations

import json
import os
import pickle
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import yaml

from subreplay.cli.main import main
from subreplay.config import run as config
from subreplay.config.run import Keys, RunConfig
from subreplay.config.secrets import KINDS
from subreplay.errors import ConfigError, EnvironmentFailed, SubreplayError
from subreplay.rows.model.key_masking import KeyMasking

HIDDEN = "not to be told"


def of(secret: object) -> RunConfig:
    return config.parse({"keys": {"secret": secret}}, "run.yaml")


@pytest.fixture
def references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The same secret at a place of every kind."""
    runtime = ModuleType("databricks.sdk.runtime")
    scopes = {("keys", "audit/nightly"): HIDDEN}
    runtime.dbutils = SimpleNamespace(  # type: ignore[attr-defined]
        secrets=SimpleNamespace(get=lambda scope, key: scopes[scope, key])
    )
    monkeypatch.setitem(sys.modules, "databricks.sdk.runtime", runtime)
    monkeypatch.setenv("SECRET_OF_KEYS", HIDDEN)
    (tmp_path / "secret").write_text(f"{HIDDEN}\n")
    return {"env": "SECRET_OF_KEYS", "file": str(tmp_path / "secret"), "databricks": "keys/audit/nightly"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_reference_stands_for_the_secret_and_does_not_hold_it(kind: str, references: dict[str, str]) -> None:
    found = of({kind: references[kind]})
    assert HIDDEN.encode() not in pickle.dumps(found)
    assert found.keys.words == KeyMasking.from_secret(False, HIDDEN)
    assert not found.keys.readable
    assert not found.keys.guessable


@pytest.mark.parametrize("given", [HIDDEN, {"env": "SECRET_OF_KEYS"}])
def test_a_run_does_not_show_its_secret(given: object, references: dict[str, str]) -> None:
    found = of(given)
    assert found.keys.words
    for reported in (repr(found), str(found), found.model_dump_json(), json.dumps(found.model_dump(mode="json"))):
        assert HIDDEN not in reported


def test_a_secret_in_the_run_file_is_used_instead_of_the_default() -> None:
    assert of(HIDDEN).keys.words == KeyMasking.from_secret(False, HIDDEN)
    assert of(HIDDEN).keys.readable
    assert not Keys().readable
    assert Keys().guessable
    assert of("subreplay").keys.guessable


@pytest.mark.parametrize(
    "given",
    [
        "", 17, [HIDDEN], {}, {"environment": HIDDEN}, {"env": HIDDEN, "file": HIDDEN}, {"databricks": HIDDEN},
        f"{HIDDEN}\ud800",
    ],
)  # fmt: skip
def test_what_is_no_secret_is_refused_and_not_shown(given: object) -> None:
    with pytest.raises(ConfigError) as error:
        of(given)
    kinds = "{env: NAME}, {file: PATH}, {databricks: SCOPE/KEY}"
    assert str(error.value) == f"run.yaml: keys.secret: not a secret; write a text, or one of {kinds}"


@pytest.mark.parametrize("text", [f"keys: {HIDDEN}", f"keys: {{secret: [{HIDDEN}]}}", f'keys: {{secret: "{HIDDEN}'])
def test_no_mistake_around_a_secret_shows_it(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(text)
    with pytest.raises(ConfigError) as error:
        config.load(tmp_path / "run.yaml")
    assert HIDDEN not in str(error.value)


@pytest.mark.parametrize(
    ("reference", "kind", "why"),
    [
        ({"env": "NOBODY_SET_THIS"}, ConfigError, "{env: NOBODY_SET_THIS}: there is no such environment variable"),
        ({"env": "SET_TO_NOTHING"}, ConfigError, "{env: SET_TO_NOTHING} is empty"),
        ({"env": "SET_TO_BYTES"}, ConfigError, "{env: SET_TO_BYTES} is not text in UTF-8"),
        ({"file": "nowhere"}, SubreplayError, "{file: nowhere}: nowhere: cannot be read: No such file or directory"),
        ({"file": "bytes"}, ConfigError, "{file: bytes}: the file is not text"),
        ({"file": "long"}, ConfigError, "{file: long}: the file is longer than 100,000 characters"),
        ({"databricks": "keys/nightly"}, EnvironmentFailed, "Databricks refused the secret (KeyError)"),
    ],
)
def test_a_place_without_a_secret_is_named(
    reference: dict[str, str], kind: type[Exception], why: str, references: dict[str, str], here: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("SET_TO_NOTHING", "")
    monkeypatch.setenv("SET_TO_BYTES", os.fsdecode(b"\xff"))
    (here / "bytes").write_bytes(b"\xff\xfe\x00")
    (here / "long").write_text("x" * 100_001)
    with pytest.raises(kind, match=re.escape(why)) as error:
        of(reference).keys.words  # noqa: B018
    assert str(error.value).startswith("keys.secret: ")


def test_elsewhere_than_on_databricks_a_scope_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "databricks.sdk.runtime", None)
    with pytest.raises(EnvironmentFailed, match="only Databricks can read a secret scope; elsewhere name"):
        of({"databricks": "keys/nightly"}).keys.words  # noqa: B018


def test_a_command_reports_a_missing_secret_first_and_warns_of_a_readable_one(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = {"scenarios": [{"name": "x", "policy": "pulsar.failover", "members": [{"consumer": "c1"}]}]}
    for secret, code, said in (
        ({"env": "NOBODY_SET_THIS"}, 2, "there is no such environment variable"),
        (HIDDEN, 0, "run.yaml: anyone who reads this file knows keys.secret. Write {env: NAME} instead."),
    ):
        Path("run.yaml").write_text(yaml.safe_dump({**run, "keys": {"secret": secret}}))
        assert main(["explain", "--config", "run.yaml", "--key", "k"]) == code
        out, err = capsys.readouterr()
        assert said in err
        assert HIDDEN not in out + err
