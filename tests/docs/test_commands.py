"""Every command on a page works, and prints what the page shows.

``SUBREPLAY_SNAPSHOTS=write`` in the environment writes the outputs into the pages (``make docs-update``).
"""

from __future__ import annotations

import io
import os
import shlex
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from subreplay.cli import main
from tests.docs.pages import ROOT, Block, blocks, name, pages, setups, shown

WRITES = os.environ.get("SUBREPLAY_SNAPSHOTS") == "write"
RUN = [page for page in pages() if "\n```sh" in page.read_text(encoding="utf-8") and "incidents" not in page.parts]

pytestmark = pytest.mark.long


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in which a reader of a page works: a clone, as far as commands name its files."""
    for folder in ("conf", "jobs", "tests"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    (tmp_path / "build").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SUBREPLAY_SECRET", "a secret of the tests")
    monkeypatch.setenv("COLUMNS", "100")  # a process of pytest-xdist has another width
    return tmp_path


def run(command: str) -> tuple[int, str]:
    """The exit code of a command and what it printed: its results, else its error."""
    out, error = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(error):
        code = main.main(shlex.split(command)[1:])
    said = [line for line in error.getvalue().splitlines() if line.startswith("subreplay:")]
    return code, (out.getvalue() or "\n".join(said)).replace(f"{Path.cwd()}/", "")


@pytest.mark.parametrize("page", RUN, ids=name)
def test_the_commands_of_a_page_work_and_print_what_it_shows(page: Path, workplace: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for command in setups(text):
        assert run(command)[0] in (0, 1), command
    written: list[str] = []
    end = 0
    printed = ""
    for block in blocks(text):
        if path := block.notes.get("file"):
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text(block.text, encoding="utf-8")
        if block.language == "sh" and "not run" not in block.notes:
            printed = _run_block(block)
        elif block.language == "text" and "not run" not in block.notes and printed:
            now = shown(printed, block.notes.get("shows"))
            if not WRITES:
                assert block.text == now
            written += [text[end : block.start], now]
            end = block.start + len(block.text)
    if WRITES:
        page.write_text("".join([*written, text[end:]]), encoding="utf-8")


def _run_block(block: Block) -> str:
    """Run the commands of a block; returns what the last one printed."""
    printed = ""
    for command in block.commands:
        code, printed = run(command)
        expected = int(block.notes.get("exits", 0)) if command == block.commands[-1] else 0
        assert code == expected, f"{command}\n{printed}"
    return printed
