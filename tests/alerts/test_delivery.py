"""Alerts over real connections: what each receiver gets, and what happens if it is down, slow or fails."""

from __future__ import annotations

import json
import time
from base64 import b64decode
from email import message_from_string
from email.policy import default
from pathlib import Path
from typing import Any

import pytest

from subreplay.alerts.delivery import DeliveryReport, check_secrets, send_alerts
from subreplay.alerts.messages import Alert, SubscriptionChanges
from subreplay.config.alerts import Alerts
from subreplay.config.run import parse
from subreplay.reports.assemble.run_changes import RunChange
from tests.support.receivers import mail_server, make_certificate, unused_port, web_server

STUCK = RunChange(
    "new", "c2 finished nothing <for> 8 min & more", "Since 10:00:00 UTC.", "Restart c2.", "invalid", "STUCK"
)
LINK = "https://reports.example.com/report.html"
ALERT = Alert("ann", "2026-11-21", (SubscriptionChanges("billing", "orders", "invalid", "c2 hangs.", LINK, (STUCK,)),))
OF_BOB = Alert("bob", None, ALERT.subscriptions * 2, "https://reports.example.com/overview.html")


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "a token\n")


def alerts_to(*targets: dict[str, Any], **settings: Any) -> Alerts:
    return parse({"alerts": {"targets": [*targets], **settings}}, "run.yaml").alerts


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A target with the address of a server."""

    def target(url: str, kind: str = "webhook", **more: Any) -> dict[str, Any]:
        name = f"URL_{abs(hash(url))}"
        monkeypatch.setenv(name, url)
        return {"kind": kind, "url": {"env": name}, **more}

    return target


def send(alerts: Alerts, *messages: Alert) -> tuple[DeliveryReport, list[float]]:
    """What was sent, and how long each pause between two attempts would have been."""
    pauses: list[float] = []
    return send_alerts(alerts, messages or [ALERT], pauses.append), pauses


def test_a_webhook_gets_each_change_as_json_and_its_token(hook: Any) -> None:
    with web_server() as server:
        assert send(alerts_to(hook(server.url, token={"env": "TOKEN"})))[0] == DeliveryReport(1)
    headers, _ = server.requests[0]
    assert headers["Authorization"] == "Bearer a token"
    assert headers["Content-Type"] == "application/json"
    (found,) = server.objects
    assert found["title"] == "subreplay: 1 new in billing on orders (2026-11-21)"
    assert found["owner"] == "ann"
    assert found["schema_version"] == "1.0"
    (change,) = found["subscriptions"][0]["changes"]
    assert (change["change"], change["code"], change["title"]) == ("new", "STUCK", STUCK.title)


def test_slack_shows_names_as_they_are(hook: Any) -> None:
    with web_server() as server:
        send(alerts_to(hook(server.url, "slack")))
    (found,) = server.objects
    assert found["text"].splitlines()[:3] == [
        "subreplay: 1 new in billing on orders (2026-11-21)",
        "",
        "INVALID  billing on orders: c2 hangs.",
    ]
    assert (
        "• New: c2 finished nothing &lt;for&gt; 8 min &amp; more. Since 10:00:00 UTC. Next: Restart c2."
        in found["text"]
    )
    assert LINK in found["text"]


def test_teams_gets_a_card_with_plain_text_and_links(hook: Any) -> None:
    with web_server() as server:
        send(alerts_to(hook(server.url, "teams")), OF_BOB)
    card = server.objects[0]["attachments"][0]["content"]
    texts = [run["text"] for block in card["body"] for run in block["inlines"]]
    assert texts[0] == "subreplay: 2 new in 2 subscriptions"
    assert any(STUCK.title in text for text in texts)
    assert [action["url"] for action in card["actions"]] == [LINK, LINK, OF_BOB.link]


def test_a_mail_goes_to_all_addresses() -> None:
    with mail_server() as box:
        target = {"kind": "email", "host": "127.0.0.1", "port": box.port, "security": "none", "from": "audit@x.org"}
        assert send(alerts_to({**target, "to": ["ann@x.org", "bob@x.org"]}))[0] == DeliveryReport(1)
    ((receivers, text),) = box.mails
    assert receivers == ("ann@x.org", "bob@x.org")
    mail = message_from_string(text, policy=default)
    assert mail["Subject"] == "subreplay: 1 new in billing on orders (2026-11-21)"
    assert STUCK.title in mail.get_content()


def test_a_mail_that_the_server_refuses_is_reported() -> None:
    with mail_server(refuses="RCPT") as box:
        target = {"kind": "email", "host": "127.0.0.1", "port": box.port, "security": "none", "from": "audit@x.org"}
        found, pauses = send(alerts_to({**target, "to": ["ann@x.org"]}))
    assert found.failures == ("alerts.targets.0 (email): the server refused all addresses",)
    assert pauses == []


def test_no_password_is_sent_to_a_mail_server_without_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    with mail_server() as box:
        target = {"kind": "email", "host": "127.0.0.1", "port": box.port, "from": "audit@x.org", "to": ["ann@x.org"]}
        found, _ = send(alerts_to({**target, "user": "ann", "password": {"env": "TOKEN"}}, retries=0))
    assert found.sent == 0
    assert found.failures == ("alerts.targets.0 (email): the server cannot take the message: SMTPNotSupportedError",)
    assert not any(command.startswith(("AUTH", "DATA")) for command in box.commands)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = make_certificate(tmp_path_factory.mktemp("tls"))
    return found if found is not None else pytest.skip("openssl is not installed")


@pytest.mark.parametrize("security", ["tls", "starttls"])
def test_a_mail_is_sent_over_tls_with_a_login(
    security: str, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with mail_server(certificate=certificate, starttls=security == "starttls") as box:
        target = {"kind": "email", "host": "127.0.0.1", "port": box.port, "security": security, "from": "audit@x.org"}
        login = {"user": "ann", "password": {"env": "TOKEN"}}
        assert send(alerts_to({**target, **login, "to": ["ann@x.org"]}))[0] == DeliveryReport(1)
    ((receivers, text),) = box.mails
    assert receivers == ("ann@x.org",)
    assert STUCK.title in message_from_string(text, policy=default).get_content()
    (auth,) = (command for command in box.commands if command.startswith("AUTH PLAIN "))
    assert b64decode(auth.removeprefix("AUTH PLAIN ")) == b"\0ann\0a token"


@pytest.mark.parametrize("security", ["tls", "starttls"])
def test_no_mail_goes_to_a_server_whose_certificate_is_not_trusted(security: str, certificate: Path) -> None:
    with mail_server(certificate=certificate, starttls=security == "starttls") as box:
        target = {"kind": "email", "host": "127.0.0.1", "port": box.port, "security": security, "from": "audit@x.org"}
        found, pauses = send(alerts_to({**target, "to": ["ann@x.org"]}))
    assert found.failures == ("alerts.targets.0 (email): TLS failed: CERTIFICATE_VERIFY_FAILED",)
    assert (pauses, box.mails) == ([], [])


def test_an_owner_gets_only_alerts_of_its_subscriptions(hook: Any) -> None:
    with web_server() as first, web_server() as second:
        alerts = alerts_to(hook(first.url, owner="a*"), hook(second.url))
        assert send(alerts, ALERT, OF_BOB)[0].sent == 3
    assert [each["owner"] for each in first.objects] == ["ann"]
    assert [each["owner"] for each in second.objects] == ["ann", "bob"]


def test_a_server_that_fails_once_gets_the_alert_again(hook: Any) -> None:
    with web_server(answers=(500, 200)) as server:
        found, pauses = send(alerts_to(hook(server.url)))
    assert found == DeliveryReport(1)
    assert len(server.requests) == 2
    assert pauses == [1.0]


@pytest.mark.parametrize(("code", "attempts"), [(500, 3), (429, 3), (404, 1), (302, 1)])
def test_an_answer_other_than_success_is_reported(hook: Any, code: int, attempts: int) -> None:
    with web_server(answers=(code,)) as server:
        found, _ = send(alerts_to(hook(server.url)))
    assert len(server.requests) == attempts
    assert found.sent == 0
    assert found.failures[0].startswith(f"alerts.targets.0 (webhook): the server answered {code}")
    assert "secret-part" not in found.failures[0]


def test_a_server_that_is_down_is_tried_again_once_for_all_alerts(hook: Any) -> None:
    found, pauses = send(alerts_to(hook(f"http://127.0.0.1:{unused_port()}/secret-part")), ALERT, OF_BOB)
    assert found == DeliveryReport(
        0,
        ("alerts.targets.0 (webhook): cannot reach the server: Connection refused (tried 3 times); 1 more not tried",),
    )
    assert pauses == [1.0, 2.0]


def test_a_slow_server_takes_no_longer_than_the_timeout(hook: Any) -> None:
    with web_server(delay=1.5) as server:
        began = time.monotonic()
        found, _ = send(alerts_to(hook(server.url), timeout="200ms", retries=1))
        assert time.monotonic() - began < 1.2
    assert found.sent == 0
    assert "answer" in found.failures[0]
    assert found.failures[0].endswith("(tried 2 times)")


def test_a_failure_of_one_target_does_not_stop_the_others(hook: Any) -> None:
    with web_server() as server:
        down = hook(f"http://127.0.0.1:{unused_port()}/x")
        found, _ = send(alerts_to(down, hook(server.url), retries=0))
    assert found.sent == 1
    assert len(found.failures) == 1


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://x/y", "no address", "http://[::1"])
def test_only_addresses_of_web_servers_are_opened(hook: Any, url: str) -> None:
    found, _ = send(alerts_to(hook(url), retries=0))
    assert found.sent == 0
    assert url not in found.failures[0]


def test_a_secret_that_cannot_be_read_is_reported_before_anything_changed() -> None:
    alerts = alerts_to({"kind": "slack", "url": {"env": "NO_SUCH_NAME"}})
    (sentence,) = check_secrets(alerts)
    assert sentence.startswith("alerts.targets.0.url: {env: NO_SUCH_NAME}: there is no such environment variable")
    assert send(alerts)[0].failures[0].startswith("alerts.targets.0 (slack): alerts.targets.0.url: {env: NO_SUCH_NAME}")


def test_names_from_the_data_cannot_add_headers_or_control_a_terminal(hook: Any) -> None:
    from subreplay.alerts.messages import build_alerts
    from subreplay.reports.assemble.run_changes import AuditedSubscription
    from subreplay.reports.overview_data import OverviewRow

    row = OverviewRow("x\nBcc: all@x.org", "t\x1b[31m", "", "failed", 4, "no\nspace")
    (alert,) = build_alerts([AuditedSubscription(row, (STUCK,))], ("new",), None, None, True)
    with mail_server() as box:
        target = {"kind": "email", "host": "127.0.0.1", "port": box.port, "security": "none", "from": "audit@x.org"}
        assert send(alerts_to({**target, "to": ["ann@x.org"]}), alert)[0] == DeliveryReport(1)
    mail = message_from_string(box.mails[0][1], policy=default)
    assert mail["Bcc"] is None
    assert "\x1b" not in json.dumps(alert.text)
    assert box.mails[0][0] == ("ann@x.org",)


def test_a_long_alert_is_cut_and_its_json_is_not() -> None:
    many = SubscriptionChanges("billing", "orders", "invalid", "Bad.", "", (STUCK,) * 30)
    alert = Alert("", None, (many, many))
    assert alert.text.count("• New") == 20
    assert "and 40 more changes in the reports" in alert.text
