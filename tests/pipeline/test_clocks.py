"""An audit of tables in which one consumer's clock is off: what it says of it, and what it holds against nobody."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from subreplay.adapters import ADAPTERS
from tests.support.audits import Audited, audited
from tests.support.clocks import OWN_LOG, off
from tests.support.history import History
from tests.support.recordings import ROOT

RECORDING = ADAPTERS["pulsar-recording"](ROOT / "4.0.8/s1_key_shared_autosplit")


def judged(folder: Path, tables: History, **output: str) -> Audited:
    return audited(folder, tables, subscription=RECORDING.run["subscription"], output=output)


@pytest.mark.parametrize("kept", ["all", "findings"])
def test_findings_that_a_clock_offset_explains_are_unknown_and_the_clock_is_named(tmp_path: Path, kept: str) -> None:
    found = judged(tmp_path, off(RECORDING.tables, "c2", 5_000_000, OWN_LOG[1:]), audited=kept)
    assert (found.code, found.report["verdict"]) == (3, "unknown")
    (doubt,) = found.report["doubts"]
    assert doubt.startswith("the clock of c2 is 5.00 s ahead of the broker's: ")
    assert doubt.endswith(" findings as recorded, 0 with it corrected")
    assert found.status["KEY_TWO_OWNERS"] == "unknown"
    assert "no findings after the clocks are corrected" in found.notes["KEY_TWO_OWNERS"]
    assert doubt in found.text
    assert "the clock of c2 is 5.00 s ahead of the broker" in found.page
    assert any(fact["label"] == "Clocks" and fact["note"] == doubt for fact in found.report["facts"])


def test_where_no_clock_can_be_off_nothing_is_judged_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("subreplay.pipeline.sums.measure_lags")
    rows = RECORDING.tables["deliveries"]
    index = rows.schema.get_field_index("consumer")
    of_others = pc.if_else(pc.equal(rows["consumer"], "c1"), "c2", "c1")
    tables = RECORDING.tables | {"deliveries": rows.set_column(index, "consumer", of_others)}
    found = judged(tmp_path, tables, audited="findings")
    assert (found.code, found.report["verdict"]) == (1, "invalid")


def test_a_fault_beside_it_stays_a_fault(tmp_path: Path) -> None:
    tables = off(RECORDING.tables, "c2", -5_000_000, OWN_LOG)
    found = judged(tmp_path, tables | {"deliveries": without_first_of(tables["deliveries"], "c1")})
    assert (found.code, found.report["verdict"]) == (1, "invalid")
    assert "the clock of c2 is 5.00 s behind the broker's" in found.text
    broken = {code for code, status in found.status.items() if status == "violated"}
    assert "LOST" in broken
    assert "NOT_CONNECTED" not in broken
    assert "NOT_CONNECTED" not in found.report["headline"]
    assert found.status["NOT_CONNECTED"] == "unknown"


def without_first_of(deliveries: pa.Table, consumer: str) -> pa.Table:
    """The deliveries without one of them: its message is lost."""
    row = pc.index(deliveries["consumer"], consumer).as_py()
    return pa.concat_tables([deliveries.slice(0, row), deliveries.slice(row + 1)])
