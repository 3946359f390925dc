"""Build one alert for each owner from what changed, and format it as text, for Slack, for Teams, and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final

from subreplay.config.alerts import CHANGE_KINDS, ChangeKind
from subreplay.reports.assemble.run_changes import AuditedSubscription, RunChange
from subreplay.reports.formatting import format_plural
from subreplay.reports.overview_data import FAILED
from subreplay.reports.text_cleaning import clean_strings

ALERT_VERSION: Final = "1.0"
MOST_CHANGES: Final = 20
"""The most changes that the text of an alert describes; JSON contains all."""
LONGEST: Final = 600  # characters of a line in the text
_WORDS: Final[dict[ChangeKind, str]] = {"new": "New", "worse": "Worse", "ended": "Ended"}


@dataclass(frozen=True, slots=True)
class SubscriptionChanges:
    """What changed for one subscription on one topic."""

    subscription: str
    topic: str
    verdict: str
    headline: str
    link: str  # of its report; empty: unknown
    changes: tuple[RunChange, ...]


@dataclass(frozen=True, slots=True)
class Alert:
    """The changes of one owner's subscriptions."""

    owner: str
    date: str | None
    subscriptions: tuple[SubscriptionChanges, ...]
    link: str = ""  # of the overview; empty: unknown, or there is one subscription only

    @property
    def title(self) -> str:
        """The number of changes, and of what."""
        counts = Counter(change.change for one in self.subscriptions for change in one.changes)
        counted = ", ".join(f"{counts[kind]} {kind}" for kind in CHANGE_KINDS if counts[kind])
        if len(self.subscriptions) == 1:
            of = _name(self.subscriptions[0])
        else:
            of = format_plural(len(self.subscriptions), "subscription")
        return f"subreplay: {counted} in {of}{f' ({self.date})' if self.date else ''}"

    @property
    def lines(self) -> list[str]:
        """The text below the title."""
        found: list[str] = []
        shown, total = 0, sum(len(one.changes) for one in self.subscriptions)
        for one in self.subscriptions:
            if not (changes := one.changes[: MOST_CHANGES - shown]):
                break
            found.append(f"{one.verdict.upper()}  {_name(one)}: {one.headline}")
            found += [f"• {_describe_change(change)}" for change in changes]
            found += [one.link, ""] if one.link else [""]
            shown += len(changes)
        if total > shown:
            found.append(f"and {format_plural(total - shown, 'more change')} in the reports")
        if self.link:
            found.append(f"Overview: {self.link}")
        return [line if len(line) <= LONGEST else line[: LONGEST - 1] + "…" for line in found]

    @property
    def text(self) -> str:
        """The whole alert as plain text."""
        return "\n".join([self.title, "", *self.lines]).rstrip("\n") + "\n"


def build_alerts(
    audits: Iterable[AuditedSubscription], kinds: Iterable[ChangeKind], reports: str | None, date: str | None,
    several: bool,
) -> tuple[Alert, ...]:  # fmt: skip
    """Build an alert for each owner whose subscriptions changed.

    ``reports`` is the address below which the files of the report are. ``several``: there is an overview of them.
    """
    wanted, by_owner = {*kinds}, dict[str, list[SubscriptionChanges]]()
    for audit in audits:
        row = audit.row
        changes = tuple(change for change in audit.changes if change.change in wanted)
        if changes:
            page = (row.page if several else "report.html") if row.verdict != FAILED else ""
            link = f"{reports}/{page}" if reports and page else ""
            by_owner.setdefault(row.owner, []).append(
                SubscriptionChanges(row.subscription, row.topic, row.verdict, row.sentence, link, changes)
            )
    overview = f"{reports}/overview.html" if reports and several else ""
    return tuple(clean_strings(Alert(owner, date, tuple(found), overview)) for owner, found in sorted(by_owner.items()))


def to_webhook(alert: Alert) -> dict[str, Any]:
    """Format an alert as a JSON object."""
    return {"schema_version": ALERT_VERSION, "title": alert.title, "text": alert.text, **asdict(alert)}


def to_slack(alert: Alert) -> dict[str, Any]:
    """Format an alert for an incoming webhook of Slack. Names are no mentions, links or markup."""
    escaped = alert.text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return {"text": escaped, "mrkdwn": False}


def to_teams(alert: Alert) -> dict[str, Any]:
    """Format an alert for a workflow of Teams, as an adaptive card. Text runs are shown as they are, without markup."""
    texts = [(alert.title, {"weight": "Bolder", "size": "Medium"}), *((line, {}) for line in alert.lines if line)]
    links = [(_name(one), one.link) for one in alert.subscriptions if one.link][:5]
    links += [("Overview", alert.link)] if alert.link else []
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [{"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": t, **how}]} for t, how in texts],
        "actions": [{"type": "Action.OpenUrl", "title": title, "url": url} for title, url in links],
    }
    content = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return {"type": "message", "attachments": [content]}


def _name(one: SubscriptionChanges) -> str:
    return f"{one.subscription} on {one.topic}" if one.topic else one.subscription


def _describe_change(change: RunChange) -> str:
    title = change.title if change.title.endswith((".", "!", "?")) else f"{change.title}."
    parts = [f"{_WORDS[change.change]}: {title}", change.detail]
    return " ".join([part for part in parts if part] + ([f"Next: {change.next_step}"] if change.next_step else []))
