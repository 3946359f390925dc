"""Files of the coordinator's log: lines in batches, and what they tell together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.base import FileCount, Reason, Rejected
from subreplay.adapters.files import lines_of
from subreplay.adapters.kafka_group.coordinator_log.events import EVENTS, parse_lines
from subreplay.adapters.source.encoded import utf8_text
from subreplay.model.contracts import shortened

_NO_TEXT: Final = Reason("text", "(bytes)", "a line is UTF-8", "copy the log again from its broker")


@dataclass(frozen=True)
class Logged:
    """``EVENTS`` of the wanted group, each once, rejected lines, and the lines of each file. Valid lines gave events of
    the wanted group."""

    events: pa.Table
    rejected: tuple[Rejected, ...]
    counts: tuple[FileCount, ...]


def logged(files: Iterable[tuple[Path, str]], time_zone: str, group: str | None) -> Logged:
    """Read the files of a log, each with what it is called. An event that a file before has, too, counts once: logs are
    copied while they are written.

    Raises ``ConfigError`` where there is no such time zone, and ``EnvironmentFailed`` where a file cannot be read.
    """
    tables, rejected, counts = [EVENTS.empty_table()], list[Rejected](), list[FileCount]()
    seen: dict[tuple[object, ...], str] = {}
    for path, name in files:
        found, wrong, lines = _parsed(path, name, time_zone)
        if group is not None:
            found = found.filter(pc.equal(found["group"], group))
        told = found.drop_columns(["file", "line"]).to_pylist()  # a few: members and rebalances
        new = [seen.setdefault(tuple(event.values()), name) == name for event in told]
        found = found.filter(pa.array(np.array(new, np.bool_)))
        tables.append(found)
        rejected += wrong
        others = lines - len(wrong) - found.group_by("line").aggregate([]).num_rows
        counts.append(FileCount(name, lines, len(wrong), others))
    return Logged(pa.concat_tables(tables), tuple(rejected), tuple(counts))


def _parsed(path: Path, name: str, time_zone: str) -> tuple[pa.Table, list[Rejected], int]:
    """Events, rejected lines, and how many lines there are."""
    tables, rejected, lines = [EVENTS.empty_table()], list[Rejected](), 0
    for part in lines_of(path, name):
        if isinstance(part, Rejected):
            rejected.append(part._replace(table="membership"))
            lines += 1
            continue
        text = part.column("text")
        read = utf8_text(text)
        for broken in read.broken:
            about_groups = pc.match_substring(text, "roup").to_numpy(zero_copy_only=False)
            for i in np.flatnonzero(broken.rows & about_groups).tolist():
                raw = shortened(text[i].as_py().decode(errors="backslashreplace"))
                rejected.append(Rejected("membership", name, part.column("line")[i].as_py(), raw, (_NO_TEXT,)))
        found = parse_lines(part.set_column(2, "text", pc.fill_null(read.values, "")), time_zone)
        tables.append(found.events)
        rejected += [row._replace(table="membership") for row in found.rejected]
        lines += len(part)
    return pa.concat_tables(tables), rejected, lines
