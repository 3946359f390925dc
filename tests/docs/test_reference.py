"""Reference pages that are written by hand name what the package has: policies, profiles, exit codes, options."""

from __future__ import annotations

import re

from subreplay.cli.command import EXIT_CODES
from subreplay.cli.interruption import SIGNALS
from subreplay.errors import ConfigError, EnvironmentFailed, InputError
from subreplay.hashing.profiles import KEYLESS
from subreplay.semantics.policies import REGISTRY
from tests.docs.pages import DOCS

PROFILES = (DOCS / "reference" / "profiles.md").read_text(encoding="utf-8")
EXITS = (DOCS / "reference" / "exit-codes.md").read_text(encoding="utf-8")


def test_every_policy_and_profile_is_on_its_page() -> None:
    rows = re.findall(r"^\| `((?:pulsar|kafka)\.[a-z_.]+)` ", PROFILES, re.MULTILINE)
    assert sorted(rows) == sorted(REGISTRY)
    assert all(f"`{profile}`" in PROFILES for profile in KEYLESS)


def test_every_exit_code_is_on_its_page() -> None:
    codes = re.findall(r"^\| ([\d, ]+) \|", EXITS, re.MULTILINE)
    signals = {128 + number for number in SIGNALS}
    errors = {ConfigError.exit_code, InputError.exit_code, EnvironmentFailed.exit_code}
    assert [int(code) for part in codes for code in part.split(", ")] == sorted(
        {*EXIT_CODES.values(), *errors, *signals}
    )
