"""The parent process of Spark's Python workers on this machine (``spark.python.daemon.module``).

It replaces Spark's ``pyspark.daemon`` and differs in two ways, so that tasks start faster:

* It imports pyspark from the folder that this program uses. Spark prepends zipped copies and a jar to the path. Python
re-reads their directories with each task, once for each package in them (``zipimporter.invalidate_caches``). That takes
a third of a second. * It imports the judging code with numba and Arrow before it forks. These imports take more than
two seconds.
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
    gc.freeze()  # forks need not scan shared objects
    daemon.manager()


if __name__ == "__main__":
    main()
