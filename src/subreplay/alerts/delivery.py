"""Send alerts by HTTP and SMTP, with time-outs and retries. A failure is returned, never raised."""

from __future__ import annotations

import http.client
import json
import logging
import smtplib
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from functools import partial
from threading import Thread
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from subreplay import __version__
from subreplay.alerts.messages import Alert, to_slack, to_teams, to_webhook
from subreplay.config.alerts import Alerts, AlertTarget
from subreplay.errors import SubreplayError

_FORMATS: Final = {"webhook": to_webhook, "slack": to_slack, "teams": to_teams}
_PORTS: Final = {"starttls": 587, "tls": 465, "none": 25}
_FIRST_WAIT: Final = 1.0  # seconds before the second attempt; each further wait is twice as long
_LONGEST_WAIT: Final = 30.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DeliveryReport:
    """How many messages were sent, and for each target that failed a sentence without its address."""

    sent: int = 0
    failures: tuple[str, ...] = ()


class _DeliveryFailed(Exception):
    """An attempt failed. ``again``: a later attempt may succeed. ``unreachable``: no message reaches this server."""

    def __init__(self, reason: str, again: bool = False, unreachable: bool = False, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.again, self.unreachable, self.wait = again, unreachable, wait


class _NoRedirects(HTTPRedirectHandler):
    """Refuse redirections: following one would turn the request into another one without the message."""

    def redirect_request(self, *_: Any) -> None:
        return None


def select_targets(alerts: Alerts, alert: Alert) -> list[tuple[str, AlertTarget]]:
    """Return the targets that receive an alert, with their keys in the run file."""
    named = ((f"alerts.targets.{number} ({each.kind})", each) for number, each in enumerate(alerts.targets))
    return [(name, target) for name, target in named if target.takes(alert.owner)]


def check_secrets(alerts: Alerts) -> Iterator[str]:
    """Yield a sentence for each secret that cannot be read, before anything changed."""
    for number, target in enumerate(alerts.targets):
        for name in ("url", "token", "password"):
            try:
                _read_secret(target, name, f"alerts.targets.{number}")
            except SubreplayError as error:
                yield f"{error}. Alerts to this target will fail"


def send_alerts(
    alerts: Alerts, messages: Iterable[Alert], pause: Callable[[float], None] = time.sleep
) -> DeliveryReport:
    """Send each alert to each of its targets. If a server cannot be reached, its other alerts are not tried."""
    sent, failures, unreachable, skipped = 0, dict[str, str](), set[str](), dict[str, int]()
    for message in messages:
        for name, target in select_targets(alerts, message):
            if name in unreachable:
                skipped[name] = skipped.get(name, 0) + 1
                continue
            try:
                _send_with_retries(name, target, message, alerts, pause)
                sent += 1
            except _DeliveryFailed as error:
                failures[name] = str(error)
                unreachable |= {name} if error.unreachable else set()
    for name, count in skipped.items():
        failures[name] += f"; {count} more not tried"
    return DeliveryReport(sent, tuple(f"{name}: {reason}" for name, reason in failures.items()))


def _send_with_retries(
    name: str, target: AlertTarget, message: Alert, alerts: Alerts, pause: Callable[[float], None]
) -> None:
    try:
        send = _build_sender(name.split(" ")[0], target, message, alerts.timeout / 1_000_000)
    except SubreplayError as error:
        raise _DeliveryFailed(str(error), unreachable=True) from error
    for attempt in range(alerts.retries + 1):
        try:
            return _limit_time(send, alerts.timeout / 1_000_000)
        except _DeliveryFailed as error:
            _log.warning("%s: attempt %d: %s", name, attempt + 1, error)
            if not error.again or attempt == alerts.retries:
                tried = f" (tried {attempt + 1} times)" if attempt else ""
                raise _DeliveryFailed(f"{error}{tried}", unreachable=error.unreachable) from error
            pause(min(error.wait or _FIRST_WAIT * 2**attempt, _LONGEST_WAIT))
    raise AssertionError


def _build_sender(key: str, target: AlertTarget, message: Alert, timeout: float) -> Callable[[], None]:
    """Return the function that makes one attempt. Raises ``ConfigError`` if a secret cannot be read."""
    url, token, password = (_read_secret(target, name, key) for name in ("url", "token", "password"))
    if target.kind == "email":
        return partial(_send_mail, target, password, _build_mail(target, message), timeout)
    body = json.dumps(_FORMATS[target.kind](message)).encode()
    return partial(_post, url or "", token, body, timeout)


def _read_secret(target: AlertTarget, name: str, key: str) -> str | None:
    location = getattr(target, name)
    return None if location is None else location.value(f"{key}.{name}").strip()


def _limit_time(work: Callable[[], None], seconds: float) -> None:
    """Run an attempt for at most so many seconds in all. A socket's time-out alone restarts with each byte."""
    ended: list[Exception | None] = []

    def run() -> None:
        try:
            work()
            ended.append(None)
        except Exception as error:
            ended.append(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if not ended:
        raise _DeliveryFailed(f"no answer within {seconds:g} s", again=True, unreachable=True)
    if isinstance(ended[0], _DeliveryFailed):
        raise ended[0]
    if ended[0] is not None:  # its text may contain the address, which is a secret
        raise _DeliveryFailed(f"cannot send: {type(ended[0]).__name__}") from ended[0]


def _post(url: str, token: str | None, body: bytes, timeout: float) -> None:
    if not url.startswith(("https://", "http://")):
        raise _DeliveryFailed("its address does not begin with https:// or http://", unreachable=True)
    headers = {"Content-Type": "application/json", "User-Agent": f"subreplay/{__version__}"}
    headers |= {"Authorization": f"Bearer {token}"} if token else {}
    try:
        request = Request(url, body, headers, method="POST")
        with build_opener(_NoRedirects).open(request, timeout=timeout) as response:
            response.read(1)
    except HTTPError as error:
        wait = error.headers.get("Retry-After", "")
        again = error.code in (408, 429) or error.code >= 500
        found = f"the server answered {error.code} {http.client.responses.get(error.code, '')}".rstrip()
        raise _DeliveryFailed(found, again, wait=float(wait) if wait.isdecimal() else 0.0) from error
    except (URLError, OSError, http.client.HTTPException) as error:
        raise _describe_connection_error(error) from error


def _describe_connection_error(error: Exception) -> _DeliveryFailed:
    reason = error.reason if isinstance(error, URLError) else error
    if isinstance(reason, TimeoutError):
        return _DeliveryFailed("no answer in time", again=True, unreachable=True)
    if isinstance(reason, ssl.SSLError):
        return _DeliveryFailed(f"TLS failed: {reason.reason or type(reason).__name__}", unreachable=True)
    if isinstance(reason, OSError):
        return _DeliveryFailed(
            f"cannot reach the server: {reason.strerror or type(reason).__name__}", again=True, unreachable=True
        )
    return _DeliveryFailed(f"the server's answer is not HTTP: {type(reason).__name__}", again=True)


def _build_mail(target: AlertTarget, message: Alert) -> EmailMessage:
    mail = EmailMessage()
    mail["Subject"] = message.title
    mail["From"], mail["To"] = target.sender, ", ".join(target.to)
    mail["Date"], mail["Message-ID"] = formatdate(), make_msgid(domain=(target.sender or "").partition("@")[2])
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content("\n".join(message.lines).strip() + "\n")
    return mail


def _send_mail(target: AlertTarget, password: str | None, mail: EmailMessage, timeout: float) -> None:
    port = target.port or _PORTS[target.security]
    try:
        context = ssl.create_default_context()
        opened = (
            smtplib.SMTP_SSL(target.host or "", port, timeout=timeout, context=context)
            if target.security == "tls"
            else smtplib.SMTP(target.host or "", port, timeout=timeout)
        )
        with opened as server:
            if target.security == "starttls":
                server.starttls(context=context)
            if target.user is not None and password is not None:
                server.login(target.user, password)
            if refused := server.send_message(mail):
                raise _DeliveryFailed(f"the server refused {len(refused)} of {len(target.to)} addresses")
    except smtplib.SMTPResponseException as error:
        again = 400 <= error.smtp_code < 500
        raise _DeliveryFailed(f"the server answered {error.smtp_code}", again) from error
    except smtplib.SMTPRecipientsRefused as error:
        again = all(code < 500 for code, _ in error.recipients.values())
        raise _DeliveryFailed("the server refused all addresses", again) from error
    except smtplib.SMTPServerDisconnected as error:
        raise _DeliveryFailed("the server closed the connection", again=True, unreachable=True) from error
    except smtplib.SMTPException as error:
        raise _DeliveryFailed(f"the server cannot take the message: {type(error).__name__}") from error
    except OSError as error:
        raise _describe_connection_error(error) from error
