"""What a first-time user does on the page, in a real browser: mouse and keyboard, three widths, light and dark."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from subreplay.config.run import load
from subreplay.errors import InputError
from subreplay.studio.replay import BackgroundReplay
from tests.support.chromium import CHROMIUM, Browser, start_browser
from tests.support.studio import RunningStudio, start_studio

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]
STATE = "JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(location.hash.slice(3).replaceAll('-', '+')" \
        ".replaceAll('_', '/')), c => c.charCodeAt(0))))"  # fmt: skip
"""The state in the URL."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with start_browser() as browser:
        yield browser


@pytest.fixture
def page(browser: Browser, studio: RunningStudio) -> Browser:
    open_page(browser, studio.url)
    return browser


def open_page(browser: Browser, url: str, width: int = 1280, theme: str = "light") -> None:
    browser.open(url, width, theme=theme)
    browser.evaluate("sessionStorage.getItem('token')")
    browser.wait_for("document.body.dataset.evaluated")


def settle(page: Browser) -> None:
    """Wait until the state of the page is evaluated."""
    page.wait_for("document.getElementById('results').getAttribute('aria-busy') === 'false'")


def click(page: Browser, selector: str) -> None:
    page.evaluate(f"document.querySelector({json.dumps(selector)}).click()")


def set_field(page: Browser, name: str, value: Any, kind: str = "input") -> None:
    """Change a field as a user does who types or drags."""
    page.evaluate(
        f"(e => {{ e.focus(); e.value = {json.dumps(str(value))}; for (const t of ['input', 'change']) "
        f"e.dispatchEvent(new Event(t, {{bubbles: true}})); }})(document.getElementById({json.dumps(name)}))"
    )
    settle(page)


def state_of(page: Browser) -> dict[str, Any]:
    found: dict[str, Any] = page.evaluate(STATE)
    return found


def figures(page: Browser, column: int = 1) -> dict[str, str]:
    rows = page.evaluate(
        "[...document.querySelectorAll('#figures tr')].map(r => [...r.children].map(c => c.firstChild?.textContent))"
    )
    return {row[0]: row[column] for row in rows[1:]}


def problem(page: Browser) -> str:
    return str(page.evaluate("document.getElementById('problem').innerText"))


def test_the_token_leaves_the_url_and_the_state_enters_it(page: Browser, studio: RunningStudio) -> None:
    url = page.evaluate("location.href")
    assert studio.token not in url
    assert state_of(page)["state"]["scenarios"][0]["policy"] == "pulsar.key_shared.consistent_hash"
    assert figures(page)["Consumers"] == "4"


def test_nothing_is_fetched_from_elsewhere_and_nothing_breaks_the_policy(page: Browser, studio: RunningStudio) -> None:
    names = page.evaluate("performance.getEntriesByType('resource').map(e => e.name)")
    assert names
    assert all(name.startswith((studio.origin, "data:")) for name in names)
    assert page.evaluate("document.scripts.length") == 1


def test_task_1_the_fewest_consumers_below_70_percent(page: Browser) -> None:
    click(page, "[data-plan=consumers]")
    page.wait_for("!document.getElementById('problem').hidden")
    assert "Set the time per message first" in problem(page)
    assert page.evaluate("document.activeElement.id") == "service"
    set_field(page, "service", "8ms")
    click(page, "[data-plan=consumers]")
    page.wait_for("document.querySelector('#plan button')")
    answer = page.evaluate("document.getElementById('plan').innerText")
    assert answer.startswith("Use 6 consumers")
    assert "bound" in answer
    click(page, "#plan button")
    settle(page)
    assert figures(page)["Consumers"] == "6"
    assert figures(page)["Busiest consumer's utilisation"] == "62.4%"
    set_field(page, "count", 5)
    assert "above the limit" in page.evaluate("document.getElementById('figures').innerText")


def test_task_2_what_more_partitions_cost_in_moved_keys(page: Browser) -> None:
    click(page, "#add-setup")
    set_field(page, "partitions", 4)
    assert figures(page, 1)["Keys to another partition"] == "–"
    assert figures(page, 2)["Keys to another partition"] == "300"
    assert figures(page, 2)["Traffic to another partition"] == "100%"


def test_task_3_a_rolling_restart_as_a_link_and_as_a_run_file(
    page: Browser, studio: RunningStudio, browser: Browser, tmp_path: Path
) -> None:
    click(page, "#recorded")
    settle(page)
    click(page, "#rolling")
    page.wait_for("document.querySelectorAll('#events li').length === 5")
    settle(page)
    moved = figures(page)
    assert moved["Keys moved by changes"] != "0"
    link = page.evaluate("location.href")
    assert studio.token not in link
    browser.evaluate("sessionStorage.clear()")
    browser.open(link, 1280)
    browser.wait_for("!document.getElementById('token-form').hidden")
    browser.evaluate(f"document.getElementById('token').value = {json.dumps(studio.token)}")
    click(browser, "#use-token")
    browser.wait_for("document.body.dataset.evaluated")
    assert figures(browser) == moved
    _, saved = studio.post("run-file", {"state": state_of(browser)["state"]})
    (tmp_path / "run.yaml").write_text(saved["text"])
    assert len(load(tmp_path / "run.yaml").scenarios[0].members) == 5
    assert all(member["restart"] for member in yaml.safe_load(saved["text"])["scenarios"][0]["members"])


def test_every_control_changes_the_state(page: Browser) -> None:
    click(page, "#recorded")
    changes = [
        ("name", "mine", lambda s: s["scenarios"][0]["name"] == "mine"),
        ("policy", "kafka.range", lambda s: s["scenarios"][0]["policy"] == "kafka.range"),
        ("profile", "kafka-4.0", lambda s: s["scenarios"][0]["profile"] == "kafka-4.0"),
        ("policy", "pulsar.key_shared.sticky", lambda s: s["scenarios"][0]["members"][4]["ranges"][0][1] == 65_535),
        ("count", 7, lambda s: len(s["scenarios"][0]["members"]) == 7),
        ("count-number", 9, lambda s: len(s["scenarios"][0]["members"]) == 9),
        ("partitions", 3, lambda s: s["scenarios"][0]["partitions"] == 3),
        ("hashing", "Murmur3_32Hash", lambda s: s["scenarios"][0]["hashing"] == "Murmur3_32Hash"),
        ("service", "12ms", lambda s: s["plan"]["service"] == {"model": "fixed", "time": "12ms"}),
        ("limit", 55, lambda s: s["plan"]["sizing"]["utilisation"] == 0.55),
        ("window", "1s", lambda s: s["windows"]["width"] == "1s"),
    ]
    for name, value, is_changed in changes:
        set_field(page, name, value)
        assert is_changed(state_of(page)["state"]), name
        assert not problem(page), name
    for kind, count in (("join", 1), ("leave", 2), ("crash", 3)):
        click(page, f"[data-add={kind}]")
        page.wait_for(f"document.querySelectorAll('#events li').length === {count}")
    settle(page)
    click(page, "#events li button")
    page.wait_for("document.querySelectorAll('#events li').length === 2")
    click(page, "#clear-events")
    page.wait_for("document.querySelectorAll('#events li').length === 0")


def test_undo_takes_back_a_whole_drag_and_redo_repeats_it(page: Browser) -> None:
    click(page, "#recorded")
    settle(page)
    before = state_of(page)
    page.evaluate(
        "(e => { for (const n of [6, 7, 8]) { e.value = n; e.dispatchEvent(new Event('input', {bubbles: true})); } "
        "e.dispatchEvent(new Event('change', {bubbles: true})); })(document.getElementById('count'))"
    )
    after = state_of(page)
    assert len(after["state"]["scenarios"][0]["members"]) == 8
    page.evaluate("document.activeElement.blur()")
    page.press("z", ctrl=True)
    assert state_of(page) == before
    page.press("Z", ctrl=True, shift=True)
    assert state_of(page) == after
    click(page, "#undo")
    click(page, "#undo")
    assert state_of(page)["state"]["scenarios"][0]["members"] == "recorded"
    assert page.evaluate("document.getElementById('undo').disabled")


def test_a_border_of_sticky_ranges_is_dragged_and_moved_by_keys(page: Browser) -> None:
    set_field(page, "policy", "pulsar.key_shared.sticky")

    def border() -> int:
        return int(state_of(page)["state"]["scenarios"][0]["members"][0]["ranges"][0][1])

    start = border()
    page.drag(".border", 20)
    dragged = border()
    assert dragged > start
    page.evaluate("document.querySelector('.border').focus()")
    page.press("ArrowLeft")
    assert border() == dragged - 64
    settle(page)
    page.evaluate("document.activeElement.blur()")
    page.press("z", ctrl=True)
    assert border() == dragged
    page.press("z", ctrl=True)
    assert border() == start


def test_six_set_ups_side_by_side_with_a_pinned_baseline(page: Browser) -> None:
    for _ in range(5):
        click(page, "#add-setup")
    page.wait_for("document.querySelectorAll('#figures thead th').length === 6")
    assert page.evaluate("document.getElementById('add-setup').disabled")
    set_field(page, "policy", "pulsar.failover")
    click(page, "[data-index='2'] [data-work=pin]")
    page.wait_for("document.querySelectorAll('#figures thead th')[2].innerText.includes('baseline')")
    assert state_of(page)["baseline"] == 2
    click(page, "[data-index='2'] [data-work=remove]")
    page.wait_for("document.querySelectorAll('#figures thead th').length === 5")
    assert not problem(page)


def test_the_page_is_used_with_the_keyboard_alone(page: Browser) -> None:
    click(page, "#recorded")
    settle(page)
    page.evaluate("document.getElementById('add-setup').focus()")
    reached = set()
    for _ in range(60):
        page.press("Tab")
        reached.add(
            page.evaluate(
                "document.activeElement.id || document.activeElement.dataset.work || "
                "document.activeElement.dataset.plan || document.activeElement.dataset.add || ''"
            )
        )
        assert page.evaluate(
            "(e => e === document.body || getComputedStyle(e).outlineStyle !== 'none')(document.activeElement)"
        )
    assert {"select", "pin", "name", "policy", "profile", "count", "partitions", "service", "limit", "rolling", "leave",
            "consumers", "ranges", "rollout", "replay"} <= reached  # fmt: skip
    page.evaluate("document.getElementById('count').focus()")
    page.press("ArrowRight")
    settle(page)
    assert len(state_of(page)["state"]["scenarios"][0]["members"]) == 6
    page.evaluate("document.querySelector('[data-add=leave]').focus()")
    page.press("Enter")
    page.wait_for("document.querySelectorAll('#events li').length === 1")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 820, 420])
def test_the_page_fits_its_window(browser: Browser, studio: RunningStudio, width: int, theme: str) -> None:
    open_page(browser, studio.url, width, theme)
    click(browser, "[data-guide=size]")
    browser.wait_for("document.querySelector('#plan button')")
    click(browser, "[data-guide=restart]")
    browser.wait_for("document.querySelectorAll('#figures thead th').length === 2")
    settle(browser)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    outside = browser.evaluate(
        "[...document.querySelectorAll('button, input, select, h1, h2, p')].filter(e => {"
        " const b = e.getBoundingClientRect();"
        " return b.width && b.right > innerWidth + 1 && !e.closest('.scroll, .chart');"
        " }).map(e => e.id || e.innerText)"
    )
    assert outside == []
    ground, ink = browser.evaluate(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )
    light = [sum(map(int, colour[4:-1].split(","))) for colour in (ground, ink)]
    assert (light[0] > light[1]) == (theme == "light")


def test_200_consumers_are_shown(page: Browser) -> None:
    click(page, "#recorded")
    set_field(page, "count-number", 200)
    assert figures(page)["Consumers"] == "200"
    click(page, "#members-details summary")
    page.wait_for("document.querySelectorAll('#members div').length === 201")
    click(page, "#rolling")
    page.wait_for("document.querySelectorAll('#events li').length > 100")
    settle(page)
    assert not problem(page)


def test_a_slow_evaluation_is_announced_and_the_newest_state_wins(
    page: Browser, studio: RunningStudio, monkeypatch: Any
) -> None:
    evaluate = type(studio.workbench).evaluate

    def slow(self: Any, *view: Any) -> Any:
        time.sleep(1)
        return evaluate(self, *view)

    click(page, "#recorded")
    settle(page)
    with monkeypatch.context() as patched:
        patched.setattr(type(studio.workbench), "evaluate", slow)
        for count in (6, 7, 8, 9):
            page.evaluate(
                f"(e => {{ e.value = {count}; e.dispatchEvent(new Event('input', {{bubbles: true}})); }})"
                "(document.getElementById('count'))"
            )
        page.wait_for("document.getElementById('status').textContent === 'Computing …'")
        page.wait_for("document.querySelector('#figures tbody').innerText.startsWith('Consumers\\t9')")
    settle(page)


def test_a_failing_evaluation_is_explained_and_the_page_goes_on(
    page: Browser, studio: RunningStudio, monkeypatch: Any
) -> None:
    def fail(self: Any, *view: Any) -> Any:
        raise InputError("The disk is full.")

    click(page, "#recorded")
    settle(page)
    with monkeypatch.context() as patched:
        patched.setattr(type(studio.workbench), "evaluate", fail)
        click(page, "#add-setup")
        page.wait_for("!document.getElementById('problem').hidden")
        assert problem(page) == "The disk is full."
        assert page.evaluate("document.getElementById('results').classList.contains('old')")
    set_field(page, "count", 6)
    assert not problem(page)
    assert figures(page, 2)["Consumers"] == "6"


def test_hostile_names_are_shown_as_text(page: Browser) -> None:
    hostile = "<img src=x onerror=document.body.dataset.hacked=1>"
    click(page, "#recorded")
    set_field(page, "name", hostile)
    click(page, "#members-details summary")
    page.wait_for("document.querySelector('#members input')")
    page.evaluate(
        f"(e => {{ e.value = {json.dumps(hostile)}; e.dispatchEvent(new Event('change', {{bubbles: true}})); }})"
        "(document.querySelector('#members input'))"
    )
    settle(page)
    page.wait_for("document.getElementById('figures').innerText.includes('onerror')")
    assert not page.evaluate("document.body.dataset.hacked")
    assert page.evaluate("document.querySelectorAll('img').length") == 0


def test_a_damaged_link_opens_the_first_state(browser: Browser, studio: RunningStudio) -> None:
    open_page(browser, f"{studio.url}&s=not-a-state")
    assert figures(browser)["Consumers"] == "4"


def test_without_a_token_the_page_asks_for_it(browser: Browser, studio: RunningStudio) -> None:
    browser.open(studio.origin, 1280)
    browser.evaluate("sessionStorage.clear()")
    browser.open(studio.origin, 1280)
    browser.wait_for("!document.getElementById('token-form').hidden")
    assert "token" in problem(browser)


def test_a_replay_shows_its_progress_and_is_cancelled(browser: Browser, studio: RunningStudio, tmp_path: Path) -> None:
    program = tmp_path / "slow.py"
    program.write_text("import sys, time; print('reading the messages', file=sys.stderr, flush=True); time.sleep(60)")
    with start_studio(studio.workbench, BackgroundReplay((sys.executable, str(program)))) as slow:
        open_page(browser, slow.url)
        set_field(browser, "service", "8ms")
        click(browser, "#replay")
        browser.wait_for("document.getElementById('replay-state').textContent.includes('reading the messages')")
        set_field(browser, "limit", 60)  # the page is used meanwhile
        assert not problem(browser)
        click(browser, "#cancel-replay")
        browser.wait_for("document.getElementById('replay-state').textContent === 'Cancelled.'")
        assert browser.evaluate("document.getElementById('cancel-replay').hidden")


def test_a_program_is_copied_or_shown_to_be_copied(page: Browser) -> None:
    click(page, "#copy-python")
    page.wait_for(
        "document.getElementById('status').textContent.includes('copied') || document.querySelector('textarea')"
    )
    assert not problem(page)


def test_a_planned_restart_is_applied(page: Browser) -> None:
    click(page, "#recorded")
    settle(page)
    click(page, "[data-plan=rollout]")
    page.wait_for("document.querySelector('#plan button')")
    click(page, "#plan button")
    page.wait_for("document.querySelectorAll('#events li').length > 0")
    settle(page)
    assert not problem(page)
    assert all(member["restart"] for member in state_of(page)["state"]["scenarios"][0]["members"])
