"""Commands ``conformance`` and ``fidelity``: compare the simulators with real classes, brokers and groups."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from subreplay.cli.command import EXIT_CODES, terminal
from subreplay.cli.runs import Json, Quiet, Verbose
from subreplay.errors import EnvironmentFailed, InputError
from subreplay.hashing.profiles import get_rule
from subreplay.rows.model.rows import Verdict

if TYPE_CHECKING:
    from subreplay.conformance.recordings import PredictionText


def conformance(
    paths: Annotated[list[Path], typer.Argument(help="Golden files (.jsonl, .jsonl.gz), or folders of them.")],
    profile: Annotated[
        str | None, typer.Option("--profile", help="Use this profile, not that of the version folder.")
    ] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> int:
    """Replay golden files of real brokers and assignors; exit with 1 if a case differs."""
    terminal.configure(quiet=quiet, verbose=verbose, as_json=as_json)
    from subreplay.conformance.golden import golden_files as golden

    if profile is not None:
        get_rule("conformance", dict.fromkeys(golden.PROFILES), profile)
    codes, results = {0}, list[dict[str, object]]()
    for path in golden.list_golden_files(paths):
        try:
            with terminal.progress(f"replaying {path.name}"):
                judged = golden.judge_file(path, profile)
        except (InputError, EnvironmentFailed) as error:  # the other files are still judged
            terminal.warn(f"subreplay: {error}", style="red")
            codes.add(error.exit_code)
            results.append({"file": str(path), "error": str(error)})
            continue
        codes.add(EXIT_CODES[Verdict.INVALID if judged.failed else Verdict.VALID])
        line = f"{path.name}: {judged.passed} passed, {judged.failed} failed"
        terminal.print_line(f"{line} ({judged.profile})")
        for failure in judged.failures:
            terminal.print_line(f"  line {failure.line}, case {failure.case}: {failure.difference}")
        results.append({"file": str(path), "profile": judged.profile, "passed": judged.passed, "failed": judged.failed})
    terminal.print_json({"command": "conformance", "exit_code": max(codes), "files": results})
    return max(codes)


def fidelity(
    paths: Annotated[list[Path], typer.Argument(help="Recordings of a real broker or group, or folders of them.")],
    profile: Annotated[
        str | None, typer.Option("--profile", help="Use this profile, not that of the broker's version.")
    ] = None,
    predict: Annotated[bool, typer.Option("--predict", help="Predict them from their plans alone instead.")] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> int:
    """Re-enact recordings and compare; exit with 1 if messages go to other consumers. Or predict them in a table."""
    terminal.configure(quiet=quiet, verbose=verbose, as_json=as_json)
    from subreplay.conformance import recordings

    codes, results = {0}, list[dict[str, object]]()
    foretold: list[PredictionText] = []
    for folder in recordings.find_recordings(paths):
        try:
            with terminal.progress(f"{'predicting' if predict else 're-enacting'} {folder.name}"):
                if predict:
                    foretold.append(recordings.predict_recording(folder, profile))
                    results.append({"recording": str(folder), **foretold[-1].figures})
                    continue
                result = recordings.reenact_recording(folder, profile)
        except (InputError, EnvironmentFailed) as error:  # the other recordings are still judged
            terminal.warn(f"subreplay: {error}", style="red")
            codes.add(error.exit_code)
            results.append({"recording": str(folder), "error": str(error)})
            continue
        codes.add(EXIT_CODES[Verdict.VALID if result.passed else Verdict.INVALID])
        for line in result.lines:
            terminal.print_line(line)
        results.append({"recording": str(folder), "passed": result.passed, **result.figures})
    for line in recordings.format_tables(foretold):
        terminal.print_line(line)
    terminal.print_json({"command": "fidelity", "exit_code": max(codes), "recordings": results})
    return max(codes)
