"""Compilation of hot loops with numba, for every package that has some.

``lazy_kernel`` lets modules declare kernels without importing numba; each is compiled when it is first called.
``compiled`` compiles a function and caches the result on disk. A digest of all source files that the function can see
decides whether the cached result is still valid. ``inlining`` has the decorators for loops over arrays that allocate
none: operations that Python calls, and parts that are compiled into them. ``binary_search`` is such a part.
``reference_types`` passes a named tuple of arrays to a kernel as one pointer, through numba's extension interface.
``compilation_monitor`` reports compilations to the user.

The kernels themselves are in the packages whose rules they compute. This package does not know them.

``numba_internals`` contains everything that numba does not guarantee. ``tests/kernels`` fails if a release of numba
changes any of it, and ``pyproject.toml`` accepts only the tested releases.
"""
