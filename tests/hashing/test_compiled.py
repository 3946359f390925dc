from pathlib import Path

from numba.core.caching import CacheImpl

from subreplay.hashing import compiled as module
from subreplay.hashing.compiled import compiled


def test_a_kernel_works_where_no_cache_can_be_written(monkeypatch):
    monkeypatch.setattr(CacheImpl, "_locator_classes", [])
    assert compiled(lambda x: x + 1)(2) == 3


def twice(x):
    return 2 * x


def test_what_was_kept_is_good_only_while_no_file_with_kernels_changes(monkeypatch):
    before = compiled(twice)._cache._cache_file._source_stamp
    monkeypatch.setattr(module, "_digest_of_kernels", lambda: "of other files")

    assert compiled(twice)._cache._cache_file._source_stamp != before


def test_a_change_in_any_file_with_kernels_or_their_steps_counts():
    sources = {path: path.read_bytes() for path in Path(module.__file__).parents[1].rglob("*.py")}
    compiled_in = {path for path, source in sources.items() if b"pragma: no cover - compiled" in source}
    assert compiled_in
    assert compiled_in <= {path for path, source in sources.items() if any(w in source for w in module._OF_KERNELS)}
