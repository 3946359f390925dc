"""For spark-submit: replay recorded traffic under other set-ups and compare them side by side.

    spark-submit jobs/what_if.py --config conf/examples/what_if.yaml

Runs on the Spark engine, takes the other options of ``subreplay whatif``, and exits with its exit code:
0 done, 2 bad input or configuration, 4 the environment failed, 130 interrupted.
"""

import sys

from subreplay.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["whatif", "--engine", "spark", *sys.argv[1:]]))
