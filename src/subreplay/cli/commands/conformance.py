"""Commands ``conformance`` and ``fidelity``: the simulators against real classes, brokers and groups."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from subreplay.cli.command import EXIT, terminal
from subreplay.cli.runs import Json, Quiet, Verbose
from subreplay.errors import EnvironmentFailed, InputError
from subreplay.hashing.profiles import rule_of
from subreplay.rows.model.rows import Verdict

if TYPE_CHECKING:
    from subreplay.conformance.recorded import Foretold


def conformance(
    paths: Annotated[list[Path], typer.Argument(help="Golden files (.jsonl, .jsonl.gz), or folders of them.")],
    profile: Annotated[str | None, typer.Option("--profile", help="Instead of the one of the version folder.")] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> int:
    """Replay golden files of the real brokers and assignors; exit 1 if a case comes out otherwise."""
    terminal.speak(quiet=quiet, verbose=verbose, as_json=as_json)
    from subreplay.conformance.golden import files as golden

    if profile is not None:
        rule_of("conformance", dict.fromkeys(golden.PROFILES), profile)
    codes, told = {0}, list[dict[str, object]]()
    for path in golden.golden_files(paths):
        try:
            with terminal.progress(f"replaying {path.name}"):
                judged = golden.judge(path, profile)
        except (InputError, EnvironmentFailed) as error:  # the other files are judged all the same
            terminal.warn(f"subreplay: {error}", style="red")
            codes.add(error.exit_code)
            told.append({"file": str(path), "error": str(error)})
            continue
        codes.add(EXIT[Verdict.INVALID if judged.failed else Verdict.VALID])
        line = f"{path.name}: {judged.passed} passed, {judged.failed} failed"
        terminal.say(f"{line} ({judged.profile})")
        for failure in judged.failures:
            terminal.say(f"  line {failure.line}, case {failure.case}: {failure.difference}")
        told.append({"file": str(path), "profile": judged.profile, "passed": judged.passed, "failed": judged.failed})
    terminal.object({"command": "conformance", "exit_code": max(codes), "files": told})
    return max(codes)


def fidelity(
    paths: Annotated[list[Path], typer.Argument(help="Recordings of a real broker or group, or folders of them.")],
    profile: Annotated[
        str | None, typer.Option("--profile", help="Instead of the one of the broker's version.")
    ] = None,
    predict: Annotated[bool, typer.Option("--predict", help="Predict them from their plans alone instead.")] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> int:
    """Re-enact recordings and compare; exit 1 if messages go to other consumers. Or predict them, and tabulate."""
    terminal.speak(quiet=quiet, verbose=verbose, as_json=as_json)
    from subreplay.conformance import recorded

    codes, told = {0}, list[dict[str, object]]()
    foretold: list[Foretold] = []
    for folder in recorded.recordings(paths):
        try:
            with terminal.progress(f"{'predicting' if predict else 're-enacting'} {folder.name}"):
                if predict:
                    foretold.append(recorded.predict(folder, profile))
                    told.append({"recording": str(folder), **foretold[-1].figures})
                    continue
                result = recorded.reenact(folder, profile)
        except (InputError, EnvironmentFailed) as error:  # the other recordings are judged all the same
            terminal.warn(f"subreplay: {error}", style="red")
            codes.add(error.exit_code)
            told.append({"recording": str(folder), "error": str(error)})
            continue
        codes.add(EXIT[Verdict.VALID if result.passed else Verdict.INVALID])
        for line in result.lines:
            terminal.say(line)
        told.append({"recording": str(folder), "passed": result.passed, **result.figures})
    for line in recorded.tables(foretold):
        terminal.say(line)
    terminal.object({"command": "fidelity", "exit_code": max(codes), "recordings": told})
    return max(codes)
