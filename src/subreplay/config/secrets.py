"""Secrets that are never printed: written in the run file, or referenced by their location.

A reference names one location: ``{env: NAME}``, ``{file: PATH}`` or ``{databricks: SCOPE/KEY}``. The driver reads it
when it needs the value, so neither the run nor its results contain the value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from subreplay import failures
from subreplay.errors import ConfigError, EnvironmentFailed

PLAIN: Final = "plain"
_LONGEST: Final = 100_000  # characters of a file that can be a secret
_LONE: Final = re.compile("[\ud800-\udfff]")  # half of a character, which an escape can produce and UTF-8 cannot encode


@dataclass(frozen=True)
class SecretLocation:
    """The location of a secret: ``kind`` is a name of ``KINDS``, or ``PLAIN`` if ``location`` is the secret itself."""

    kind: str
    location: str = field(repr=False)

    def value(self, key: str) -> str:
        """Return the secret. Raises ``ConfigError`` or ``EnvironmentFailed`` with ``key`` and the location."""
        if self.kind == PLAIN:
            return self.location
        found = KINDS[self.kind](self.location, f"{key}: {{{self.kind}: {self.location}}}")
        if not found:
            raise ConfigError(f"{key}: {{{self.kind}: {self.location}}} is empty; a secret has at least a character")
        if _LONE.search(found):  # an environment variable can contain any bytes
            raise ConfigError(
                f"{key}: {{{self.kind}: {self.location}}} is not text in UTF-8; store the secret as UTF-8 text"
            )
        return found


def _read_environment(name: str, reference: str) -> str:
    if name not in os.environ:
        raise ConfigError(f"{reference}: there is no such environment variable; set it, or name another location")
    return os.environ[name]


def _read_file(path: str, reference: str) -> str:
    """Return the text of a file without the end of its last line."""
    try:
        with Path(path).open(encoding="utf-8") as file:
            text = file.read(_LONGEST + 1)
    except OSError as error:
        found = failures.describe_os_error(error, path, "read")
        raise type(found)(f"{reference}: {found}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{reference}: the file is not text; name the file of the secret") from error
    if len(text) > _LONGEST:
        limit = f"{_LONGEST:,} characters"
        raise ConfigError(
            f"{reference}: the file is longer than {limit}, so it is probably not a secret; check the name"
        )
    return text.rstrip("\r\n")


def _read_databricks(location: str, reference: str) -> str:
    scope, _, key = location.partition("/")
    try:
        from databricks.sdk.runtime import dbutils
    except Exception as error:  # not installed, or outside a workspace
        raise EnvironmentFailed(
            f"{reference}: only Databricks can read a secret scope; elsewhere name an environment variable or a file"
        ) from error
    try:
        found: str = dbutils.secrets.get(scope=scope, key=key)
    except Exception as error:  # Java, Spark Connect and the workspace raise different classes
        raise EnvironmentFailed(
            f"{reference}: Databricks refused the secret ({type(error).__name__}); check scope and key, and that this "
            "user may read them"
        ) from error
    return found


KINDS: Final[dict[str, Callable[[str, str], str]]] = {
    "env": _read_environment,
    "file": _read_file,
    "databricks": _read_databricks,
}
"""The function that reads a secret, by the kind of its location."""


def parse_secret(value: Any) -> SecretLocation:
    """Parse a secret of a run file. Raises ``ValueError`` without the value."""
    if isinstance(value, SecretLocation):
        return value
    if isinstance(value, str) and value and not _LONE.search(value):
        return SecretLocation(PLAIN, value)
    if isinstance(value, Mapping) and len(value) == 1:
        ((kind, location),) = value.items()
        known = kind in KINDS and isinstance(location, str) and location.isprintable()
        if known and (kind != "databricks" or all(location.partition("/"))):
            return SecretLocation(kind, location)
    raise ValueError("not a secret; write a text, or one of {env: NAME}, {file: PATH}, {databricks: SCOPE/KEY}")


def show_location(secret: SecretLocation) -> str | dict[str, str]:
    """Return what a run shows of a secret, which is its location."""
    return "(not shown)" if secret.kind == PLAIN else {secret.kind: secret.location}


REFERENCE_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {kind: {"type": "string"} for kind in KINDS} | {"databricks": {"type": "string", "pattern": "./."}},
    "additionalProperties": False,
    "minProperties": 1,
    "maxProperties": 1,
}
"""The JSON Schema of a reference to a secret."""
Secret = Annotated[
    SecretLocation,
    BeforeValidator(parse_secret),
    PlainSerializer(show_location),
    WithJsonSchema({"anyOf": [{"type": "string", "minLength": 1}, REFERENCE_SCHEMA]}),
]
