"""Values that nothing prints: given in the run file as they are, or by where they are kept.

A reference names one location: ``{env: NAME}``, ``{file: PATH}`` or ``{databricks: SCOPE/KEY}``. It is followed where
the value is needed, on the driver, so that neither a run nor what is made of it holds the value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, PlainSerializer

from subreplay import failures
from subreplay.errors import ConfigError, EnvironmentFailed

PLAIN: Final = "plain"
_LONGEST: Final = 100_000  # characters of a file that can be a secret
_LONE: Final = re.compile("[\ud800-\udfff]")  # half a character, as an escape may stand for: no text in UTF-8


@dataclass(frozen=True)
class Kept:
    """Where a secret is kept: ``kind`` is a name of ``KINDS``, or ``PLAIN`` where ``location`` is the secret itself."""

    kind: str
    location: str = field(repr=False)

    def value(self, key: str) -> str:
        """The secret. Raises ``ConfigError`` or ``EnvironmentFailed``, which name ``key`` and the location, where
        there is none."""
        if self.kind == PLAIN:
            return self.location
        found = KINDS[self.kind](self.location, f"{key}: {{{self.kind}: {self.location}}}")
        if not found:
            raise ConfigError(f"{key}: {{{self.kind}: {self.location}}} is empty; a secret has at least a character")
        if _LONE.search(found):  # an environment variable may hold any bytes
            raise ConfigError(f"{key}: {{{self.kind}: {self.location}}} is no text in UTF-8; write the secret as one")
        return found


def _of_environment(name: str, told: str) -> str:
    if name not in os.environ:
        raise ConfigError(f"{told}: there is no such environment variable; set it, or name another place")
    return os.environ[name]


def _of_file(path: str, told: str) -> str:
    """The text of a file without the end of its last line."""
    try:
        with Path(path).open(encoding="utf-8") as file:
            text = file.read(_LONGEST + 1)
    except OSError as error:
        found = failures.describe_os_error(error, path, "read")
        raise type(found)(f"{told}: {found}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{told}: the file is no text") from error
    if len(text) > _LONGEST:
        raise ConfigError(f"{told}: the file is longer than {_LONGEST:,} characters; is this a secret?")
    return text.rstrip("\r\n")


def _of_databricks(location: str, told: str) -> str:
    scope, _, key = location.partition("/")
    try:
        from databricks.sdk.runtime import dbutils
    except Exception as error:  # it is not installed, or knows of no workspace
        raise EnvironmentFailed(
            f"{told}: a secret scope can be read on Databricks only; elsewhere name an environment variable or a file"
        ) from error
    try:
        found: str = dbutils.secrets.get(scope=scope, key=key)
    except Exception as error:  # of Java, of Spark Connect or of the workspace, each with another class
        raise EnvironmentFailed(
            f"{told}: Databricks did not give it ({type(error).__name__}); are scope and key right, and may this user "
            "read them?"
        ) from error
    return found


KINDS: Final[dict[str, Callable[[str, str], str]]] = {
    "env": _of_environment,
    "file": _of_file,
    "databricks": _of_databricks,
}
"""How a secret is fetched, by the kind of its location."""


def parse_secret(given: Any) -> Kept:
    """A secret as a run file gives it. Raises ``ValueError``, which does not show what was given."""
    if isinstance(given, Kept):
        return given
    if isinstance(given, str) and given and not _LONE.search(given):
        return Kept(PLAIN, given)
    if isinstance(given, Mapping) and len(given) == 1:
        ((kind, location),) = given.items()
        known = kind in KINDS and isinstance(location, str) and location.isprintable()
        if known and (kind != "databricks" or all(location.partition("/"))):
            return Kept(kind, location)
    raise ValueError("not a secret; write a text, or one of {env: NAME}, {file: PATH}, {databricks: SCOPE/KEY}")


def shown(secret: Kept) -> str | dict[str, str]:
    """What a run shows of it: its location."""
    return "(not shown)" if secret.kind == PLAIN else {secret.kind: secret.location}


Secret = Annotated[Kept, BeforeValidator(parse_secret), PlainSerializer(shown)]
