"""How hot loops are compiled with numba, for every room that has some.

``kernel`` has what modules say of their kernels without importing numba: each is made when it is first called.
``compiled`` compiles a function and keeps the result on disk; a digest of all files that the function can see decides
whether what was kept is still good. ``inlining`` has the decorators for loops over arrays that make none themselves:
operations that Python calls, and parts that are compiled into them, the hot ones whatever their size. ``search`` is
such a part. ``by_reference`` passes a named tuple of arrays to a kernel as one pointer, by numba's interface for
extensions.

The kernels themselves stand in the rooms whose rules they compute. Nothing here knows what they compute.

What numba does not promise stands in ``numba_internals`` alone. ``tests/kernels`` fails where a release of numba
changes any of it, and ``pyproject.toml`` takes only the releases that were tested.
"""
