"""What consumers were given, as batches tell it, added up."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest

from subreplay.audit.passes.loads import LOAD_KEYS, LOADS_OF_RUN, make_load_adder
from subreplay.rows import groups
from subreplay.rows.model.tables import LOAD

EXTENT = {"begin": min, "end": max}


def drawn(draws: Random) -> dict[str, Any]:
    """What a batch tells of one consumer; of windows nothing but messages and their kind, of all time more."""
    counted = {name: draws.randint(0, 9) for name in LOAD.names if name not in LOAD_KEYS}
    of_window = {"messages", "bytes", "keys", "redelivered", "unacked"}
    if draws.random() < 0.5:
        counted = {name: value if name in of_window else None for name, value in counted.items()}
    pane = draws.choice([0, 60])
    about = {"width": 60, "slide": 60, "pane": pane, "first": pane, "consumer": draws.choice(["c1", "c2", None])}
    return about | {"lag": None, "size": draws.choice([None, 1]), "selector": draws.choice([None, "s"])} | counted


def plainly(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        mine = found.setdefault(
            tuple(row[name] for name in LOAD_KEYS), dict.fromkeys(LOAD.names) | {n: row[n] for n in LOAD_KEYS}
        )
        for name in set(LOAD.names) - set(LOAD_KEYS):
            known = [value for value in (mine[name], row[name]) if value is not None]
            mine[name] = EXTENT.get(name, lambda *two: sum(two))(*known) if len(known) == 2 else next(iter(known), None)
    return sorted(found.values(), key=str)


@pytest.mark.parametrize("held", [0, 5, 1000])
def test_sums_do_not_depend_on_the_number_of_buffered_rows(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "MOST_PENDING", held)
    draws = Random(held)
    parts = [[drawn(draws) for _ in range(draws.randint(0, 9))] for _ in range(20)]
    adding = make_load_adder()
    for part in parts:
        adding.add(pa.Table.from_struct_array(pa.array(part, LOAD)))
    found = adding.compute_sum()
    assert found.schema == LOADS_OF_RUN
    assert sorted(found.to_pylist(), key=str) == plainly([row for part in parts for row in part])


def test_of_nothing_comes_nothing() -> None:
    assert make_load_adder().compute_sum().num_rows == 0
