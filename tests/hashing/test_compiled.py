from numba.core.caching import CacheImpl

from subreplay.hashing.compiled import compiled


def test_a_kernel_works_where_no_cache_can_be_written(monkeypatch):
    monkeypatch.setattr(CacheImpl, "_locator_classes", [])
    assert compiled(lambda x: x + 1)(2) == 3
