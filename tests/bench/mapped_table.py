"""What it adds to an audit that its messages are a table of somebody else's: ``python -m tests.bench.mapped_table
[million messages]`` prints seconds, each beside those of the same rows in our own columns.

Columns that only have other names, or times that are numbers, cost next to nothing; message ids in one text, and keys
in base64, have to be taken apart.
"""

from __future__ import annotations

import base64
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.bench import day, figures
from tests.bench.audit import WARM_UP, measured

ROUNDS = 2
MAPPINGS: dict[str, dict[str, Any]] = {
    "other names, times as numbers": {
        "columns": {
            "topic": "topic_name", "partition": "part", "ledger": "ledger_id", "entry": "entry_id",
            "batch_index": "position_in_batch", "key": "order_id", "producer": "sent_by", "sequence_id": "number",
            "publish_time": {"column": "written", "as": "epoch_us"}, "size": "bytes",
        },
    },
    "message ids as text, keys in base64": {
        "columns": {
            "topic": "topic_name", "message_id": {"column": "id", "as": "message_id"},
            "key": {"column": "order_id_text", "as": "base64"}, "producer": "sent_by", "sequence_id": "number",
            "publish_time": {"column": "written", "as": "epoch_us"}, "size": "bytes",
        },
    },
}  # fmt: skip


def write(folder: Path, messages: int) -> None:
    """A day, and its messages once more as somebody else would have them: table ``theirs``."""
    day.write(folder, messages)
    (folder / "theirs").mkdir()
    for file in sorted((folder / "messages").glob("*.parquet")):
        ours = pq.read_table(file)
        number = {name: ours[name].cast(pa.string()) for name in ("ledger", "entry", "partition", "batch_index")}
        theirs = {
            "topic_name": ours["topic"], "part": ours["partition"], "ledger_id": ours["ledger"],
            "entry_id": ours["entry"], "position_in_batch": ours["batch_index"], "order_id": ours["key"],
            "sent_by": ours["producer"], "number": ours["sequence_id"], "bytes": ours["size"],
            "written": ours["publish_time"].cast(pa.int64()),
            "id": pc.binary_join_element_wise(*number.values(), ":"),
            "order_id_text": _base64(ours["key"]),
        }  # fmt: skip
        pq.write_table(pa.table(theirs), folder / "theirs" / file.name)


def _base64(keys: pa.ChunkedArray) -> pa.Array:
    whole = keys.combine_chunks().dictionary_encode()
    texts = [base64.b64encode(key).decode() for key in whole.dictionary.to_pylist()]
    return pa.array(texts).take(whole.indices)


def main(millions: float = 10) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        warm_up, whole = Path(scratch) / "warm_up", Path(scratch) / "whole"
        write(warm_up, WARM_UP)
        write(whole, round(millions * 1e6))
        requested = ["tests.bench.audit", str(warm_up), str(whole), "findings"]
        for _ in range(ROUNDS):
            own = measured(*requested)
            print(f"{'our own columns':40}{own.found['seconds']:8.1f} s{own.peak:7.0f} MiB")
            for name, section in MAPPINGS.items():
                run = measured(*requested, json.dumps(section | {"format": "parquet"}))
                assert run.found["counts"] == own.found["counts"], "the same rows, the same findings"
                times = run.found["seconds"] / own.found["seconds"]
                print(f"{name:40}{run.found['seconds']:8.1f} s{run.peak:7.0f} MiB   {times:.2f} times")
                figures.tell(f"mapped: {name}", seconds=run.found["seconds"], of_own_columns=times)


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
