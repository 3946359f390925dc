"""Serve the page and answer its requests.

One thread evaluates, and drops requests that a newer one replaces. Another one plans, so that the page still answers.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from subreplay.errors import ConfigError, SubreplayError
from subreplay.reports.page.html import build_style
from subreplay.studio.access import HEADERS, MOST_BYTES, Access
from subreplay.studio.replay import BackgroundReplay, add_dispatch
from subreplay.studio.workbench import Workbench

_TYPES: Final = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
_PAGES: Final = 64  # pages whose latest request is remembered
_NAME: Final = re.compile(r"[a-z_]+\.(html|js|css)")
Answer = Callable[[Mapping[str, Any]], Any]


class Studio:
    """The answers to the requests of pages."""

    def __init__(self, workbench: Workbench, access: Access, replay: BackgroundReplay | None = None) -> None:
        self._workbench, self._access, self._replay = workbench, access, replay or BackgroundReplay()
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="studio")
        self._planner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="studio-plan")
        self._latest: OrderedDict[str, int] = OrderedDict()

    def build_app(self) -> Starlette:
        """Build the application."""
        answers: dict[str, Answer] = {
            "start": lambda requested: self._workbench.describe(),
            "evaluate": self._evaluate,
            "run-file": self._write_run_file,
            "python": lambda requested: {"text": self._workbench.run.write_python(_get_state(requested))},
            "replay": lambda requested: {"replay": self._replay.start(self._write_run_file(requested)["text"])},
        }
        slow: dict[str, Answer] = {
            "plan": lambda requested: self._workbench.plan(
                _get_state(requested), _get_number(requested, "selected"), str(requested.get("question"))
            ),
            "page": self._build_page,
        }
        quick: dict[str, Answer] = {
            "replay-state": lambda requested: self._replay.report(_get_number(requested, "replay")),
            "replay-cancel": lambda requested: self._replay.cancel() or {},  # type: ignore[func-returns-value]
        }
        routes = [Route("/", self._serve_file), Route("/{name}", self._serve_file)]
        for workers, works in ((self._worker, answers), (self._planner, slow), (None, quick)):
            routes += [
                Route(f"/api/{name}", self._answer(work, workers), methods=["POST"]) for name, work in works.items()
            ]
        return Starlette(routes=routes, lifespan=self._end_with_server)

    @asynccontextmanager
    async def _end_with_server(self, app: Starlette) -> Any:
        yield
        self._replay.cancel()
        for workers in (self._worker, self._planner):
            workers.shutdown(wait=False, cancel_futures=True)

    async def _serve_file(self, request: Request) -> Response:
        if refused := self._refuse(request, needs_token=False):
            return refused
        name = request.path_params.get("name", "studio.html")
        if name == "report.css":
            return Response(build_style(), media_type="text/css", headers=HEADERS)
        if not _NAME.fullmatch(name) or not (file := files("subreplay.studio") / "page" / name).is_file():
            return Response("There is no such page.", 404, media_type="text/plain", headers=HEADERS)
        kind = _TYPES[name.rpartition(".")[2]]
        return Response(file.read_text(encoding="utf-8"), media_type=kind, headers=HEADERS)

    def _answer(self, work: Answer, worker: ThreadPoolExecutor | None) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            if refused := self._refuse(request, needs_token=True):
                return refused
            try:
                requested = json.loads(await _read_body(request))
                if not isinstance(requested, dict):
                    raise ConfigError("the request is not a JSON object")
                number = self._note_latest(requested)
                loop = asyncio.get_running_loop()
                found = await loop.run_in_executor(worker, self._run_unless_stale, work, requested, number)
            except (ValueError, RecursionError) as error:
                return _send({"error": f"The request cannot be read: {error}"}, 400)
            except SubreplayError as error:
                return _send({"error": str(error)}, 422)
            except Exception as error:  # the page stays usable whatever fails
                return _send({"error": f"This is a bug in subreplay, please report it: {type(error).__name__}"}, 500)
            return _send({"stale": True}, 409) if found is None else _send(found)

        return answer

    def _refuse(self, request: Request, *, needs_token: bool) -> Response | None:
        headers = request.headers
        why = self._access.refuse(
            headers.get("host"), headers.get("origin"), headers.get("x-studio-token"), needs_token=needs_token
        )
        return None if why is None else _send({"error": why}, 403)

    def _note_latest(self, requested: Mapping[str, Any]) -> int:
        """Remember the number of the latest evaluation that each page requested, and return that of this request."""
        page, number = str(requested.get("page", ""))[:64], _get_number(requested, "number")
        if "number" in requested:
            self._latest[page] = max(number, self._latest.pop(page, 0))
            while len(self._latest) > _PAGES:
                self._latest.popitem(last=False)
        return number

    def _run_unless_stale(self, work: Answer, requested: Mapping[str, Any], number: int) -> Any:
        """Answer a request; None if the page has requested another evaluation since."""
        if "number" in requested and number < self._latest.get(str(requested.get("page", ""))[:64], 0):
            return None
        return work(requested)

    def _evaluate(self, requested: Mapping[str, Any]) -> dict[str, Any]:
        found = self._workbench.evaluate(
            _get_state(requested), _get_number(requested, "selected"), _get_number(requested, "baseline")
        )
        return {**found, "number": _get_number(requested, "number")}

    def _write_run_file(self, requested: Mapping[str, Any]) -> dict[str, str]:
        state = _get_state(requested)
        return {"text": self._workbench.run.write_run_file(add_dispatch(state) if requested.get("dispatch") else state)}

    def _build_page(self, requested: Mapping[str, Any]) -> dict[str, str]:
        """Build the report: that of the finished replay, if the request names one."""
        if "replay" in requested:
            return {"text": self._replay.page(_get_number(requested, "replay"))}
        return {"text": self._workbench.build_page(_get_state(requested))}


def _get_state(requested: Mapping[str, Any]) -> Mapping[str, Any]:
    state = requested.get("state")
    if not isinstance(state, Mapping):
        raise ConfigError("the request has no state")
    return state


def _get_number(requested: Mapping[str, Any], name: str) -> int:
    number = requested.get(name, 0)
    if not isinstance(number, int):
        raise ConfigError(f"{name} is not a number")
    return number


async def _read_body(request: Request) -> bytes:
    """Read the body of a request. Raises ``ConfigError`` if it is too large."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise ConfigError(f"The request is larger than {MOST_BYTES:,} bytes. Use fewer set-ups or consumers.")
    return bytes(body)


def _send(content: Any, code: int = 200) -> Response:
    return JSONResponse(content, code, headers=HEADERS)
