"""The life of a message or a key, as an audit has judged it, and judged now, by few rows and by many."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from subreplay.audit.explain.position import Position
from subreplay.config.run import RunConfig, parse
from subreplay.engine.local import engine as local
from subreplay.engine.local.engine import LocalEngine
from subreplay.errors import ConfigError, InputError
from subreplay.pipeline import explain, story, trace
from subreplay.rows.model.rows import Verdict
from tests.support.recordings import ROOT, ingested
from tests.support.snapshots import snapshot

DAY = "2026-11-21"  # of the recordings, UTC
TOPIC = "persistent://public/default/s1_key_shared_autosplit-1795231493"
LAST = 50


@dataclass(frozen=True)
class Audited:
    """The 4.0.8 Key_Shared recording, audited for its day by the local engine."""

    engine: LocalEngine
    folder: Path

    def run(self, out: Path | None = None, **sections: object) -> RunConfig:
        recording = ingested(ROOT / "4.0.8/s1_key_shared_autosplit").run
        traffic = {"path": f"{self.folder}/in", "format": "parquet"}
        output = {"tables": f"{out or self.folder}/tables", "report": f"{out or self.folder}/report"}
        raw = {**recording, "traffic": traffic, "output": output, "date": date.fromisoformat(DAY), **sections}
        return parse(raw, "run.yaml")

    def message(self, position: str, run: RunConfig | None = None) -> list[str]:
        lines = trace.trace_message(self.engine, run or self.run(), Position.parse(position), LAST)
        return [line.replace(str(self.folder), "OUT") for line in lines]

    def key(self, key: str, last: int = LAST, run: RunConfig | None = None) -> list[str]:
        lines = trace.trace_key(self.engine, run or self.run(), key, last)
        return [line.replace(str(self.folder), "OUT") for line in lines]


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audited]:
    folder = tmp_path_factory.mktemp("audited")
    write(folder / "in", ingested(ROOT / "4.0.8/s1_key_shared_autosplit").tables)
    with closing(LocalEngine(cores=2)) as engine:
        found = Audited(engine, folder)
        assert story.audit(engine, found.run()).verdict is Verdict.VALID
        yield found


def write(folder: Path, tables: Mapping[str, pa.Table]) -> None:
    for name, rows in tables.items():
        (folder / name).mkdir(parents=True)
        pq.write_table(rows, folder / name / "part.parquet")


@pytest.fixture(params=["few", pytest.param("many", marks=pytest.mark.long)])
def rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of many rows, each part is read by a process."""
    if request.param == "many":
        monkeypatch.setattr(local, "MIN_ROWS_FOR_PROCESSES", 0)


@pytest.mark.usefixtures("rows")
def test_the_trace_of_a_blocked_message_names_the_messages_that_block_it(audited: Audited) -> None:
    lines = audited.message(f"{TOPIC}:5:760")
    assert any("5:760  blocked by 3 others, last by 5:" in line for line in lines)
    snapshot("explain_message.txt", "\n".join([*lines, ""]))


@pytest.mark.usefixtures("rows")
def test_the_life_of_a_key_ends_with_the_deliveries_that_were_requested(audited: Audited) -> None:
    of_key = explain.explain_key(audited.run(), "Order-8505596", lambda: audited.engine)
    lines = [*of_key, "", *audited.key("Order-8505596", 2)]
    assert sum(" delivered to " in line for line in lines) == 2
    snapshot("explain_key.txt", "\n".join([*lines, ""]))
    assert audited.key("never seen") == [f"no message of this key on {DAY} in OUT/in"]


@pytest.mark.parametrize("day", [DAY, None])
@pytest.mark.parametrize(
    "ask",
    [
        lambda audited, run: audited.message(f"{TOPIC}:5:2243", run),
        lambda audited, run: audited.message(f"{TOPIC}:5:760", run),
        lambda audited, run: audited.key("Order-8505596", 7, run),
    ],
)
def test_without_the_tables_of_an_audit_its_findings_are_the_same(
    audited: Audited, ask: Callable[[Audited, RunConfig], list[str]], day: str | None, tmp_path: Path
) -> None:
    written, now = ask(audited, audited.run()), ask(audited, audited.run(tmp_path, date=day))
    assert written[1] == "judged by the audit that wrote OUT/tables"
    assert now[1] == f"judged by this command: no audit has written {tmp_path}/tables (name its folder with --out)"
    assert (written[0], written[2:]) == (now[0], now[2:])


def test_an_audit_of_another_policy_has_judged_nothing_of_this_run(audited: Audited) -> None:
    lines = audited.key("Order-8505596", 2, audited.run(liveness={"late_after": "1m"}))
    assert lines[1] == (
        "judged by this command: no audit with the policy, topic and settings of this run file has written OUT/tables"
    )


@pytest.mark.parametrize(
    ("message", "complaint", "error"),
    [
        (f"{TOPIC}:5:999999", f"was neither stored nor delivered on {DAY}", InputError),
        (f"{TOPIC}-partition-1:5:760", "a partitioned topic needs the suffix -partition-N", InputError),
        ("persistent://public/default/other:5:760", f"the run audits topic {TOPIC}", ConfigError),
    ],
)
def test_a_message_that_is_not_there(audited: Audited, message: str, complaint: str, error: type[Exception]) -> None:
    with pytest.raises(error) as raised:
        audited.message(message)
    assert complaint in str(raised.value)


@pytest.mark.parametrize("keys", [{"secret": "another"}, {"show": True}])
def test_another_secret_than_that_of_the_audit_is_refused(audited: Audited, keys: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"keys\.secret or keys\.show differs from the audit that wrote"):
        audited.key("Order-8505596", 2, audited.run(keys=keys))


def test_deliveries_with_findings_only_are_judged_again(audited: Audited, tmp_path: Path) -> None:
    output = {"tables": f"{tmp_path}/tables", "report": f"{tmp_path}/report", "audited": "findings"}
    run = audited.run(output=output)
    story.audit(audited.engine, run)
    lines = audited.key("Order-8505596", 2, run)
    assert lines[1] == f"judged by this command: {tmp_path}/tables contains only deliveries with findings"
    assert lines[2:] == audited.key("Order-8505596", 2)[2:]
