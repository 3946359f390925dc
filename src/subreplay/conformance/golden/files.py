"""Golden files: what a real class answered, one case a line, judged against the classes that the pipeline uses."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from subreplay import failures
from subreplay.conformance.golden import kafka, pulsar
from subreplay.conformance.golden.cases import Case
from subreplay.conformance.golden.pulsar_dispatch import dispatch_key_shared_case, dispatch_shared_case
from subreplay.errors import InputError

PROFILE_OF = {**pulsar.PROFILE_OF, **kafka.PROFILE_OF}
"""The profile that a version's golden files hold for, by the version as it names a folder."""
PROFILES = (*pulsar.STICKY_HASH_RULES, *kafka.PROFILE_OF.values())
"""Every profile that golden files can be replayed under."""
CASES: Mapping[str, Callable[[Case, str], str | None]] = {
    **pulsar.CASES,
    "dispatch_shared": dispatch_shared_case,
    "dispatch_key_shared": dispatch_key_shared_case,
    **kafka.CASES,
}
"""What replays a case, by the kind of its file."""
SHOWN = 5
"""How many of a file's failures are told."""


class Failure(NamedTuple):
    """A case that came out otherwise, and the first difference in words."""

    line: int
    case: str
    difference: str


@dataclass(frozen=True)
class Judgement:
    """How the cases of one file came out; ``failures`` are the first few."""

    path: Path
    profile: str
    passed: int
    failed: int
    failures: tuple[Failure, ...]


def golden_files(paths: Iterable[Path]) -> list[Path]:
    """The files among ``paths``, and every ``*.jsonl[.gz]`` in the folders; raises InputError for none."""
    found: list[Path] = []
    for path in paths:
        inside = (
            sorted(p for p in path.rglob("*") if p.name.endswith((".jsonl", ".jsonl.gz"))) if path.is_dir() else [path]
        )
        if not inside:
            raise InputError(f"{path}: no *.jsonl or *.jsonl.gz file in this folder")
        found += inside
    return found


def judge(path: Path, profile: str | None = None) -> Judgement:
    """Replay every case of a file, plain or gzip, under ``profile`` or the one its version folder stands for.

    The kind of its cases is the file's name up to the first dot. A case that raises has failed: nothing is skipped.
    Raises InputError for a file of another kind, of unknown version, unreadable, empty or not JSON lines.
    """
    kind = path.name.split(".")[0]
    replay, chosen = _replay(path, kind), profile or _profile(path, kind)
    passed = failed = 0
    failures: list[Failure] = []
    for line, case in _cases(path):
        difference = _difference(replay, case, chosen)
        if difference is None:
            passed += 1
            continue
        failed += 1
        if len(failures) < SHOWN:
            failures.append(Failure(line, str(case.get("case", case.get("seq", ""))), difference))
    if not passed + failed:
        raise InputError(f"{path}: no case in this file")
    return Judgement(path, chosen, passed, failed, tuple(failures))


def _replay(path: Path, kind: str) -> Callable[[Case, str], str | None]:
    if kind not in CASES:
        raise InputError(
            f"{path}: no golden file that is understood: its name has to begin with one of {', '.join(CASES)}"
        )
    return CASES[kind]


def _profile(path: Path, kind: str) -> str:
    for folder in reversed(path.resolve().parts[:-1]):
        if folder in PROFILE_OF:
            return PROFILE_OF[folder]
    if kind in kafka.CASES:
        return next(iter(kafka.PROFILE_OF.values()))
    raise InputError(
        f"{path}: of which version? Put it into a folder named {' or '.join(PROFILE_OF)}, or give --profile"
    )


def _cases(path: Path) -> Iterator[tuple[int, Case]]:
    try:
        with _opened(path) as lines:
            for number, text in enumerate(lines, 1):
                if not text.strip():
                    continue
                case = json.loads(text)
                if not isinstance(case, dict):
                    raise InputError(f"{path}: line {number} is no case: a case is a JSON object")
                yield number, case
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise failures.describe_read_error(error, path) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON lines: {error}") from error


def _opened(path: Path) -> IO[str]:
    return gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8")


def _difference(replay: Callable[[Case, str], str | None], case: Case, profile: str) -> str | None:
    try:
        return replay(case, profile)
    except Exception as error:  # a case that is not understood has not passed
        return f"not understood: {type(error).__name__}: {error}"
