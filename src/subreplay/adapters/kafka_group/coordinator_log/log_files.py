"""Read files of the coordinator's log part by part, and merge their events."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.base import Reason, RejectedRow
from subreplay.adapters.kafka_group.coordinator_log.log_events import COORDINATOR_EVENTS, parse_lines
from subreplay.adapters.log_lines import read_log_lines
from subreplay.rows.encoded import utf8_text
from subreplay.rows.model.contracts import shorten

_NOT_UTF8: Final = Reason("text", "(bytes)", "a line must be UTF-8", "copy the log again from its broker")


class LogPart(NamedTuple):
    """A part of a file: its ``COORDINATOR_EVENTS``, its rejected lines, and its line count."""

    events: pa.Table
    rejected: tuple[RejectedRow, ...]
    lines: int


def read_log(path: Path, name: str, time_zone: str) -> Iterator[LogPart]:
    """Read the parts of a log file, which rows call ``name``.

    Raises ``ConfigError`` where the time zone does not exist, and ``EnvironmentFailed`` where the file cannot be read.
    """
    for part in read_log_lines(path, name):
        if isinstance(part, RejectedRow):
            yield LogPart(COORDINATOR_EVENTS.empty_table(), (part._replace(table="membership"),), 1)
            continue
        text, rejected = part.column("text"), list[RejectedRow]()
        read = utf8_text(text)
        for broken in read.broken:
            about_groups = pc.match_substring(text, "roup").to_numpy(zero_copy_only=False)
            for i in np.flatnonzero(broken.rows & about_groups).tolist():
                raw = shorten(text[i].as_py().decode(errors="backslashreplace"))
                rejected.append(RejectedRow("membership", name, part.column("line")[i].as_py(), raw, (_NOT_UTF8,)))
        lines = pc.utf8_rtrim(pc.fill_null(read.values, ""), "\r\n")
        found = parse_lines(part.set_column(2, "text", lines), time_zone)
        rejected += [row._replace(table="membership") for row in found.rejected]
        yield LogPart(found.events, tuple(rejected), len(part))


def drop_copied_events(events: pa.Table) -> pa.Table:
    """Drop events that another file already contains, because logs are copied while they are written. Repetitions
    within one file stay."""
    seen: dict[tuple[object, ...], str] = {}
    every = zip(events.drop_columns(["file", "line"]).to_pylist(), events["file"].to_pylist(), strict=True)
    new = [seen.setdefault(tuple(event.values()), file) == file for event, file in every]
    return events.filter(pa.array(new, pa.bool_()))
