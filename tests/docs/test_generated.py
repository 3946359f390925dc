"""Pages that are made of the package are current, and name what runs write."""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from deltalake import DeltaTable

from subreplay.cli import main
from tests.docs import incidents, reference
from tests.docs.pages import DOCS, ROOT

PAGES = {**reference.pages(), **incidents.pages()}


@pytest.mark.parametrize("page", PAGES)
def test_a_generated_page_is_current(page: str) -> None:
    """``make docs-update`` writes it anew."""
    assert (DOCS / page).read_text(encoding="utf-8") == PAGES[page]


def test_no_column_is_explained_that_no_table_has() -> None:
    assert reference.undefined_columns() == []


@pytest.mark.long
def test_the_page_of_result_tables_has_the_columns_that_runs_write(tmp_path: Path) -> None:
    with redirect_stdout(StringIO()):
        assert main.main(["demo", "--out", str(tmp_path / "demo")]) == 0
        run_file = ["--config", str(ROOT / "conf/examples/dispatch.yaml"), "--tables", str(tmp_path / "demo/input")]
        assert main.main(["whatif", *run_file, "--out", str(tmp_path / "whatif")]) == 0
    for folder in (*(tmp_path / "demo/tables").iterdir(), *(tmp_path / "whatif/tables").iterdir()):
        written = {field.name for field in DeltaTable(str(folder)).schema().fields}
        assert written == {*reference.columns(folder.name.removeprefix("whatif_"))}, folder.name
