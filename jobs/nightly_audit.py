"""For spark-submit: check whether the subscription kept its delivery guarantees.

    spark-submit jobs/nightly_audit.py --config conf/examples/nightly_audit.yaml --date 2026-11-21

Runs on the Spark engine, takes the other options of ``subreplay audit``, and exits with its exit code:
0 valid, 1 violations, 2 bad input or configuration, 3 unknown, 4 the environment failed, 130 interrupted.
"""

import sys

from subreplay.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["audit", "--engine", "spark", *sys.argv[1:]]))
