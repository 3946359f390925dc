"""A capture of any size, folded as streams of sorted rows.

``_scanned`` reads a file. ``_told`` follows each instance in the order of its numbers: it checks the events, and finds
which receipts a cumulative acknowledgement ends. ``_ended`` has the events of one message at an instance together, and
makes deliveries. ``_seen`` has all receipts of an entry together, and makes messages. They hold what is outstanding.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.canonical import to_table
from subreplay.adapters.capture.adapter import FIRSTS, SIZES, file_counts, firsts, messages, run_of, sizes
from subreplay.adapters.capture.checks import (
    LEDGERS,
    NUMBERED,
    VALID,
    are,
    checked,
    last_of_ledgers,
    nulls,
    of_ledgers,
    seen_messages,
)
from subreplay.adapters.capture.deliveries import ABOUT, CLOSING, deliveries
from subreplay.adapters.capture.files import Source, events_of, sources
from subreplay.adapters.capture.membership import MEMBERS, membership_rows
from subreplay.adapters.capture.progress import COVERED, LAST, Progress, last_ends
from subreplay.adapters.streams import (
    REJECTED,
    Batches,
    End,
    Known,
    Rows,
    Stage,
    Streamed,
    quarantine,
    size_of,
)
from subreplay.capture.events import Event
from subreplay.rows.groups import whole_groups
from subreplay.rows.model.tables import DELIVERIES, MESSAGES, QUARANTINE
from subreplay.rows.sorted_blocks import GROUP

_SILENT: Final = pa.schema([("instance", pa.string()), ("ledger", pa.int64())])
"""The ledgers of an instance that an event names without its topic."""
_FEW: Final = (*MEMBERS, *CLOSING)
"""Events that are not about messages, of all instances: there are few."""
_ENTRY: Final = ("topic", "partition", "ledger", "entry")
_MESSAGE: Final = ("instance", *_ENTRY, "batch_index")
_ROW: Final = ("file_number", "row")


def streamed(folder: Path) -> Streamed:
    """How a folder of any size is read, with files of any number of consumers and processes. A receipt may be no
    message and yet a delivery, where its publication is not known or told in two ways.

    Raises ``InputError`` where there is no capture file.
    """
    found = sources(folder)
    return Streamed(
        size_of(source.path for source in found),
        found,
        _scanned,
        {"events": NUMBERED},
        {"sizes": SIZES, "ledgers": LEDGERS, "silent": _SILENT, "last": LAST},
        (
            Stage(_tell, {"about": COVERED, REJECTED: QUARANTINE}, {"few": COVERED, "firsts": FIRSTS}, "events",
                  ("instance",), ("seq", *_ROW)),
            Stage(_end, {"deliveries": DELIVERIES}, {}, "about", _MESSAGE, ("seq",)),
            Stage(lambda _: _seen, {"messages": MESSAGES, REJECTED: QUARANTINE}, {}, "about", _ENTRY,
                  ("batch_index", "at_ns", *_ROW), ("event", Event.RECEIVE.value)),
        ),
        _concluded,
    )  # fmt: skip


def _scanned(source: Source) -> Rows:
    """The events of a file as they stand there, and what has to be known of all files before they are judged."""
    for events in events_of(source):
        yield "events", events
        yield "sizes", sizes(events)
        yield "ledgers", of_ledgers(events)
        silent = events.filter(pa.array(nulls(events, "topic") & ~nulls(events, "ledger")))
        yield "silent", silent.group_by(_SILENT.names).aggregate([]).cast(_SILENT)
        yield "last", last_ends(events)


def _tell(known: Known) -> partial[Rows]:
    asked = known["silent"].group_by(_SILENT.names).aggregate([])
    ledgers = last_of_ledgers(known["ledgers"].join(asked, _SILENT.names, join_type="left semi").combine_chunks())
    ends = known["last"].group_by("instance").aggregate([("seq", "max")])
    return partial(_told, ledgers, dict(zip(*(column.to_pylist() for column in ends.columns), strict=True)))


def _told(ledgers: pa.Table, last: dict[str, int], batches: Batches) -> Rows:
    """Events that were checked, in the order of their instances and numbers: those about messages, and few others."""
    progress = Progress(last)
    for events in whole_groups(batches, (GROUP, "seq")):
        valid, checks = checked(events.select(NUMBERED.names).cast(NUMBERED), ledgers)
        yield REJECTED, quarantine(checks.rejected("deliveries"))
        yield "firsts", firsts(valid)
        followed = progress.take(valid)
        yield "about", followed.filter(pa.array(are(followed, *ABOUT)))
        yield "few", followed.filter(pa.array(are(followed, *_FEW)))
    yield "about", progress.finish()


def _end(known: Known) -> partial[Rows]:
    few = known["few"].cast(COVERED)
    return partial(_ended, few.filter(pa.array(are(few, *CLOSING))))


def _ended(closing: pa.Table, batches: Batches) -> Rows:
    """Deliveries, each by all events of its message at its instance."""
    for events in whole_groups(batches):
        mine = closing.filter(pc.is_in(closing["instance"], pc.unique(events["instance"])))
        yield "deliveries", deliveries(pa.concat_tables([events.select(COVERED.names).cast(COVERED), mine]))


def _seen(batches: Batches) -> Rows:
    """Messages, each by all receipts of its entry, the first at first."""
    for receipts in whole_groups(batches):
        seen, checks = seen_messages(receipts.select(VALID.names).cast(VALID))
        yield "messages", messages(seen)
        yield REJECTED, quarantine(checks.rejected("messages"))


def _concluded(known: Known, lost: Counter[str]) -> End:
    membership = to_table("membership", membership_rows(known["few"]))
    return End({"membership": membership}, file_counts(known["sizes"], lost), run_of(known["firsts"]))
