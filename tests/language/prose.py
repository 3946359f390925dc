"""Run the prose linter proselint over pages and over the visible strings of the package."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from proselint.checks import __register__ as CHECKS
from proselint.config import DEFAULT, Config
from proselint.registry import CheckRegistry
from proselint.tools import LintFile

from tests.language.messages import Message, format_messages

ROOT: Final = Path(__file__).parents[2]
SWITCHED_OFF: Final = ("typography", "lexical_illusions", "uncomparables", "dates_times")
"""Quotes of code, a heading that its first sentence repeats, ``more only``, and ``x-y`` between two figures."""


def list_pages() -> list[Path]:
    """Return the pages that a person reads: the README, the changelog, how to contribute, and everything in docs."""
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def find_prose_faults(pages: list[Path], messages: list[Message]) -> Iterator[str]:
    """Yield what proselint finds in pages and in visible strings, a line each."""
    CheckRegistry().register_many(CHECKS)
    checks = {**DEFAULT["checks"], **dict.fromkeys(SWITCHED_OFF, False)}
    config = Config(max_errors=DEFAULT["max_errors"], checks=checks)
    with tempfile.TemporaryDirectory() as folder:
        strings = Path(folder, "visible strings")
        strings.write_text(format_messages(messages), encoding="utf-8")
        for page in [*pages, strings]:
            for fault in LintFile(page).lint(config):
                yield f"{page.name}:{fault.pos[0]}: {fault.check_result.message}"
