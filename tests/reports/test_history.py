"""The history of subscriptions: each day's verdict, and what began and ended."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import pytest

from subreplay.reports.assemble.history import build_history
from subreplay.reports.history_data import History
from subreplay.reports.history_text import build_history_text
from subreplay.reports.page.history import render_history_page

LAST = date(2026, 11, 28)
TITLE = "Consumer <c2> took no message for 8 min 12 s"


def made(verdicts: dict[str, str], counts: dict[str, str] | None = None) -> History:
    """The history of subscriptions whose verdicts by day are letters, and whose rule STALLED fails where ``counts``
    has an i or a u; by default where the verdict is invalid."""
    names = {"v": "valid", "i": "invalid", "u": "unknown"}
    runs: list[dict[str, Any]] = []
    findings: list[dict[str, Any]] = []
    incidents: list[dict[str, Any]] = []
    for subscription, letters in verdicts.items():
        failing = (counts or {}).get(subscription, letters.replace("u", "."))
        for place, letter in enumerate(letters):
            of = {"subscription": subscription, "topic": "persistent://shop/eu/orders"}
            of["date"] = LAST - timedelta(days=len(letters) - 1 - place)  # type: ignore[assignment]
            if letter in names:
                runs.append({**of, "verdict": names[letter], "findings": 3 * (letter == "i")})
            if failing[place] in "iu":
                findings.append({**of, "code": "STALLED", "verdict": names[failing[place]], "count": 3})
                incidents.append({**of, "number": 1, "title": TITLE, "codes": ["STALLED"]})
    return build_history(runs, findings, incidents, LAST, max(map(len, verdicts.values())))


@pytest.mark.parametrize(
    ("verdicts", "counts", "episodes"),
    [
        ("vivv", None, [("2026-11-26", "2026-11-27", 3)]),
        ("vviii", None, [("2026-11-26", "", 9)]),
        ("ivv", None, [("<2026-11-26", "2026-11-27", 3)]),
        ("i", None, [("<2026-11-28", "", 3)]),
        ("viviv", None, [("2026-11-27", "2026-11-28", 3), ("2026-11-25", "2026-11-26", 3)]),
        ("vi.iv", None, [("2026-11-25", "2026-11-28", 6)]),
        ("viuiv", None, [("2026-11-25", "2026-11-28", 6)]),
        ("viuv", None, [("2026-11-26", "2026-11-28", 3)]),
        ("vuv", "...", []),
    ],
)
def test_an_episode_begins_with_a_failing_run_and_ends_with_a_run_that_judged_without_it(
    verdicts: str, counts: str | None, episodes: list[tuple[str, str, int]]
) -> None:
    found = made({"billing": verdicts}, None if counts is None else {"billing": counts})
    assert [
        (f"{'<' * each.from_first_run}{each.began}", each.ended, each.findings) for each in found.episodes
    ] == episodes
    assert all(each.title == TITLE and each.codes == ("STALLED",) for each in found.episodes)


def test_the_worst_of_the_latest_day_comes_first() -> None:
    found = made({"a": "iiv", "b": "vvv", "c": "vvi", "d": "vvu"})
    assert [each.subscription for each in found.subscriptions] == ["c", "d", "a", "b"]


def test_a_day_without_a_run_is_shown_as_one() -> None:
    found = made({"billing": "v.i"})
    assert [day.verdict for day in found.subscriptions[0].days] == ["valid", "none", "invalid"]
    text = "\n".join(line.plain for line in build_history_text(found, 100))
    assert "✓·✗" in text
    assert "· no run" in text


def test_a_summary_has_at_most_forty_lines_and_counts_the_rest() -> None:
    found = made({f"service-{number}": "vivi" for number in range(60)})
    lines = [line.plain for line in build_history_text(found, 100)]
    assert len(lines) <= 40
    assert any("more; --full or --out shows them" in line for line in lines)
    assert len(build_history_text(found, 100, None)) > 120


def test_a_page_has_a_strip_of_days_for_each_subscription_and_escapes_names() -> None:
    page = render_history_page(made({"billing": "viv", "mail": "vvv"}))
    assert page.count('<svg class="trend"') == 3  # two subscriptions and one rule
    assert "<title>2026-11-27: invalid, 3 findings</title>" in page
    assert "Consumer &lt;c2&gt; took no message" in page
    assert page == render_history_page(made({"billing": "viv", "mail": "vvv"}))
