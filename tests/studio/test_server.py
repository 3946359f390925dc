"""The server answers only its own page, drops what is out of date, and bounds the work of a request."""

from __future__ import annotations

import http.client
import sys
import time
from contextlib import closing
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import urlsplit

import pytest

from subreplay.studio.access import MOST_BYTES, Access
from subreplay.studio.replay import BackgroundReplay
from subreplay.studio.state import MOST_CONSUMERS
from tests.support.studio import RunningStudio, draw_state, start_studio


def get(studio: RunningStudio, path: str, **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(urlsplit(studio.origin).netloc, timeout=30)
    with closing(connection):
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        answer.read()
        return answer


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ({"Host": "evil.example"}, "not the one of the studio"),
        ({"Origin": "https://evil.example"}, "another site"),
        ({"Origin": "null"}, "another site"),
        ({"Origin": None}, "does not name its origin"),
        ({"X-Studio-Token": None}, "token is missing"),
        ({"X-Studio-Token": "guessed"}, "token is missing or wrong"),
    ],
)
def test_a_request_of_somebody_else_is_refused(studio: RunningStudio, headers: dict[str, Any], why: str) -> None:
    code, found = studio.post("start", {}, headers)
    assert (code, list(found)) == (403, ["error"])
    assert why in found["error"]


def test_a_page_of_another_name_is_refused_although_it_needs_no_token(studio: RunningStudio) -> None:
    assert get(studio, "/", Host="evil.example").status == 403
    assert get(studio, "/", Host="localhost:1").status == 403
    assert get(studio, "/").status == 200


def test_every_answer_forbids_foreign_content(studio: RunningStudio) -> None:
    for path in ("/", "/studio.js", "/report.css", "/nothing.js"):
        policy = get(studio, path).headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy


@pytest.mark.parametrize(
    "path", ["/../server.py", "/..%2fserver.py", "/.js", "/__init__.py", "/page/studio.js", "/STUDIO.js"]
)
def test_only_files_of_the_page_are_served(studio: RunningStudio, path: str) -> None:
    assert get(studio, path).status == 404


def test_a_proxy_needs_its_address_and_no_token() -> None:
    access = Access.create("0.0.0.0", 8000, "https://studio.example.com/")
    origin = "https://studio.example.com"
    assert access.refuse("studio.example.com", origin, None, needs_token=True) is None
    assert access.refuse("127.0.0.1:8000", "http://127.0.0.1:8000", None, needs_token=True)
    assert access.refuse("studio.example.com", "https://evil.example", None, needs_token=True)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[1]", b"[" * 5000, b'{"state": 5}', b'{"state": {"spark": {}}}', b"\xff"]
)
def test_a_request_that_is_no_state_is_an_error_with_a_sentence(studio: RunningStudio, body: bytes) -> None:
    code, found = studio.post("evaluate", body)
    assert code in (400, 422)
    assert found["error"]


def test_too_much_work_is_refused(studio: RunningStudio) -> None:
    state = draw_state(0)
    state["scenarios"][0]["members"] = [{"consumer": f"c{i}"} for i in range(MOST_CONSUMERS + 1)]
    code, found = studio.post("evaluate", {"state": state})
    assert (code, "1,001 consumers" in found["error"]) == (422, True)
    seven = {"scenarios": [{"name": str(i), "policy": "pulsar.shared"} for i in range(7)]}
    assert "7 set-ups" in studio.post("evaluate", {"state": seven})[1]["error"]
    assert "larger than" in studio.post("evaluate", b" " * (MOST_BYTES + 1))[1]["error"]
    ring = {"name": "ring", "policy": "pulsar.key_shared.consistent_hash", "options": {"points": 10_000}}
    ring["members"] = [{"consumer": f"c{i}"} for i in range(21)]  # type: ignore[assignment]
    assert "points of the hash ring" in studio.post("evaluate", {"state": {"scenarios": [ring]}})[1]["error"]


def test_an_evaluation_that_a_newer_one_replaced_is_dropped(studio: RunningStudio, monkeypatch: Any) -> None:
    evaluate, evaluated = type(studio.workbench).evaluate, []

    def slow(self: Any, state: Any, *view: int) -> Any:
        evaluated.append(state["windows"]["width"])
        time.sleep(0.5)
        return evaluate(self, state, *view)

    monkeypatch.setattr(type(studio.workbench), "evaluate", slow)
    codes: dict[int, int] = {}

    def request(number: int) -> None:
        state = draw_state(0) | {"windows": {"width": f"{number + 1}s"}}
        codes[number] = studio.post("evaluate", {"state": state, "page": "p", "number": number})[0]

    threads = [Thread(target=request, args=[number]) for number in range(1, 5)]
    for thread in threads:
        thread.start()
        time.sleep(0.05)
    for thread in threads:
        thread.join()
    assert codes == {1: 200, 2: 409, 3: 409, 4: 200}
    assert evaluated == ["2s", "5s"]


def test_hostile_names_come_back_escaped(studio: RunningStudio) -> None:
    hostile = '</text><script>alert(1)</script>"'
    state = {"scenarios": [{"name": hostile, "policy": "pulsar.shared", "members": [{"consumer": hostile}]}]}
    code, found = studio.post("evaluate", {"state": state})
    assert code == 200
    for chart in (found["cards"][0]["chart"], *found["detail"]["charts"].values()):
        assert "<script" not in chart


def test_a_bug_is_an_error_and_the_next_request_is_answered(studio: RunningStudio, monkeypatch: Any) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(type(studio.workbench), "evaluate", lambda *_: 1 / 0)
        assert studio.post("evaluate", {"state": draw_state(0)}) == (
            500, {"error": "This is a bug in subreplay, please report it: ZeroDivisionError"},
        )  # fmt: skip
    assert studio.post("evaluate", {"state": draw_state(0)})[0] == 200


def wait_for_end(studio: RunningStudio, number: int) -> dict[str, Any]:
    for _ in range(3_000):  # the first replay of an environment compiles
        found: dict[str, Any] = studio.post("replay-state", {"replay": number})[1]
        if found["state"] != "running":
            return found
        time.sleep(0.1)
    raise AssertionError("the replay does not end")


@pytest.mark.long
def test_a_replay_has_the_latency_of_the_command(studio: RunningStudio) -> None:
    state = draw_state(0) | {"scenarios": [{"name": "a", "policy": "pulsar.key_shared.auto_split"}]}
    number = studio.post("replay", {"state": state, "dispatch": True})[1]["replay"]
    found = wait_for_end(studio, number)
    assert found["state"] == "done"
    assert found["setups"][0]["figures"]["to_delivered"]["count"] == 4_000
    assert "<!doctype html>" in studio.post("page", {"state": state, "replay": number})[1]["text"].lower()


def test_a_replay_is_cancelled_and_its_process_ends(studio: RunningStudio, tmp_path: Path) -> None:
    program = tmp_path / "slow.py"
    program.write_text("import sys, time; print('replaying', file=sys.stderr, flush=True); time.sleep(60)")
    replay = BackgroundReplay((sys.executable, str(program)))
    with start_studio(studio.workbench, replay) as slow:
        number = slow.post("replay", {"state": draw_state(5), "dispatch": True})[1]["replay"]
        assert slow.post("replay-state", {"replay": number})[1]["state"] == "running"
        process = replay._process
        assert process is not None
        assert slow.post("replay-cancel", {})[0] == 200
        assert process.poll() is not None
        assert slow.post("replay-state", {"replay": number})[1] == {"state": "cancelled"}


def test_a_replay_that_fails_says_why(studio: RunningStudio, tmp_path: Path) -> None:
    program = tmp_path / "failing.py"
    program.write_text("import sys; sys.exit('subreplay: the disk is full')")
    with start_studio(studio.workbench, BackgroundReplay((sys.executable, str(program)))) as failing:
        number = failing.post("replay", {"state": draw_state(5), "dispatch": True})[1]["replay"]
        assert wait_for_end(failing, number)["error"] == "subreplay: the disk is full"


def test_a_replay_needs_a_service_time(studio: RunningStudio) -> None:
    state = {name: value for name, value in draw_state(0).items() if name != "plan"}
    assert "service time" in studio.post("replay", {"state": state, "dispatch": True})[1]["error"]


def test_the_page_answers_while_a_plan_is_made(studio: RunningStudio, monkeypatch: Any) -> None:
    planning, evaluated = Event(), Event()

    def plan(self: Any, *requested: Any) -> dict[str, Any]:
        planning.set()
        assert evaluated.wait(30)
        return {}

    monkeypatch.setattr(type(studio.workbench), "plan", plan)
    thread = Thread(target=studio.post, args=["plan", {"state": draw_state(0), "question": "ranges"}])
    thread.start()
    assert planning.wait(30)
    assert studio.post("evaluate", {"state": draw_state(0)})[0] == 200
    evaluated.set()
    thread.join()
