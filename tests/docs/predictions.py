"""The published table of predictions: ``python -m tests.docs.predictions RECORDINGS...`` measures it anew.

The rows of recordings that are not given stay as they are.
"""

import json
import sys
from pathlib import Path

from subreplay.conformance import prediction_table
from subreplay.conformance.prediction_table import COLUMNS, PredictedRun, format_cells, read_predicted_runs
from subreplay.conformance.recordings import find_recordings, predict_recording

FILE = Path(prediction_table.__file__).with_name(prediction_table.FILE)
HEAD = """\
# Predictions and real brokers

After reading this page you know how far predictions were from what real brokers then did, run by run.

Every row is a recording of a real broker, and the prediction of its plan: the log, who starts, stops, hangs and leaves
when, the settings, and how long each message takes. `subreplay fidelity --predict RECORDING` measures it. What-ifs
quote from this table which error nine of ten runs of their kind did not exceed. In runs marked with * applications
refuse messages, which a plan does not say; they are not quoted.

* **load error**: how far the share of a consumer is off at most, in percentage points of all messages.
* **moved keys**: keys that more than one consumer received: recorded, predicted, in both.
* **p50**, **p99**: from publication until an application was done, recorded / predicted. Networks and clients are not
  modelled; they took 2 to 15 ms on these brokers.
* **drained after**: from the first publication until the last message was done. **pause**: how long a partition had no
  owner between two owners (median).
"""


def page() -> str:
    """The page of the table."""
    lines = [HEAD]
    for kind in dict.fromkeys(run.kind for run in read_predicted_runs()):
        rows = [run for run in read_predicted_runs() if run.kind == kind]
        lines += [f"## {prediction_table.KINDS[kind]}", ""]
        lines += [f"| {' | '.join(cells)} |" for cells in (COLUMNS, ["---"] * len(COLUMNS), *map(_mark, rows))]
        lines.append("")
    return "\n".join(lines)


def _mark(run: PredictedRun) -> tuple[str, ...]:
    name, *others = format_cells(run)
    return (name if run.complete else f"{name} *", *others)


def main(paths: list[str]) -> None:
    rows = {(run.broker, run.recording): run for run in read_predicted_runs()} if FILE.exists() else {}
    for folder in find_recordings(map(Path, paths)):
        run = predict_recording(folder).run
        rows[run.broker, run.recording] = run
    order = list(prediction_table.KINDS)
    found = sorted(rows.values(), key=lambda run: (order.index(run.kind), run.broker, run.recording))
    FILE.write_text("[\n" + ",\n".join(json.dumps(run._asdict()) for run in found) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
