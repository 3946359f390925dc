"""The pages of ``docs/extending`` are followed literally: their files go into a copy of the package, and each works."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^`([\w/.]+)`(?:, new)?:\n\n```(python|diff)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = {
    page.stem: BLOCK.findall(page.read_text(encoding="utf-8"))
    for page in (ROOT / "docs/extending").glob("*.md")
    if page.stem != "index"
}
MOST_FILES = {"policy": 2, "rule": 2, "column": 3, "adapter": 2, "figure": 4, "profile": 1}

CHECKS = {
    "policy": """
from subreplay.audit.codes import Code
from subreplay.audit.rules.registry import find_rule_status
from subreplay.simulation.pulsar.broker.dispatch_rules import DispatcherKind
from subreplay.simulation.pulsar.dispatcher_choice import choose_dispatcher
from subreplay.rows.model.rows import Consumer, Scope, RuleStatus
from subreplay.semantics.policies import make_policy

policy = make_policy("pulsar.key_shared.even", "pulsar-4.2")
state = policy.start(Scope("t"))
for index in range(3):
    state = policy.join(state, Consumer(index, f"C{index}"))
assert state.table.rows() == [(0, 21844, 0), (21845, 43689, 1), (43690, 65535, 2)]
assert policy.leave(state, Consumer(0, "C0")).table.rows() == [(0, 32767, 1), (32768, 65535, 2)]
assert choose_dispatcher(policy) is DispatcherKind.KEY_SHARED_DRAINING
assert find_rule_status(Code.KEY_ORDER, policy) is RuleStatus.PROMISED
""",
    "rule": """
import pyarrow as pa
from subreplay.audit.codes import Code
from subreplay.audit.judge import Judge
from subreplay.audit.explain.findings import Explainer
from subreplay.audit.rules.registry import BY_ROW, find_rule_status
from subreplay.audit.terms import Terms
from subreplay.rows.model.rows import RuleStatus
from subreplay.rows.model.tables import JUDGED
from subreplay.semantics.policies import make_policy

HOUR, policy = 3_600_000_000_000, make_policy("pulsar.shared", "pulsar-4.0")
late = BY_ROW[Code.HOUR_LATE.bit]
facts = pa.table({"due": [0, 0, 0, -(2**63)], "nth": [0, 0, 1, 0], "at": [HOUR, HOUR + 1, HOUR + 1, 5]})
assert late(facts, Terms()).tolist() == [False, True, False, False]
assert find_rule_status(Code.HOUR_LATE, policy) is RuleStatus.ALLOWED

found = dict.fromkeys(JUDGED.names) | {
    "topic": "t", "partition": -1, "ledger": 5, "entry": 7, "batch_index": -1, "delivered": True, "before": False,
    "key": "k1", "consumer": "C1", "due": HOUR, "at": 3 * HOUR, "codes": Code.HOUR_LATE.bit,
    "shown": Code.HOUR_LATE.bit, "held_until": 3 * HOUR,
}  # fmt: skip
missing = {f.name: False if f.type == pa.bool_() else 0 for f in JUDGED if found[f.name] is None and not f.nullable}
rows = pa.Table.from_pylist([found | missing], schema=JUDGED)
(told,) = [r for b in Explainer(Judge(policy, {}), "s").explain_violations(rows.to_batches()) for r in b.to_pylist()]
assert told["code"] == "HOUR_LATE" and told["verdict"] == "valid"
assert told["explanation"] == "5:7 of key k1, due at 01:00:00.000000, reached C1 at 03:00:00.000000"
assert told["cause"] == "nobody took messages for so long, or there were too many of them"
""",
    "column": """
import pyarrow as pa
import pyarrow.parquet as pq
from pathlib import Path
from subreplay.config import run as config
from subreplay.engine.local.engine import LocalEngine
from subreplay.pipeline import story
from subreplay.rows.model.tables import INPUTS

DAY, SECOND = 1_767_225_600_000_000, 1_000_000
for name in ("messages", "membership", "deliveries"):
    position = [{"topic": "t", "partition": -1, "ledger": 0, "entry": n, "batch_index": -1} for n in range(3)]
    rows = {
        "messages": [{**p, "publish_time": DAY, "urgent": urgent} for p, urgent in zip(position, (True, True, None))],
        "membership": [{"subscription": "s", "topic": "t", "type": "Shared", "consumer": "C1", "event": "join",
                        "at": DAY, "seq": 0}],
        "deliveries": [{**p, "subscription": "s", "consumer": "C1", "delivered_at": DAY + late, "acked_at": DAY + late,
                        "seq": n, "redelivery_count": 0, "source": "observed"}
                       for n, (p, late) in enumerate(zip(position, (SECOND, 2 * SECOND, 2 * SECOND)))],
    }[name]
    rows = [dict.fromkeys(INPUTS[name].names) | {"date": DAY // (86_400 * SECOND)} | row for row in rows]
    Path("in", name).mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows, INPUTS[name]), f"in/{name}/part.parquet")
asked = config.parse({"traffic": {"path": "in", "format": "parquet"}, "subscription": {"name": "s", "policy":
    "pulsar.shared", "profile": "pulsar-4.0"}, "output": {"tables": "out", "report": "page"}}, "example")
with LocalEngine(cores=1) as engine:
    report = story.audit(engine, asked).report
assert {row.code: row.count for row in report.codes if row.count} == {"URGENT_LATE": 1}
(said,) = [said for file in Path("out/violations").rglob("*.parquet") for said in
    pq.ParquetFile(file).read(["explanation"])["explanation"].to_pylist()]
assert said.startswith("0:1 of key (none), urgent and due at 00:00:00.000000, reached C1 at 00:00:02"), said
""",
    "adapter": """
import tempfile
from pathlib import Path
from subreplay.adapters import ADAPTERS
from subreplay.errors import InputError
from subreplay.rows.model.tables import MESSAGES

folder = Path(tempfile.mkdtemp())
try:
    ADAPTERS["topic-csv"](folder)
except InputError as error:
    assert "columns topic, offset, key, published" in str(error)
else:
    raise AssertionError("a folder without the file was read")
at = 1_767_225_600_000_000
lines = ["topic,offset,key,published", f"t,0,k1,{at}", f"t,one,secret,{at}", f"t,2,,{at}"]
(folder / "messages.csv").write_text("\\n".join(lines))
read = ADAPTERS["topic-csv"](folder)
assert read.tables["messages"].schema == MESSAGES
assert read.tables["messages"]["entry"].to_pylist() == [0, 2]
assert read.tables["messages"]["key"].to_pylist() == [b"k1", None]
(count,), (rejected,) = read.counts, read.rejected
assert (count.rows_in, count.valid, count.quarantined) == (3, 2, 1)
assert str(rejected) == "messages.csv, row 3: offset = one: it must be an integer (correct it in the file)"
assert "secret" not in rejected.raw
""",
    "figure": """
from pathlib import Path
from subreplay.reports.figures import Figures
from subreplay.semantics.policies import make_policy
from subreplay.reports.assemble.report import build_facts
from subreplay.reports.metrics import METRICS
from subreplay.whatif.message_assignment import ScenarioPlan

policy = make_policy("pulsar.shared", "pulsar-4.0")
totals = {"deliveries": 8, "messages": 6, "at_owner": 8, "outside": 8, "in_transition": 0}
extent = {"messages": 6, "deliveries": 8, "first": 0, "last": 1}
figures = Figures("t", (), extent, 1, ScenarioPlan("s", policy, {}), (), totals=totals, consumers=[{"redelivered": 2}])
assert ("Delivered once", "75.00%") in [(fact.label, fact.value) for fact in build_facts(policy, figures, ())]
assert METRICS["delivered once"] in Path("docs/reference/metrics.md").read_text()
""",
    "profile": """
from subreplay.simulation.pulsar.broker.dispatch_rules import find_dispatch_rule
from subreplay.semantics.policies import REGISTRY, make_policy
from subreplay.hashing.profiles import KEYLESS

for name in (name for name in REGISTRY if name.startswith("pulsar.") and not name.startswith("pulsar.scalable.")):
    assert make_policy(name, "pulsar-4.3").space == make_policy(name, "pulsar-4.2").space
assert find_dispatch_rule("pulsar-4.3") == find_dispatch_rule("pulsar-4.2")
assert KEYLESS["pulsar-4.3"].per_message
""",
}


def changed(text: str, diff: str) -> str:
    """A file after a diff without line numbers: what each of its parts expects must stand there exactly once."""
    for hunk in diff.split("@@\n")[1:]:
        lines = [(line[:1], line[1:]) for line in hunk.splitlines()]
        before, after = ("".join(f"{said}\n" for mark, said in lines if mark != other) for other in "+-")
        assert text.count(before) == 1, f"{text.count(before)} times:\n{before}"
        text = text.replace(before, after)
    return text


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    return tmp_path


@pytest.mark.long
@pytest.mark.parametrize("page", MOST_FILES)
def test_the_page_is_followed_literally(copy: Path, page: str) -> None:
    for name, kind, text in PAGES[page]:
        path = copy / name
        assert path.exists() == (kind == "diff")
        path.write_text(changed(path.read_text(encoding="utf-8"), text) if kind == "diff" else text, encoding="utf-8")
        if path.suffix == ".py":
            ast.parse(path.read_text(encoding="utf-8"))
    environment = os.environ | {"PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    run = subprocess.run(
        [sys.executable, "-c", CHECKS[page]], cwd=copy, env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("page", MOST_FILES)
def test_an_addition_touches_few_files(page: str) -> None:
    files = {name for name, _, _ in PAGES[page] if name.startswith("src/")}
    assert 0 < len(files) <= MOST_FILES[page]


def test_every_page_is_followed() -> None:
    assert PAGES.keys() == MOST_FILES.keys()
