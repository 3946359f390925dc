import os
import pickle
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numba
import pytest
from numba.core.caching import CacheImpl

from subreplay.kernels import compiled as module
from subreplay.kernels.compiled import compiled, digest_visible_sources
from subreplay.kernels.inlining import operation
from subreplay.kernels.lazy_kernel import compile_lazily, prepare_all_kernels

PACKAGE = Path(module.__file__).parents[1]
NEW_STATE = """
import numpy as np
from subreplay.audit.passes.states import StateTable
states = StateTable(1)
states.indices(np.array([5]))
print(states.rows[0, 0])
"""


def test_a_kernel_works_where_no_cache_can_be_written(monkeypatch):
    monkeypatch.setattr(CacheImpl, "_locator_classes", [])
    assert compiled(lambda x: x + 1)(2) == 3


def twice(x):
    return 2 * x


def test_what_was_kept_is_good_only_while_no_file_changes_that_the_kernel_sees(monkeypatch):
    before = compiled(twice)._cache._cache_file._version
    monkeypatch.setattr(module, "digest_visible_sources", lambda _: "of other files")

    assert compiled(twice)._cache._cache_file._version != before


@compiled
def thrice(x):
    return 3 * x


def test_a_kernel_is_pickled_by_its_name():
    assert pickle.loads(pickle.dumps(thrice)) is thrice  # noqa: S301 - our own bytes


def test_a_kernel_is_made_when_it_or_another_one_that_calls_it_is_called(monkeypatch):
    monkeypatch.setattr(CacheImpl, "_locator_classes", [])  # what was kept on disk is not compiled
    below, other = compiled(twice), compiled(twice)
    above = compiled(lambda x: below(below(x)))
    assert [is_made(kernel) for kernel in (below, above, other)] == [False, False, False]
    assert above(3) == 12
    assert [is_made(kernel) for kernel in (below, above, other)] == [True, True, False]


def test_all_kernels_are_made_before_a_process_is_forked():
    kernel = compiled(twice)
    prepare_all_kernels()
    assert is_made(kernel)


def test_threads_make_a_kernel_once():
    made = []

    def make(function):
        time.sleep(0.05)
        made.append(function)
        return function

    kernel = compile_lazily(twice, make)
    with ThreadPoolExecutor() as pool:
        assert list(pool.map(kernel, range(4))) == [0, 2, 4, 6]
    assert made == [twice]


def test_the_reason_for_a_failed_compilation_is_reported():
    def make(function):
        raise AttributeError("numba has changed")

    with pytest.raises(AttributeError, match="numba has changed"):
        compile_lazily(twice, make)(1)


def test_a_kernel_is_interpreted_if_numba_is_disabled(monkeypatch):
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    assert compiled(twice).get_dispatcher() is twice
    assert operation(twice)(x=4) == 8


def is_made(kernel):
    return vars(kernel)["_dispatcher"] is not None


@pytest.mark.long
def test_a_constant_of_another_file_reaches_the_kernels_that_name_it(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "subreplay", ignore=shutil.ignore_patterns("__pycache__", "recording"))
    columns = tmp_path / "subreplay/rows/model/columns.py"
    assert _printed(tmp_path) == str(-(2**63))

    source = columns.read_text().replace("UNKNOWN: Final = int(np.iinfo(np.int64).min)", "UNKNOWN: Final = -7")
    columns.write_text(source)

    assert _printed(tmp_path) == "-7"


def _printed(root: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    command = [sys.executable, "-c", NEW_STATE]
    ran = subprocess.run(
        command, env=environment | {"PYTHONPATH": str(root)}, capture_output=True, text=True, check=True, cwd=root
    )
    return ran.stdout.strip()


SLOW = """
import numpy as np
from subreplay.kernels.compiled import compiled

@compiled
def kernel(values):
    return np.sort(np.unique(values)).cumsum()
"""
AT_ONCE = """
import sys, time
import numpy as np
import slow
while time.time() < float(sys.argv[1]):
    time.sleep(0.001)
assert slow.kernel(np.arange(3)).tolist() == [0, 1, 3]
print(sum(slow.kernel.stats.cache_misses.values()))
"""


@pytest.mark.long
def test_of_processes_that_start_together_one_compiles_and_the_others_wait_for_it(tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(PACKAGE.parent)])}
    command = [sys.executable, "-c", AT_ONCE, str(time.time() + 4)]
    started = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert sorted(int(each.communicate()[0]) for each in started) == [0, 0, 1]


def test_kernels_see_constants_codes_and_option_records_but_no_report():
    seen_by_rules = module._list_imports("subreplay.audit.passes.positions")
    assert {"subreplay.rows.model.columns", "subreplay.audit.codes"} <= set(seen_by_rules)
    assert "subreplay.simulation.pulsar.broker.dispatch_rules" in module._list_imports(
        "subreplay.simulation.pulsar.broker.broker_state"
    )
    assert digest_visible_sources("subreplay.audit.passes.positions") != digest_visible_sources(
        "subreplay.rows.model.columns"
    )
    assert "subreplay.kernels.reference_types" in module._list_imports("subreplay.kernels.compiled")
    assert not [name for name in seen_by_rules if name.startswith(("subreplay.reports", "subreplay.engine.spark"))]
