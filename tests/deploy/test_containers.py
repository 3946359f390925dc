"""The Dockerfile and the CronJob: what they name is there, and nothing runs as root. No image is built here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from subreplay.config import run as config

ROOT = Path(__file__).parents[2]
INSTRUCTIONS = [
    line.split(maxsplit=1)
    for line in re.sub(r"\\\n", " ", (ROOT / "docs/assets/deploy/Dockerfile").read_text(encoding="utf-8")).splitlines()
    if line and not line.startswith("#")
]
KNOWN = {"ARG", "FROM", "WORKDIR", "COPY", "RUN", "ENV", "ENTRYPOINT", "CMD", "USER"}
RUN_FILE, CRON_JOB = yaml.safe_load_all((ROOT / "docs/assets/deploy/cronjob.yaml").read_text(encoding="utf-8"))
POD: dict[str, Any] = CRON_JOB["spec"]["jobTemplate"]["spec"]["template"]["spec"]


def stages() -> dict[str, list[tuple[str, str]]]:
    """The instructions of each stage, after those of the stage that it begins with."""
    found: dict[str, list[tuple[str, str]]] = {}
    name = ""
    for instruction, words in INSTRUCTIONS:
        if instruction == "FROM":
            base, _, name = words.split()
            found[name] = [*found.get(base, [])]
            assert base in found or base == "python:${PYTHON}-slim"
        elif name:
            found[name].append((instruction, words))
    return found


def test_instructions_are_those_of_a_dockerfile() -> None:
    assert {instruction for instruction, _ in INSTRUCTIONS} == KNOWN


def test_what_is_copied_exists_and_goes_to_the_builder() -> None:
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = [words.split()[:-1] for instruction, words in INSTRUCTIONS if instruction == "COPY"]
    local = {name for names in copied if not names[0].startswith("--from") for name in names}
    assert local == sent
    assert all((ROOT / name).exists() for name in local)
    from_stages = {names[0].removeprefix("--from=") for names in copied if names[0].startswith("--from")}
    assert from_stages <= {*stages()}


@pytest.mark.parametrize("name", ["local", "spark"])
def test_an_image_runs_the_command_as_a_user_without_rights(name: str) -> None:
    found = stages()[name]
    users = [words for instruction, words in found if instruction == "USER"]
    assert users == ["10001"]
    assert found[-1][0] == "USER"
    assert ("ENTRYPOINT", '["subreplay"]') in found


def test_the_image_without_a_target_is_that_of_the_local_engine() -> None:
    assert [*stages()][-1] == "local"
    assert not any("openjdk" in words for _, words in stages()["local"])


def test_the_run_file_of_the_cron_job_is_legal() -> None:
    run = config.parse(yaml.safe_load(RUN_FILE["data"]["run.yaml"]), "run.yaml")
    (audit,) = POD["containers"]
    mounts = {each["mountPath"] for each in audit["volumeMounts"]}
    assert all(
        any(str(path).startswith(f"{mount}/") for mount in mounts) for path in (run.output.tables, run.output.report)
    )


def test_the_cron_job_audits_the_day_before_and_repeats_only_what_may_end_differently() -> None:
    spec = CRON_JOB["spec"]
    (audit,) = POD["containers"]
    assert (CRON_JOB["apiVersion"], CRON_JOB["kind"]) == ("batch/v1", "CronJob")
    assert (spec["schedule"], spec["timeZone"], spec["concurrencyPolicy"]) == ("30 2 * * *", "Etc/UTC", "Forbid")
    assert '--day-before "$(date -u +%F)"' in audit["args"][0]
    (rule,) = spec["jobTemplate"]["spec"]["podFailurePolicy"]["rules"]
    assert (rule["action"], rule["onExitCodes"]["values"]) == ("FailJob", [1, 2, 3])
    assert POD["restartPolicy"] == "Never"  # else there is no podFailurePolicy


def test_the_pod_runs_without_rights_and_writes_to_volumes_only() -> None:
    (audit,) = POD["containers"]
    assert POD["securityContext"]["runAsNonRoot"]
    assert POD["securityContext"]["runAsUser"] == 10001
    rights = audit["securityContext"]
    assert rights["readOnlyRootFilesystem"]
    assert not rights["allowPrivilegeEscalation"]
    volumes = {each["name"] for each in POD["volumes"]}
    assert {each["name"] for each in audit["volumeMounts"]} == volumes
    assert not audit["image"].endswith(":latest")
