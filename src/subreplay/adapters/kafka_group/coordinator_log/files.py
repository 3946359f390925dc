"""Files of the coordinator's log, part by part, and what they tell together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.base import Reason, Rejected
from subreplay.adapters.kafka_group.coordinator_log.events import EVENTS, parse_lines
from subreplay.adapters.log_lines import log_lines
from subreplay.rows.encoded import utf8_text
from subreplay.rows.model.contracts import shortened

_NO_TEXT: Final = Reason("text", "(bytes)", "a line is UTF-8", "copy the log again from its broker")


class LogPart(NamedTuple):
    """``EVENTS`` of a part of a file, what was rejected of it, and how many lines it has."""

    events: pa.Table
    rejected: tuple[Rejected, ...]
    lines: int


def parts_of(path: Path, name: str, time_zone: str) -> Iterator[LogPart]:
    """The parts of a file of a log that is called so.

    Raises ``ConfigError`` where there is no such time zone, and ``EnvironmentFailed`` where the file cannot be read.
    """
    for part in log_lines(path, name):
        if isinstance(part, Rejected):
            yield LogPart(EVENTS.empty_table(), (part._replace(table="membership"),), 1)
            continue
        text, rejected = part.column("text"), list[Rejected]()
        read = utf8_text(text)
        for broken in read.broken:
            about_groups = pc.match_substring(text, "roup").to_numpy(zero_copy_only=False)
            for i in np.flatnonzero(broken.rows & about_groups).tolist():
                raw = shortened(text[i].as_py().decode(errors="backslashreplace"))
                rejected.append(Rejected("membership", name, part.column("line")[i].as_py(), raw, (_NO_TEXT,)))
        lines = pc.utf8_rtrim(pc.fill_null(read.values, ""), "\r\n")
        found = parse_lines(part.set_column(2, "text", lines), time_zone)
        rejected += [row._replace(table="membership") for row in found.rejected]
        yield LogPart(found.events, tuple(rejected), len(part))


def once(events: pa.Table) -> pa.Table:
    """``EVENTS`` in the order of their files, each once, but for what one file tells several times: logs are copied
    while they are written."""
    seen: dict[tuple[object, ...], str] = {}
    told = zip(events.drop_columns(["file", "line"]).to_pylist(), events["file"].to_pylist(), strict=True)
    new = [seen.setdefault(tuple(event.values()), file) == file for event, file in told]
    return events.filter(pa.array(new, pa.bool_()))
