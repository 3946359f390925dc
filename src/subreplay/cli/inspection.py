"""Describe a source for `subreplay inspect`, and write the run file to start from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from subreplay import failures
from subreplay.adapters.source.quarantine_reasons import describe_reason
from subreplay.config.live import LIVE
from subreplay.errors import InputError
from subreplay.hashing.profiles import get_latest_profile
from subreplay.reports.formatting import format_count, format_percent, format_plural

if TYPE_CHECKING:
    from subreplay.adapters.source.table_overview import MessageOverview
    from subreplay.pipeline.inspection import InspectedFiles, Inspection

MOST_REASONS: Final = 5
_HEADER: Final = "# Written by subreplay inspect"
_UNEDITED: Final = "# `inspect` replaces this file as long as nobody edits it: "


def describe_source(
    location: str, found: Inspection, rules: tuple[list[str], dict[str, list[str]]] | None = None
) -> Iterator[str]:
    """Describe the format and the contents of a source, and with ``rules`` which of them an audit can check."""
    known = {"canonical": "canonical columns", "by name": "columns recognised by their names and contents"}
    form = found.source.from_ if found.source.from_ in LIVE else found.source.format
    form = form if found.source.table is None else "a table"
    yield f"{location}: {form}, {known.get(found.candidate.name, found.candidate.name)}"
    for why in found.candidate.evidence if found.candidate.name == "by name" else ():
        yield f"  {why}"
    for assumed in found.answer.assumed:
        yield f"  assumed: {assumed}"
    for warning in found.candidate.unjudged:
        yield f"  note: {warning}"
    for column in found.answer.open:
        why = found.candidate.questions.get(column, "no column is known to contain it")
        yield f"  open: {column}: {why}"
    if found.overview is None:
        return
    yield from _describe_messages(found.overview)
    if rules is None:
        return
    applicable, inapplicable = rules
    yield "evidence: messages only. A what-if needs nothing else; an audit also needs deliveries"
    yield f"rules that an audit could check: {', '.join(applicable)}"
    for why, codes in inapplicable.items():
        yield f"not applicable: {', '.join(codes)}: {why}"


def describe_files(found: InspectedFiles) -> Iterator[str]:
    """Describe messages and the files that belong to them."""
    yield from describe_source(found.messages.source.location, found.messages)
    for each in found.beside:
        yield f"{each.source.location}: {each.source.format}, {each.found.table}"
        for assumed in each.found.assumed:
            yield f"  assumed: {assumed}"
        yield f"{each.found.table}: {_format_counts(each.rows, each.valid)}"
        yield from _format_reasons(each.why)
    if found.policy is not None:
        yield f"policy: {found.policy[0]} is assumed, because {found.policy[1]}"
    if found.policy is not None and all(each.found.table != "membership" for each in found.beside):
        yield "members: no file lists them; every consumer that received a message is assumed to be a member"


def _format_counts(rows: int, valid: int) -> str:
    return f"{format_count(rows)} rows = {format_count(valid)} valid + {format_count(rows - valid)} quarantined"


def _format_reasons(why: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for reason in why[:MOST_REASONS]:
        yield f"  quarantined: {format_plural(reason['count'], 'row')}: {describe_reason(reason)}"


def _describe_messages(overview: MessageOverview) -> Iterator[str]:
    yield f"messages: {_format_counts(overview.rows, overview.valid)}"
    yield from _format_reasons(overview.why)
    if overview.copies:
        copies = format_plural(overview.copies, "row")
        yield f"  duplicates: {copies}, exact copies of others; a what-if counts each message once"
    if overview.valid:
        more = f" and {format_count(len(overview.topics) - 3)} more" if len(overview.topics) > 3 else ""
        parts = "not partitioned" if overview.unpartitioned else f"{format_count(overview.partitions)} partitions"
        yield f"topics: {', '.join(overview.topics[:3])}{more}; {parts}"
        yield f"time: {overview.first:%Y-%m-%d %H:%M:%S} to {overview.last:%Y-%m-%d %H:%M:%S} UTC"
        keyed = format_percent(overview.keyed / overview.valid)
        yield f"keys: {keyed} of the messages have one, about {format_count(overview.keys)} different"


def write_run_file(
    path: Path, run: dict[str, object], found: Inspection | None, location: str, more: Sequence[str] = ()
) -> None:
    """Write a run file with its assumptions and ``more`` of them as comments.

    A file that this function wrote and nobody edited is replaced. A file of an earlier version may have been edited, so
    it is kept under another name. Raises ``InputError`` if another file exists already.
    """
    earlier = path.with_name(f"{path.name}.old")
    kept = path.exists() and not _is_unedited(path)
    if kept and (earlier.exists() or not _is_of_earlier_version(path)):
        remedy = "Name another file with --to, or remove this one."
        raise InputError(f"{path} exists already and may have been edited. {remedy}")
    notes = [
        *(f"assumed: {each}" for each in (*(() if found is None else found.answer.assumed), *more)),
        *(f"write {each} for ?" for each in (() if found is None else found.answer.open)),
    ]
    text = "".join(f"# {line}\n" for line in notes) + yaml.safe_dump(
        run, sort_keys=False, allow_unicode=True, width=120
    )
    if kept:
        text = f"# The earlier run file is now {earlier.name}.\n{text}"
    head = f"{_HEADER} {location}.\n{_UNEDITED}{_digest(text)}\n"
    try:
        if kept:
            path.rename(earlier)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(head + text, encoding="utf-8")
    except OSError as error:
        raise failures.describe_os_error(error, path, "written") from error


def _is_unedited(path: Path) -> bool:
    """Return whether ``write_run_file`` wrote a file and nobody has edited it."""
    try:
        _, digest, text = path.read_text(encoding="utf-8").split("\n", 2)
    except (OSError, ValueError):
        return False
    return digest == f"{_UNEDITED}{_digest(text)}"


def _is_of_earlier_version(path: Path) -> bool:
    """Return whether a version wrote a file that did not add a digest of its text."""
    try:
        first, _, text = path.read_text(encoding="utf-8").partition("\n")
    except (OSError, ValueError):
        return False
    return first.startswith(_HEADER) and not text.startswith(_UNEDITED)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def build_scenarios(
    policy: str | None, against: Sequence[str], consumers: int, known: Sequence[Any]
) -> list[dict[str, object]]:
    """Build the scenarios of a what-if without a run file: the named policies, or those of ``known`` scenarios."""
    from subreplay.pipeline.inspection import make_members

    first = policy or str(known[0]["policy"])
    rest = against or [str(each["policy"]) for each in known]
    return [
        {"name": name, "policy": name, "profile": get_latest_profile(name), "members": make_members(consumers)}
        for name in dict.fromkeys((first, *rest))
    ]
