"""Command plan: what is said before Spark is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from subreplay.cli.main import main
from subreplay.whatif.planning.questions.answer import QUESTIONS


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_needs_messages(question: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", question]) == 2
    assert "pass either --config or --messages" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        (["--p99", "2s", "--backlog", "5", "--within", "1h"], "set p99 or backlog, not both"),
        (["--backlog", "5"], "backlog and within belong together"),
        (["--window", "10"], "not a duration"),
        (["--service", "soon"], "not a duration"),
        (["--utilisation", "0"], "plan.sizing.utilisation"),
    ],
)
def test_a_wrong_option_is_reported_by_its_key(
    options: list[str], reported: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.yaml").write_text("traffic: {path: nowhere}\n")
    assert main(["plan", "consumers", "--config", str(tmp_path / "run.yaml"), *options]) == 2
    assert reported in capsys.readouterr().err


def test_an_unknown_key_of_section_plan_is_reported_with_a_hint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.yaml").write_text("plan: {consumer: 3}\n")
    assert main(["plan", "policy", "--config", str(tmp_path / "run.yaml")]) == 2
    assert "consumers" in capsys.readouterr().err


def test_an_unknown_question_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "weather"]) == 2
