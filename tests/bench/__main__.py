"""``python -m tests.bench [--quick]``: every benchmark, one after the other, and their figures in build/bench."""

from argparse import ArgumentParser
from functools import partial
from pathlib import Path

from tests.bench import (
    audit,
    broker_log,
    capture,
    carried_keys,
    cores,
    daily_runs,
    dispatch,
    figures,
    fleet,
    group_copies,
    kafka,
    kafka_group,
    keys,
    mapped_table,
    membership,
    planning,
    report,
    small,
    source_mapping,
    spark_growth,
    studio,
    units,
    whatif,
)

if __name__ == "__main__":  # each process of a benchmark reads this file
    parser = ArgumentParser(
        "python -m tests.bench", description="Run every benchmark, write their figures to build/bench."
    )
    parser.add_argument("--quick", action="store_true", help="audit a tenth of the rows, leave out the longest replays")
    quick = parser.parse_args().quick
    path = Path("build/bench") / f"{figures.found()['commit']}.json"
    for benchmark in (
        partial(small.main, 1 if quick else 3),
        partial(cores.main, 0.5 if quick else 4),
        partial(audit.main, 1_000_000 if quick else 10_000_000),
        partial(spark_growth.main, *((0.2, 1) if quick else (2, 10))),
        partial(units.main, 50_000 if quick else 500_000),
        partial(whatif.main, 1 if quick else 10),
        partial(studio.main, 1 if quick else 10),
        partial(membership.main, 1_000),
        partial(report.main, 2_000),
        planning.main,
        partial(dispatch.main, quick=quick),
        kafka.main,
        partial(fleet.main, 1 if quick else 20),
        partial(carried_keys.main, 1_000_000 if quick else 10_000_000),
        daily_runs.main,
        keys.main,
        source_mapping.main,
        broker_log.main,
        kafka_group.main,
        capture.main,
        partial(group_copies.main, 0.5 if quick else 5),
        partial(mapped_table.main, 1 if quick else 10),
    ):
        figures.measured(benchmark)
        figures.write(path)  # each time, because a later one may be broken off
    print(f"figures: {path}")
