"""The process that Spark's Python workers on this machine are forks of (``spark.python.daemon.module``).

It does what Spark's own does, ``pyspark.daemon``, and differs in two ways, so that a task starts in no time:

* It finds pyspark where this program does. Spark puts zipped copies of it in front, and a jar. With each task Python
  reads the directory of each such archive anew, once for every package that came from it, which takes a third of a
  second (``zipimporter.invalidate_caches``).
* It has imported what judges, with numba and Arrow, and so has each of its forks. That takes two seconds and more.
"""

import gc
import sys
from importlib import import_module
from pathlib import Path

from subreplay.kernels.lazy_kernel import prepare_all_kernels


def main() -> None:
    """Serve until Spark ends."""
    sys.path[:] = [entry for entry in sys.path if not Path(entry).is_file()]
    sys.path_importer_cache.clear()
    daemon = import_module("pyspark.daemon")
    for name in ("subreplay.engine.spark.packing", "subreplay.pipeline.story"):
        import_module(name)
    prepare_all_kernels()
    gc.freeze()  # what forks share they need not look through
    daemon.manager()


if __name__ == "__main__":
    main()
