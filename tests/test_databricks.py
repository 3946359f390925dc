"""The bundle of ``databricks.yml``: what the platform knows, the names that files share, and how the job ends."""

from __future__ import annotations

import re
import runpy
import sys
from importlib import import_module
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from subreplay.cli import main
from subreplay.config import run as config
from subreplay.config.run import Schema
from subreplay.config.secrets import SecretLocation

ROOT = Path(__file__).parents[1]
BUNDLE: dict[str, Any] = yaml.safe_load((ROOT / "databricks.yml").read_text(encoding="utf-8"))
RUN = ROOT / "conf" / "databricks.yaml"
CLASSES = {
    "apps": "App",
    "jobs": "Job",
    "schemas": "Schema",
    "volumes": "Volume",
    "secret_scopes": "SecretScope",
    "dashboards": "Dashboard",
}
AUDIT = BUNDLE["resources"]["jobs"]["nightly_audit"]


def resources() -> list[Any]:
    given = [(kind, name) for kind, some in BUNDLE["resources"].items() for name in some]
    return [pytest.param(*each, id=".".join(each)) for each in given]


@pytest.mark.parametrize(("kind", "name"), resources())
def test_a_resource_is_one_that_the_platform_knows(kind: str, name: str) -> None:
    known = pytest.importorskip(f"databricks.bundles.{kind}", reason="databricks-bundles is not installed")
    resource = getattr(known, CLASSES[kind])
    given = BUNDLE["resources"][kind][name]
    assert set(resource.from_dict(given).as_dict()) == set(given)
    with pytest.raises(ValueError, match="Unexpected field 'naem'"):
        resource.from_dict({**given, "naem": name})


def test_its_sections_are_those_of_a_bundle() -> None:
    assert set(BUNDLE) == {"bundle", "variables", "artifacts", "resources", "targets"}
    assert set(BUNDLE["targets"]) == {"dev", "prod"}
    assert BUNDLE["artifacts"] == {"wheel": {"type": "whl", "build": "python -m build --wheel"}}
    text = (ROOT / "databricks.yml").read_text(encoding="utf-8")
    used = set(re.findall(r"\$\{var\.(\w+)\}", text))
    assert used == set(BUNDLE["variables"])


def test_the_app_downloads_the_profile_and_serves_it_at_the_port_of_the_platform(tmp_path: Path) -> None:
    studio = BUNDLE["resources"]["apps"]["studio"]
    folder = ROOT / studio["source_code_path"]
    app = yaml.safe_load((folder / "app.yaml").read_text(encoding="utf-8"))
    program = runpy.run_path(str(folder / app["command"][1]))
    given = {one["name"]: one["value"] for one in app["env"]} | {"DATABRICKS_APP_PORT": "8000"}
    (resource,) = studio["resources"]
    volume = resource["uc_securable"]["securable_full_name"].rpartition(".")[2]
    assert f"/{volume}/" in given["PROFILE"]
    client = FakeVolume({given["PROFILE"]: {"profile": {"part.parquet": b"rows"}}})
    program["download"](client, given["PROFILE"], tmp_path)
    assert (tmp_path / "profile/part.parquet").read_bytes() == b"rows"
    arguments = program["build_arguments"](str(tmp_path), given)
    assert arguments[:3] == ["studio", "--profile", str(tmp_path)]
    assert arguments[arguments.index("--port") + 1] == "8000"
    assert arguments[arguments.index("--public-url") + 1] == given["PUBLIC_URL"]


class FakeVolume:
    """The files of a volume, as the platform's client returns them."""

    def __init__(self, folders: dict[str, Any]) -> None:
        self._folders, self.files = folders, self

    def list_directory_contents(self, path: str) -> list[Any]:
        found: Any = next(content for root, content in self._folders.items() if path.startswith(root))
        root = next(root for root in self._folders if path.startswith(root))
        for part in path.removeprefix(root).split("/")[1:]:
            found = found[part]
        return [
            SimpleNamespace(name=name, path=f"{path}/{name}", is_directory=isinstance(inside, dict), inside=inside)
            for name, inside in found.items()
        ]

    def download(self, path: str) -> Any:
        folder, _, name = path.rpartition("/")
        (entry,) = (one for one in self.list_directory_contents(folder) if one.name == name)
        return SimpleNamespace(contents=BytesIO(entry.inside))


def test_files_and_names_are_there() -> None:
    for task in BUNDLE["resources"]["jobs"]["notebooks"]["tasks"]:
        assert (ROOT / task["notebook_task"]["notebook_path"]).exists()
    variables = {name: each.get("default") for name, each in BUNDLE["variables"].items()}
    names = variables["catalog"], variables["schema"]
    dashboard = (ROOT / BUNDLE["resources"]["dashboards"]["subreplay"]["file_path"]).read_text(encoding="utf-8")
    assert f"FROM {'.'.join(names)}.latest_runs" in dashboard
    run = config.load(RUN)
    assert run.output.tables == Schema(schema=".".join(names))
    assert run.output.report.startswith(
        f"/Volumes/{'/'.join(names)}/{BUNDLE['resources']['volumes']['reports']['name']}/"
    )
    (scope,) = (each["name"] for each in BUNDLE["resources"]["secret_scopes"].values())
    assert run.keys.secret == SecretLocation("databricks", f"{scope}/keys")


def test_the_job_audits_the_day_before_its_own_and_fails_where_the_verdict_is_not_valid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = AUDIT["tasks"][0]["python_wheel_task"]
    scripts = dict(re.findall(r'^([\w-]+) = "(subreplay\.[\w.:]+)"$', (ROOT / "pyproject.toml").read_text(), re.M))
    module, function = scripts[task["entry_point"]].split(":")
    job = getattr(import_module(module), function)
    values = {"${workspace.file_path}": str(ROOT), "{{job.parameters.day}}": "2026-11-22"}
    arguments = [re.sub(r"\$\{.*\}|\{\{.*\}\}", lambda found: values[found[0]], each) for each in task["parameters"]]
    monkeypatch.setattr(sys, "argv", ["job", *arguments])
    requested: list[Any] = []

    def load_run(*given: Any, **_: Any) -> config.RunConfig:
        requested.append(given)
        return config.load(RUN)

    for code in (0, 1):
        monkeypatch.setattr(main, "load_run", load_run)
        monkeypatch.setattr(main, "_audit_one", lambda *_, code=code: code)
        if code:
            with pytest.raises(SystemExit) as ended:
                job()
            assert ended.value.code == code
        else:
            job()
    assert requested == [(RUN, "2026-11-21", None, None, True)] * 2
    assert AUDIT["parameters"] == [{"name": "day", "default": "{{job.trigger.time.iso_date}}"}]


@pytest.mark.parametrize("name", ["nightly_audit", "nightly_audit_serverless"])
def test_a_job_ends_in_time_tries_again_and_tells_somebody(name: str) -> None:
    job = BUNDLE["resources"]["jobs"][name]
    (task,) = job["tasks"]
    (rule,) = job["health"]["rules"]
    assert 0 < rule["value"] < job["timeout_seconds"]
    assert job["email_notifications"]["on_failure"] == ["${var.notify}"]
    assert (task["max_retries"], task["min_retry_interval_millis"]) == (1, 300_000)


def test_the_serverless_job_runs_the_same_command_without_a_cluster() -> None:
    serverless = BUNDLE["resources"]["jobs"]["nightly_audit_serverless"]
    (task,), (environment,) = serverless["tasks"], serverless["environments"]
    assert task["python_wheel_task"] == AUDIT["tasks"][0]["python_wheel_task"]
    assert not {"job_cluster_key", "libraries"} & {*task, *serverless}
    assert task["environment_key"] == environment["environment_key"]
    assert environment["spec"]["dependencies"] == ["./dist/*.whl"]


def test_a_day_before_is_a_day(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["audit", "--config", str(RUN), "--day-before", "today"]) == 2
    assert "--day-before 'today': not a day; write YYYY-MM-DD" in capsys.readouterr().err
    assert main.main(["audit", "--config", str(RUN), "--date", "2026-11-21", "--day-before", "2026-11-21"]) == 2
    assert "pass either --date or --day-before" in capsys.readouterr().err
