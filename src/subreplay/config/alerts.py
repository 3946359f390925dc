"""Section ``alerts``: who is notified when an audit finds other incidents than the one before it."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator

from subreplay.config.fields import Duration, Model, Name, parse_duration
from subreplay.config.secrets import PLAIN, REFERENCE_SCHEMA, SecretLocation, parse_secret, show_location

ChangeKind = Literal["new", "worse", "ended"]
TargetKind = Literal["webhook", "slack", "teams", "email"]
CHANGE_KINDS: Final[tuple[ChangeKind, ...]] = get_args(ChangeKind)
MOST_TARGETS: Final = 20
_NEEDED: Final = {
    "webhook": ("url",),
    "slack": ("url",),
    "teams": ("url",),
    "email": ("host", "sender", "to"),
}
"""The keys that a target must have, by its kind."""
_OTHER: Final = {"webhook": ("token",), "email": ("port", "security", "user", "password")}
"""The keys that a target may also have."""
_OF_ANY: Final = frozenset({"kind", "owner"})


def _parse_reference(value: Any) -> SecretLocation:
    found = parse_secret(value) if isinstance(value, (dict, SecretLocation)) else None
    if found is None or found.kind == PLAIN:
        raise ValueError("not a reference to a secret; write one of {env: NAME}, {file: PATH}, {databricks: SCOPE/KEY}")
    return found


SecretReference = Annotated[
    SecretLocation,
    BeforeValidator(_parse_reference),
    PlainSerializer(show_location),
    WithJsonSchema(REFERENCE_SCHEMA),
]


def _check_address(value: str) -> str:
    if not re.fullmatch(r"[^\s@]+@[^\s@]+", value) or not value.isprintable():
        raise ValueError("not an e-mail address; write name@example.com")
    return value


def _check_base_url(value: str) -> str:
    if not re.fullmatch(r"https?://\S+", value) or not value.isprintable():
        raise ValueError("not an address of a web server; write https://reports.example.com/subreplay")
    return value.rstrip("/")


Address = Annotated[str, AfterValidator(_check_address)]


class AlertTarget(Model):
    """A receiver of alerts: a webhook, a channel of Slack or Teams, or e-mail addresses."""

    kind: TargetKind
    owner: Name = "*"
    url: SecretReference | None = None
    token: SecretReference | None = None
    host: Name | None = None
    port: Annotated[int, Field(ge=1, le=65_535)] | None = None
    security: Literal["starttls", "tls", "none"] = "starttls"
    user: Name | None = None
    password: SecretReference | None = None
    sender: Annotated[Address | None, Field(alias="from")] = None
    to: Annotated[tuple[Address, ...], Field(max_length=100)] = ()

    @model_validator(mode="after")
    def _check_keys(self) -> AlertTarget:
        names = {name: field.alias or name for name, field in type(self).model_fields.items()}
        if lacking := [names[name] for name in _NEEDED[self.kind] if not getattr(self, name)]:
            raise ValueError(f"a target of kind {self.kind} needs {' and '.join(lacking)}")
        legal = {*_OF_ANY, *_NEEDED[self.kind], *_OTHER.get(self.kind, ())}
        if other := sorted(names[name] for name in self.model_fields_set - legal):
            raise ValueError(f"a target of kind {self.kind} has no key {other[0]}")
        if (self.user is None) != (self.password is None):
            raise ValueError("user and password belong together; write both or none of them")
        if self.password is not None and self.security == "none":
            raise ValueError("security: none would send the password in plain text; write starttls or tls")
        return self

    def takes(self, owner: str) -> bool:
        """Whether it receives the alerts of an owner."""
        return fnmatchcase(owner, self.owner)


class Alerts(Model):
    """When alerts are sent, to whom, and how long a receiver may take."""

    changes: tuple[ChangeKind, ...] = CHANGE_KINDS
    targets: Annotated[tuple[AlertTarget, ...], Field(max_length=MOST_TARGETS)] = ()
    reports: Annotated[str, AfterValidator(_check_base_url)] | None = None
    timeout: Annotated[Duration, Field(ge=1_000, le=600_000_000)] = parse_duration("10s")
    retries: Annotated[int, Field(ge=0, le=10)] = 2
