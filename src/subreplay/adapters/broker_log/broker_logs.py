"""Select the files of brokers' logs for ``ingest``, and build the result: all subscriptions of a log, or one of them.

A log may consist of rotated, compressed files, and a folder may contain logs of several brokers. Duplicate files are
read once, files are merged by time, and lines about other topics are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.base import FileCount, Options, check_names_exist, rank_subscriptions
from subreplay.adapters.broker_log.line_events import FILE_COUNTS, find_duplicates, sum_file_counts
from subreplay.adapters.broker_log.located_rows import MIN_STEP_BACK
from subreplay.adapters.broker_log.log_dispatchers import LogMembership, TimeSpan
from subreplay.adapters.broker_log.numbered_events import (
    FORM_3,
    FORM_5,
    FORM_5_WITHOUT_VALUES,
    MAX_FILES,
    LogFile,
    find_first_time,
)
from subreplay.adapters.broker_log.operator_acts import build_resets
from subreplay.adapters.canonical import split_topic
from subreplay.adapters.format_detection import SelectedFiles, select_files
from subreplay.adapters.input_files import read_head
from subreplay.adapters.pulsar_policies import InferredSelector, choose_selector, infer_policy, note_missing_priorities
from subreplay.adapters.pulsar_stats.limits_and_silences import describe_silent_consumers, infer_limits
from subreplay.adapters.pulsar_stats.stats_adapter import (
    PolledStats,
    count_files,
    describe_blocking_consumers,
    read_stats,
)
from subreplay.errors import InputError
from subreplay.hashing.profiles.releases import find_nearest_profile

NAME: Final = "pulsar-broker-log"
NOTES: Final = (
    "a broker's log contains no keys and no publish times, so it gives no messages. Name them as traffic.messages, "
    "such as {from: pulsar-table, path: ...}",
)
_RELEASE_OF_FORM: Final = {FORM_3: "3.2", FORM_5: "5.0"}
_EXCLUSIVE_ERROR: Final = "Exclusive consumer is already connected"


class LogResult(NamedTuple):
    """The result of a log: its canonical membership, and the parts of ``base.SourceSummary``."""

    membership: pa.Table
    counts: tuple[FileCount, ...]
    run: dict[str, Any]
    others: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class BrokerLog:
    """The files of a log, and the options that select from them."""

    path: Path
    chosen: SelectedFiles
    options: Options

    @classmethod
    def select(cls, path: Path, options: Options) -> BrokerLog:
        """Select the log files of a path. Raises ``InputError`` where no file can be a log, or there are too many."""
        topic = None if options.topic is None else split_topic(options.topic)[0]
        requested = Options(topic, options.subscription, statistics=options.statistics)
        found = select_files(path, NAME, companions=("pulsar-stats",))
        if len(found.files) > MAX_FILES:
            raise InputError(
                f"{path}: the folder has {len(found.files):,} files, but at most {MAX_FILES:,} can be read together. "
                "Read a part of them"
            )
        return cls(path, found, requested)

    @property
    def files(self) -> tuple[LogFile, ...]:
        """The files, in the order of their first lines."""
        order = sorted(
            (self._find_first_time(each), self.chosen.relative_name(each), each) for each in self.chosen.files
        )
        return tuple(LogFile(each, name, i, len(order), self.options) for i, (_, name, each) in enumerate(order))

    def _find_first_time(self, path: Path) -> int:
        try:
            return find_first_time(read_head(path))
        except InputError as error:
            raise InputError(f"{path}: {error}") from error

    def read_statistics(self) -> PolledStats | None:
        """Read the polled topic statistics beside the log, or those of the options."""
        configured, companions = self.options.statistics, self.chosen.companions["pulsar-stats"]
        if configured is None and not companions:
            return None
        wanted = [None if name is None else [name] for name in (self.options.topic, self.options.subscription)]
        return read_stats(configured or self.chosen.root, files=None if configured else companions, topics=wanted[0],
                     subscriptions=wanted[1], by_address=True)  # fmt: skip

    def sum_counts(self, totals: pa.Table, kinds: pa.Table) -> LogCounts:
        """Sum the ``TOTALS`` of all blocks. Raises ``InputError`` where no line matches the requested topic and
        subscription. ``kinds`` are the kinds of the events that match."""
        named = {name: {each for of in totals[name].to_pylist() for each in of or ()} for name in _NAMES}
        check_names_exist(self.path, self.options, named["subscriptions"], named["topics"])
        found = LogCounts.sum(totals)
        if not pc.any(pc.is_valid(kinds["topic"])).as_py():
            if FORM_5_WITHOUT_VALUES in found.files["form"].to_pylist():
                raise InputError(
                    f"{self.path}: the lines are of Pulsar 5.0, but without the values (topic, consumer, position), "
                    "because the layout of log4j2 does not print them. Add %X after %msg to the pattern in "
                    "conf/log4j2.yaml, or ingest polled topic statistics (--from pulsar-stats)"
                )
            lines = f"{pc.sum(found.files['lines']).as_py() or 0:,} lines of {len(self.chosen.files):,} files"
            raise InputError(
                f"{self.path}: no line is about a subscription ({lines}). Pass a broker's log in the default layout, "
                "at level INFO or DEBUG"
            )
        return found

    def build_result(
        self,
        counts: LogCounts,
        members: LogMembership,
        kinds: pa.Table,
        delivered: pa.Table,
        unnamed: Mapping[str, int],
        seen: PolledStats | None,
        acts: pa.Table,
    ) -> LogResult:
        """Build the result. ``delivered`` are the ``count_deliveries`` of deliveries, ``unnamed`` the rejected
        deliveries by file, and ``acts`` (``ACTS``) those of all files."""
        rows = Counter(zip(*(members.membership[name].to_pylist() for name in ("subscription", "topic")), strict=True))
        of_batch, single = set[tuple[str, int]](), Counter[tuple[str, int]]()
        for row in delivered.to_pylist():
            rows[row["subscription"], row["topic"]] += row["count"]
            topic_partition = row["topic"], row["partition"]
            of_batch |= {topic_partition} if row["of_batch"] else set()
            single[topic_partition] += 0 if row["of_batch"] else row["count"]
        pairs = rank_subscriptions(rows)
        version = pc.max(counts.files["version"]).as_py()
        form = pc.max(counts.files["form"]).as_py()
        selectors = () if seen is None else seen.selectors
        membership, run, notes = build_run(pairs, members.membership, kinds, version, form, selectors)
        acts = acts.filter(pc.invert(pc.is_in(acts["file"], value_set=pa.array(list(counts.duplicates), pa.string()))))
        if pairs and (found := build_resets(acts, pairs[0][1], pairs[0][0], membership)):
            run["topic"] = {"resets": found}
        if pairs and seen is not None:
            limits, limit_notes = infer_limits(seen.found, *pairs[0])
            run |= {"liveness": limits} if limits else {}
            notes += [*limit_notes, *describe_blocking_consumers(seen.found), *describe_silent_consumers(seen.found)]
        if unsure := sum(single[topic_partition] for topic_partition in of_batch):
            notes.append(f"{unsure:,} deliveries of entries with one message count as unbatched, because the log does "
                         "not distinguish them from batches of one. An audit uses the messages instead")  # fmt: skip
        file_counts = (*counts.count_lines(unnamed), *(() if seen is None else count_files(seen)))
        every = *NOTES, *notes, *counts.list_notes(), *self.chosen.notes
        return LogResult(membership, file_counts, run, tuple(pairs[1:]), every)


DELIVERY_COUNTS: Final = pa.schema([("subscription", pa.string()), ("topic", pa.string()), ("partition", pa.int32()),
                          ("of_batch", pa.bool_()), ("count", pa.int64())])  # fmt: skip
_NAMES: Final = ("topics", "subscriptions")


@dataclass(frozen=True)
class LogCounts:
    """The sums of a log's blocks: one row per file (``TOTALS``), and the duplicate files, each with the first file of
    its content."""

    files: pa.Table
    duplicates: Mapping[str, str]

    @classmethod
    def sum(cls, totals: pa.Table) -> LogCounts:
        """Sum the totals of blocks."""
        more = [("kept", "sum"), ("back", "max"), ("version", "max"), ("form", "max")]
        sums = totals.group_by("file").aggregate(more).rename_columns(["file", *(name for name, _ in more)])
        files = sum_file_counts(totals.select(FILE_COUNTS.names)).join(sums, "file").combine_chunks().sort_by("file")
        return cls(files, find_duplicates(files))

    @property
    def span(self) -> TimeSpan:
        """The time from the first to the last line."""
        ends = pc.min(self.files["first"]), pc.max(self.files["last"])
        return TimeSpan(*(at.cast(pa.int64()).as_py() or 0 for at in ends))

    def count_lines(self, unnamed: Mapping[str, int]) -> Iterator[FileCount]:
        """Yield the line counts by file. Valid lines gave events of the selection with a known consumer."""
        for row in self.files.to_pylist():
            name, every, quarantined = row["file"], row["lines"], row["quarantined"]
            if name in self.duplicates:
                yield FileCount(name, every, 0, every)
            else:
                others = every - row["kept"] - quarantined
                yield FileCount(name, every, quarantined + unnamed.get(name, 0), others)

    def list_notes(self) -> Iterator[str]:
        """Yield sentences about the files."""
        for name, first in sorted(self.duplicates.items()):
            yield f"{name} has the same lines as {first}, so it is read once"
        for row in self.files.to_pylist():
            if row["back"] >= MIN_STEP_BACK and row["file"] not in self.duplicates:
                yield (
                    f"the clock of {row['file']} goes back by {row['back'] / 1_000:,.3f} s, so its lines are read in "
                    "file order"
                )


def count_deliveries(deliveries: pa.Table) -> pa.Table:
    """Count the deliveries (``count``) of each subscription of a topic partition, separately for batches and single
    messages."""
    of_batch = pc.greater_equal(deliveries["batch_index"], 0)
    sized = deliveries.select(DELIVERY_COUNTS.names[:3]).append_column("of_batch", of_batch)
    found = sized.group_by(DELIVERY_COUNTS.names[:4]).aggregate([([], "count_all")])
    return found.rename_columns(DELIVERY_COUNTS.names).cast(DELIVERY_COUNTS)


def build_run(
    pairs: Sequence[tuple[str, str]], membership: pa.Table, kinds: pa.Table, version: str | None, form: str | None,
    selectors: Iterable[InferredSelector] = (),
) -> tuple[pa.Table, dict[str, Any], list[str]]:  # fmt: skip
    """Build the run for the first of ``pairs`` of subscriptions and topics, with notes about unknown settings.

    The membership is returned with subscription types where the log shows them. ``kinds`` are the kinds of each
    subscription's events. ``version`` is what the broker logged at its start. ``form`` is that of its lines.
    ``selectors`` are those of polled statistics.
    """
    if not pairs:
        return membership, {}, []
    subscription, topic = pairs[0]
    for each in sorted({pair[0] for pair in pairs}):
        membership = _infer_single_active_type(membership, each, kinds)
    run: dict[str, Any] = {"name": subscription, "topic": topic}
    policy, notes = infer_policy(membership, subscription, choose_selector(selectors, subscription, topic))
    run |= policy
    release = _RELEASE_OF_FORM.get(form or "")
    if version is None and release and "profile" not in run:
        run["profile"] = f"pulsar-{release}"
        notes.append(
            f"the log does not contain the broker's version, but its lines have the form of {release}. Check profile"
        )
    elif version is None and "profile" not in run:
        notes.append(
            "the log does not contain the broker's version, so pulsar-4.0 is assumed. Set subscription.profile"
        )
    elif version is not None:
        run["profile"], differs = find_nearest_profile("pulsar", version)
        notes += [differs] if differs else []
    traffic, priority_notes = note_missing_priorities(membership)
    return membership, {"subscription": run} | traffic, [*notes, *priority_notes, *_describe_levels(membership)]


def _describe_levels(membership: pa.Table) -> list[str]:
    """Describe inferred priority levels, where they are not all equal."""
    if not pc.max(membership["priority"]).as_py():
        return []
    known = membership.filter(pc.is_valid(membership["priority"]))
    of = zip(*(known[name].to_pylist() for name in ("subscription", "priority", "consumer")), strict=True)
    listed = ", ".join(f"{name} {level} ({subscription})" for subscription, level, name in sorted(set(of)))
    return [f"the log does not contain priority levels. These explain the announced active consumers: {listed}"]


def _infer_single_active_type(membership: pa.Table, subscription: str, kinds: pa.Table) -> pa.Table:
    """Fill the unknown type of a subscription from lines about its single active consumer."""
    of_subscription = pc.equal(membership["subscription"], subscription)
    unknown = pc.and_(of_subscription, pc.equal(membership["type"], "unknown"))
    of_one = kinds.filter(pc.and_(pc.equal(kinds["subscription"], subscription), pc.equal(kinds["kind"], "got")))
    if not pc.any(unknown).as_py() or not len(of_one):
        return membership
    reasons = pc.unique(membership.filter(of_subscription)["reason"]).to_pylist()
    if any(reason and _EXCLUSIVE_ERROR in reason for reason in reasons):
        kind = "Exclusive"
    elif _has_two_members(membership.filter(of_subscription)):
        kind = "Failover"
    else:
        return membership
    index = membership.schema.get_field_index("type")
    return membership.set_column(index, membership.schema.field(index), pc.if_else(unknown, kind, membership["type"]))


def _has_two_members(members: pa.Table) -> bool:
    """Check whether a dispatcher had two members at the same time."""
    counts: dict[int, int] = {}
    for row in members.select(["partition", "event", "at", "seq"]).sort_by([("seq", "ascending")]).to_pylist():
        step = {"join": 1, "leave": -1, "crash": -1}.get(row["event"], 0)
        counts[row["partition"]] = max(0, counts.get(row["partition"], 0) + step)
        if counts[row["partition"]] > 1:
            return True
    return False
