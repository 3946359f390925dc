"""Read when the applications of a recording acknowledged nothing: acts of its plan, in ``membership``."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, TypeAdapter

from subreplay.adapters.contract_types import Name, Nanos
from subreplay.adapters.jsonl import read_contract_rows


class _MembershipRow(BaseModel):
    model_config = ConfigDict(extra="ignore")
    event: str
    consumer: Name | None = None
    t_ns: Nanos


class Hold(NamedTuple):
    """From ``since`` up to ``until`` (ns; None: to the end), an application acknowledges nothing."""

    since: int
    until: int | None


def read_holds(folder: Path) -> dict[str, Hold]:
    """Return the first hold of each consumer, which its end ends, too, and a cut connection: the client comes back
    without what it held. Raises as ``read_contract_rows``.
    """
    holds: dict[str, Hold] = {}
    for row in read_contract_rows(folder, "membership", TypeAdapter(_MembershipRow), required=False).rows.values():
        if row.consumer is None:
            continue
        if row.event == "hold":
            holds.setdefault(row.consumer, Hold(row.t_ns, None))
        elif row.event in ("release", "dropped", "leave", "lost") and row.consumer in holds:
            since, until = holds[row.consumer]
            holds[row.consumer] = Hold(since, until or row.t_ns)
    return holds
