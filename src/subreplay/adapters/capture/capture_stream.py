"""Fold a capture of any size as streams of sorted rows.

``_scan_file`` reads a file. ``_check_events`` follows each instance in ``seq`` order: it checks the events, and finds
the receipts that a cumulative acknowledgement ends. ``_build_deliveries`` receives the events of one message at an
instance together, and ``_build_messages`` all receipts of an entry. Each keeps only outstanding events in memory.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.canonical import build_table
from subreplay.adapters.capture.capture_events import CaptureSource, list_sources, read_events
from subreplay.adapters.capture.capture_summary import (
    FIRSTS,
    SIZES,
    build_file_counts,
    build_messages,
    build_run,
    count_file_rows,
    find_firsts,
)
from subreplay.adapters.capture.captured_deliveries import CLOSING_EVENTS, SINGLE_MESSAGE_EVENTS, build_deliveries
from subreplay.adapters.capture.captured_membership import MEMBERSHIP_EVENTS, build_membership_rows
from subreplay.adapters.capture.cumulative_acks import COVERED_EVENTS, LAST_ENDS, AckProgress, find_last_ends
from subreplay.adapters.capture.event_checks import (
    LEDGERS,
    NUMBERED_EVENTS,
    VALID_EVENTS,
    check_events,
    find_ledger_topics,
    is_event,
    is_null,
    select_last_of_ledgers,
    select_messages,
)
from subreplay.adapters.streams import (
    REJECTED,
    Batches,
    Rows,
    SmallTables,
    SourceStream,
    Stage,
    StreamResult,
    build_quarantine,
    sum_file_sizes,
)
from subreplay.capture.file_format import CaptureEvent
from subreplay.rows.groups import read_whole_groups
from subreplay.rows.model.tables import DELIVERIES, MESSAGES, QUARANTINE
from subreplay.rows.sorted_blocks import GROUP

_LEDGERS_WITHOUT_TOPIC: Final = pa.schema([("instance", pa.string()), ("ledger", pa.int64())])
"""The ledgers of an instance in events that contain no topic."""
_OTHER_EVENTS: Final = (*MEMBERSHIP_EVENTS, *CLOSING_EVENTS)
"""The events of all instances that do not concern messages; they are few."""
_ENTRY: Final = ("topic", "partition", "ledger", "entry")
_MESSAGE: Final = ("instance", *_ENTRY, "batch_index")
_ROW: Final = ("file_number", "row")


def open_stream(folder: Path) -> SourceStream:
    """Describe how to read a folder of any size, with any number of consumers and processes.

    A receipt can be a delivery without being a valid message, if its publish time is unknown or receipts disagree.
    Raises ``InputError`` where there is no capture file.
    """
    found = list_sources(folder)
    return SourceStream(
        sum_file_sizes(source.path for source in found),
        found,
        _scan_file,
        {"events": NUMBERED_EVENTS},
        {"sizes": SIZES, "ledgers": LEDGERS, "ledgers_without_topic": _LEDGERS_WITHOUT_TOPIC, "last": LAST_ENDS},
        (
            Stage(
                _plan_checks,
                {"message_events": COVERED_EVENTS, REJECTED: QUARANTINE},
                {"other_events": COVERED_EVENTS, "firsts": FIRSTS},
                "events",
                ("instance",),
                ("seq", *_ROW),
            ),
            Stage(_plan_deliveries, {"deliveries": DELIVERIES}, {}, "message_events", _MESSAGE, ("seq",)),
            Stage(
                lambda _: _build_messages,
                {"messages": MESSAGES, REJECTED: QUARANTINE},
                {},
                "message_events",
                _ENTRY,
                ("batch_index", "at_ns", *_ROW),
                ("event", CaptureEvent.RECEIVE.value),
            ),
        ),
        _build_result,
    )


def _scan_file(source: CaptureSource) -> Rows:
    """Read the events of a file, and the facts of all files that the checks need."""
    for events in read_events(source):
        yield "events", events
        yield "sizes", count_file_rows(events)
        yield "ledgers", find_ledger_topics(events)
        silent = events.filter(pa.array(is_null(events, "topic") & ~is_null(events, "ledger")))
        yield (
            "ledgers_without_topic",
            silent.group_by(_LEDGERS_WITHOUT_TOPIC.names).aggregate([]).cast(_LEDGERS_WITHOUT_TOPIC),
        )
        yield "last", find_last_ends(events)


def _plan_checks(small: SmallTables) -> partial[Rows]:
    wanted = small["ledgers_without_topic"].group_by(_LEDGERS_WITHOUT_TOPIC.names).aggregate([])
    ledgers = select_last_of_ledgers(
        small["ledgers"].join(wanted, _LEDGERS_WITHOUT_TOPIC.names, join_type="left semi").combine_chunks()
    )
    ends = small["last"].group_by("instance").aggregate([("seq", "max")])
    return partial(_check_events, ledgers, dict(zip(*(column.to_pylist() for column in ends.columns), strict=True)))


def _check_events(ledgers: pa.Table, last: dict[str, int], batches: Batches) -> Rows:
    """Check events in the order of instances and numbers, and split them into events about messages and the others."""
    progress = AckProgress(last)
    for events in read_whole_groups(batches, (GROUP, "seq")):
        valid, checks = check_events(events.select(NUMBERED_EVENTS.names).cast(NUMBERED_EVENTS), ledgers)
        yield REJECTED, build_quarantine(checks.build_rejected_rows("deliveries"))
        yield "firsts", find_firsts(valid)
        followed = progress.add(valid)
        yield "message_events", followed.filter(pa.array(is_event(followed, *SINGLE_MESSAGE_EVENTS)))
        yield "other_events", followed.filter(pa.array(is_event(followed, *_OTHER_EVENTS)))
    yield "message_events", progress.finish()


def _plan_deliveries(small: SmallTables) -> partial[Rows]:
    others = small["other_events"].cast(COVERED_EVENTS)
    return partial(_build_deliveries, others.filter(pa.array(is_event(others, *CLOSING_EVENTS))))


def _build_deliveries(closing: pa.Table, batches: Batches) -> Rows:
    """Build deliveries, each from all events of its message at its instance."""
    for events in read_whole_groups(batches):
        closing_here = closing.filter(pc.is_in(closing["instance"], pc.unique(events["instance"])))
        yield (
            "deliveries",
            build_deliveries(
                pa.concat_tables([events.select(COVERED_EVENTS.names).cast(COVERED_EVENTS), closing_here])
            ),
        )


def _build_messages(batches: Batches) -> Rows:
    """Build messages, each from all receipts of its entry in time order."""
    for receipts in read_whole_groups(batches):
        seen, checks = select_messages(receipts.select(VALID_EVENTS.names).cast(VALID_EVENTS))
        yield "messages", build_messages(seen)
        yield REJECTED, build_quarantine(checks.build_rejected_rows("messages"))


def _build_result(small: SmallTables, quarantined: Counter[str]) -> StreamResult:
    membership = build_table("membership", build_membership_rows(small["other_events"]))
    return StreamResult(
        {"membership": membership}, build_file_counts(small["sizes"], quarantined), build_run(small["firsts"])
    )
