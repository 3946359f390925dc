"""Golden files: results of a real class, one case per line, judged against the classes that the pipeline uses."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from subreplay import failures
from subreplay.conformance.golden import kafka_cases, pulsar_cases
from subreplay.conformance.golden.dispatcher_cases import judge_key_shared_dispatch_case, judge_shared_dispatch_case
from subreplay.conformance.golden.golden_cases import Case
from subreplay.errors import InputError

PROFILE_BY_VERSION = {**pulsar_cases.PROFILE_OF, **kafka_cases.PROFILE_OF}
"""The profile of a version's golden files, by the folder name of the version."""
PROFILES = (*pulsar_cases.STICKY_HASH_RULES, *kafka_cases.PROFILE_OF.values())
"""Every profile under which golden files can be replayed."""
CASES: Mapping[str, Callable[[Case, str], str | None]] = {
    **pulsar_cases.CASES,
    "dispatch_shared": judge_shared_dispatch_case,
    "dispatch_key_shared": judge_key_shared_dispatch_case,
    **kafka_cases.CASES,
}
"""The function that replays a case, by the kind of its file."""
MAX_FAILURES_SHOWN = 5
"""The largest number of failures that are shown per file."""


class CaseFailure(NamedTuple):
    """A failed case with its first difference."""

    line: int
    case: str
    difference: str


@dataclass(frozen=True)
class FileJudgement:
    """The results of the cases of one file; ``failures`` are the first few."""

    path: Path
    profile: str
    passed: int
    failed: int
    failures: tuple[CaseFailure, ...]


def list_golden_files(paths: Iterable[Path]) -> list[Path]:
    """Return the files among ``paths`` and every ``*.jsonl[.gz]`` in folders; raises InputError if there are none."""
    files: list[Path] = []
    for path in paths:
        files_in_path = (
            sorted(p for p in path.rglob("*") if p.name.endswith((".jsonl", ".jsonl.gz"))) if path.is_dir() else [path]
        )
        if not files_in_path:
            raise InputError(
                f"{path}: the folder contains no *.jsonl or *.jsonl.gz file. Name a folder with golden files."
            )
        files += files_in_path
    return files


def judge_file(path: Path, profile: str | None = None) -> FileJudgement:
    """Replay every case of a file, plain or gzip, under ``profile`` or that of its version folder.

    The kind of its cases is the file's name up to the first dot. A case that raises has failed; none is skipped. Raises
    InputError for a file of another kind or an unknown version, and for an unreadable, empty or invalid file.
    """
    kind = path.name.split(".")[0]
    replay, effective_profile = _find_replay(path, kind), profile or _find_profile(path, kind)
    passed = failed = 0
    failures: list[CaseFailure] = []
    for line, case in _read_cases(path):
        difference = _replay_case(replay, case, effective_profile)
        if difference is None:
            passed += 1
            continue
        failed += 1
        if len(failures) < MAX_FAILURES_SHOWN:
            failures.append(CaseFailure(line, str(case.get("case", case.get("seq", ""))), difference))
    if not passed + failed:
        raise InputError(f"{path}: the file contains no case. A golden file has one JSON object per line.")
    return FileJudgement(path, effective_profile, passed, failed, tuple(failures))


def _find_replay(path: Path, kind: str) -> Callable[[Case, str], str | None]:
    if kind not in CASES:
        raise InputError(
            f"{path}: the name does not say what the cases are about. Rename the file so that it begins with one of "
            f"{', '.join(CASES)}."
        )
    return CASES[kind]


def _find_profile(path: Path, kind: str) -> str:
    for folder in reversed(path.resolve().parts[:-1]):
        if folder in PROFILE_BY_VERSION:
            return PROFILE_BY_VERSION[folder]
    if kind in kafka_cases.CASES:
        return next(iter(kafka_cases.PROFILE_OF.values()))
    raise InputError(
        f"{path}: the path does not name the broker's version. Move the file to a folder named "
        f"{' or '.join(PROFILE_BY_VERSION)}, or pass --profile."
    )


def _read_cases(path: Path) -> Iterator[tuple[int, Case]]:
    try:
        with _open_text(path) as lines:
            for number, text in enumerate(lines, 1):
                if not text.strip():
                    continue
                case = json.loads(text)
                if not isinstance(case, dict):
                    raise InputError(f"{path}: line {number} is not a JSON object, and each case must be one.")
                yield number, case
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise failures.describe_read_error(error, path) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: the file is not in the JSON Lines format: {error}") from error


def _open_text(path: Path) -> IO[str]:
    return gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8")


def _replay_case(replay: Callable[[Case, str], str | None], case: Case, profile: str) -> str | None:
    try:
        return replay(case, profile)
    except Exception as error:  # a case that is not understood has not passed
        return f"the case could not be replayed: {type(error).__name__}: {error}"
