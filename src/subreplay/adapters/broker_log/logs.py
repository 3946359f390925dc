"""Files of brokers' logs, as ``ingest`` wants them: all subscriptions of a log, or the chosen one.

A log may be in rotated, packed files, and those of several brokers may lie together: a file given twice counts once,
files are merged by their times, and lines about other topics are counted.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.base import FileCount, Ingested, Options, Reason, Rejected, check_asked, told_of
from subreplay.adapters.broker_log import polled
from subreplay.adapters.broker_log.adapter import Rows, of_topic, rows, topics
from subreplay.adapters.broker_log.events import EVENTS, FILES, duplicates, events, summed
from subreplay.adapters.broker_log.runs import suggested
from subreplay.adapters.canonical import base_topic
from subreplay.adapters.files import lines_of
from subreplay.adapters.looks import Chosen, chosen
from subreplay.adapters.pulsar_stats.adapter import Stats, counted, stats
from subreplay.errors import InputError
from subreplay.model.tables import DELIVERIES, MEMBERSHIP

NAME: Final = "pulsar-broker-log"
NOTES: Final = (
    "a broker's log has no messages, as it does not tell keys and publication times: name them as traffic.messages, "
    "such as {from: pulsar-table, path: ...}",
)
_VERSION: Final = re.compile(rb"Starting Pulsar Broker service; version: '(\d+\.\d+)")
_SUBSCRIBING: Final = re.compile(rb"\] Subscribing on topic [^\n]+? / [^\n]+?\. consumerId: \d+(, role)?")
_MEMBER_RULE: Final = "the log names a consumer where it leaves, or in a DEBUG line of its dispatcher"
_SHARED_RULE: Final = "a dispatch tells its consumer: several members with this id are on one IO thread"


@dataclass
class _Log:
    """What the lines of all files tell."""

    events: list[pa.Table] = field(default_factory=lambda: [EVENTS.empty_table()])
    files: list[pa.Table] = field(default_factory=lambda: [FILES.empty_table()])
    rejected: list[Rejected] = field(default_factory=list)
    damaged: Counter[str] = field(default_factory=Counter)
    topics: set[str] = field(default_factory=set)
    subscriptions: set[str] = field(default_factory=set)
    version: str | None = None
    of_3: bool = False  # its lines have the form of 3.x

    def add(self, path: Path, name: str, options: Options) -> None:
        for number, part in enumerate(lines_of(path, name)):
            if isinstance(part, Rejected):
                self.rejected.append(part)
                self.damaged[name] += 1
                continue
            if number == 0:
                self._look(part)
            parsed = events(part)
            self.files.append(parsed.files)
            self.rejected += parsed.rejected
            if options.topic is not None or options.subscription is not None:
                self.topics |= _names(parsed.events["topic"])
                self.subscriptions |= _names(parsed.events["subscription"])
            self.events.append(_wanted(parsed.events, options))

    def _look(self, part: pa.RecordBatch) -> None:
        """Of which version the broker is, by the beginning of a file."""
        data = part.column("text").buffers()[2] or b""
        if found := _VERSION.search(data):
            self.version = found[1].decode()
        elif line := _SUBSCRIBING.search(data):
            self.of_3 |= line[1] is None


def read(path: Path, options: Options) -> Ingested:
    """Membership and deliveries of the log of one broker or several: a file, or the files of a folder.

    Polled topic statistics that lie beside, or are given, name those who never leave and tell types and modes. Raises
    ``InputError`` where no line is one of a broker's about the topic and subscription that are asked for.
    """
    files = chosen(path, NAME, beside=("pulsar-stats",))
    if options.topic is not None:
        options = Options(base_topic(options.topic)[0], options.subscription, statistics=options.statistics)
    log = _Log()
    for each in files.mine:
        log.add(each, files.named(each), options)
    check_asked(path, options, log.subscriptions, log.topics)
    totals = summed(pa.concat_tables(log.files))
    twice = duplicates(totals)
    found = _without_files(pa.concat_tables(log.events), twice)
    if not topics(found):
        of = f"{sum(totals['lines'].to_pylist()):,} lines of {len(files.mine):,} files"
        raise InputError(f"{path}: no line about a subscription in {of}; is it a broker's log in the stock layout, at "
                         "INFO or DEBUG?")  # fmt: skip
    seen = _statistics(options, files)
    folded = [*_folded(found, seen)]
    tables = _tables([of for of, _ in folded], [membership for _, membership in folded])
    unnamed = [*_unnamed([of for of, _ in folded])]
    rejected = [row for row in log.rejected if row.file not in twice] + unnamed
    counts = [*_counts(totals, log.damaged, found, twice, Counter(row.file for row in unnamed))]
    run, notes = suggested(tables, found, log.version, log.of_3)
    if seen is not None:
        rejected += seen.rejected
        counts += counted(seen)
    pairs = told_of(tables)
    return Ingested(
        tables, tuple(rejected), tuple(counts), run, tuple(pairs[1:]),
        (*NOTES, *notes, *_of_files(twice, folded), *files.notes),
    )  # fmt: skip


def _names(values: pa.ChunkedArray) -> set[str]:
    return {name for name in pc.unique(values).to_pylist() if name is not None}


def _wanted(found: pa.Table, options: Options) -> pa.Table:
    """The events of the topic and subscription that are asked for, and those of connections."""
    for name in ("topic", "subscription"):
        asked = getattr(options, name)
        if asked is not None:
            found = found.filter(pc.or_kleene(pc.equal(found[name], asked), pc.is_null(found[name])))
    return found


def _without_files(found: pa.Table, names: dict[str, str]) -> pa.Table:
    return found.filter(pc.invert(pc.is_in(found["file"], value_set=pa.array(list(names), pa.string()))))


def _statistics(options: Options, files: Chosen) -> Stats | None:
    given, beside = options.statistics, files.beside["pulsar-stats"]
    if given is None and not beside:
        return None
    wanted = [None if name is None else [name] for name in (options.topic, options.subscription)]
    return stats(given or files.root, files=None if given else beside, topics=wanted[0], subscriptions=wanted[1],
                 by_address=True)  # fmt: skip


def _folded(found: pa.Table, seen: Stats | None) -> Iterator[tuple[Rows, pa.Table]]:
    """The rows of each topic partition, and its membership with what statistics add."""
    for topic, partition in topics(found):
        mine = of_topic(found, topic, partition)
        if seen is None:
            of = rows(mine)
            yield of, of.membership
            continue
        here = pc.and_(pc.equal(seen.membership["topic"], topic), pc.equal(seen.membership["partition"], partition))
        members = seen.membership.filter(here)
        types = {row["subscription"]: row["type"] for row in members.to_pylist() if row["type"] != "unknown"}
        of = rows(mine, names=polled.names(mine, members), types=types)
        known = _names(of.membership["instance"]) | _names(of.deliveries["instance"])
        span = pc.min_max(mine["at"].cast(pa.int64())).as_py()
        yield of, polled.completed(of.membership, members, known, span["min"], span["max"])


def _tables(folded: list[Rows], members: list[pa.Table]) -> dict[str, pa.Table]:
    membership = pa.concat_tables([MEMBERSHIP.empty_table(), *members])
    deliveries = pa.concat_tables([DELIVERIES.empty_table(), *(of.deliveries for of in folded)])
    return {"membership": membership, "deliveries": deliveries}


def _unnamed(folded: list[Rows]) -> Iterator[Rejected]:
    """What the log does not tell the consumer of, once a line."""
    for table, rule, remedy in (
        ("membership", _MEMBER_RULE, "give polled topic statistics beside it (option statistics)"),
        ("deliveries", _SHARED_RULE, "set numIOThreads=32 at the broker, or take receipts from the application"),
    ):
        found = pa.concat_tables([getattr(of, f"unnamed_{table}") for of in folded], promote_options="default")
        place = found["line"].to_numpy()
        _, first = np.unique(np.stack([_codes(found["file"]), place]), axis=1, return_index=True)
        for row in found.take(pa.array(first)).sort_by([("file", "ascending"), ("line", "ascending")]).to_pylist():
            file, line = row.pop("file"), row.pop("line")
            raw = json.dumps({name: value for name, value in row.items() if value is not None}, default=str)
            yield Rejected(table, file, line, raw, (Reason("consumer", "null", rule, remedy),))


def _codes(names: pa.ChunkedArray) -> Any:
    return names.combine_chunks().dictionary_encode().indices.to_numpy()


def _counts(
    totals: pa.Table, damaged: Counter[str], found: pa.Table, twice: dict[str, str], unnamed: Counter[str]
) -> Iterator[FileCount]:
    """Lines by file. Valid ones gave events of what is asked for."""
    kept = _distinct_lines(found)
    for row in totals.sort_by("file").to_pylist():
        name = row["file"]
        every = row["lines"] + damaged[name]
        if name in twice:
            yield FileCount(name, every, 0, every)
            continue
        quarantined = row["quarantined"] + damaged[name]
        yield FileCount(name, every, quarantined + unnamed[name], every - kept.get(name, 0) - quarantined)
    for name in sorted(set(damaged) - set(totals["file"].to_pylist())):
        yield FileCount(name, damaged[name], damaged[name])


def _distinct_lines(found: pa.Table) -> dict[str, int]:
    """How many lines of each file gave events, which are in the order of their lines."""
    names = pc.unique(found["file"])
    file, line = pc.index_in(found["file"], value_set=names).to_numpy(), found["line"].to_numpy()
    new = np.ones(len(line), np.bool_)
    new[1:] = (np.diff(line) != 0) | (np.diff(file) != 0)
    return dict(zip(names.to_pylist(), np.bincount(file[new], minlength=len(names)).tolist(), strict=True))


def _of_files(twice: dict[str, str], folded: list[tuple[Rows, pa.Table]]) -> Iterator[str]:
    for name, first in sorted(twice.items()):
        yield f"{name} has the lines of {first}, and counts once"
    back: dict[str, int] = {}
    for of, _ in folded:
        for name, step in of.backwards.items():
            back[name] = max(step, back.get(name, 0))
    sizes = [of.entries["messages"] for of, _ in folded]
    single = sum(pc.sum(pc.equal(each, 1)).as_py() or 0 for each in sizes if (pc.max(each).as_py() or 0) > 1)
    if single:
        yield f"{single:,} entries of one message count as no batches: the log does not tell batches of one from others"
    for name, step in sorted(back.items()):
        yield f"the clock of {name} goes back by {step / 1_000:,.3f} s: its lines are taken in the order of the file"
