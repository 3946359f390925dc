"""Files of brokers' logs, as ``ingest`` wants them: all subscriptions of a log, or the chosen one.

A log may be in rotated, packed files, and those of several brokers may lie together: a file given twice counts once,
files are merged by their times, and lines about other topics are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.base import FileCount, Options, check_asked, pairs_of
from subreplay.adapters.broker_log.acts import resets
from subreplay.adapters.broker_log.adapter import BACKWARDS
from subreplay.adapters.broker_log.events import FILES, duplicates, summed
from subreplay.adapters.broker_log.parsing import MOST_FILES, LogFile, begins
from subreplay.adapters.broker_log.stories import Cast, Span
from subreplay.adapters.canonical import base_topic
from subreplay.adapters.detect import Chosen, chosen
from subreplay.adapters.files import head_of
from subreplay.adapters.pulsar_policies import Selector, best_selector, policy_of, unranked
from subreplay.adapters.pulsar_stats.adapter import Stats, blocking, counted, stats
from subreplay.adapters.pulsar_stats.evidence import concluded_limits, silent
from subreplay.errors import InputError
from subreplay.hashing.profiles.releases import find_nearest_profile

NAME: Final = "pulsar-broker-log"
NOTES: Final = (
    "a broker's log has no messages, as it does not tell keys and publication times: name them as traffic.messages, "
    "such as {from: pulsar-table, path: ...}",
)
_EXCLUSIVE: Final = "Exclusive consumer is already connected"


class Conclusion(NamedTuple):
    """What is told of a log at its end: its canonical membership, and the parts of ``base.Told``."""

    membership: pa.Table
    counts: tuple[FileCount, ...]
    run: dict[str, Any]
    others: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Log:
    """The files of a log, and what is asked of them."""

    path: Path
    chosen: Chosen
    options: Options

    @classmethod
    def of(cls, path: Path, options: Options) -> Log:
        """The log at a path. Raises ``InputError`` where nothing there may be one, or there are too many files."""
        topic = None if options.topic is None else base_topic(options.topic)[0]
        asked = Options(topic, options.subscription, statistics=options.statistics)
        found = chosen(path, NAME, beside=("pulsar-stats",))
        if len(found.mine) > MOST_FILES:
            raise InputError(f"{path}: {len(found.mine):,} files are more than {MOST_FILES:,}: read a part of them")
        return cls(path, found, asked)

    @property
    def files(self) -> tuple[LogFile, ...]:
        """Its files, in the order of their first lines."""
        order = sorted((self._begins(each), self.chosen.named(each), each) for each in self.chosen.mine)
        return tuple(LogFile(each, name, i, len(order), self.options) for i, (_, name, each) in enumerate(order))

    def _begins(self, path: Path) -> int:
        try:
            return begins(head_of(path))
        except InputError as error:
            raise InputError(f"{path}: {error}") from error

    def statistics(self) -> Stats | None:
        """The polled topic statistics that lie beside it, or are given."""
        given, beside = self.options.statistics, self.chosen.beside["pulsar-stats"]
        if given is None and not beside:
            return None
        wanted = [None if name is None else [name] for name in (self.options.topic, self.options.subscription)]
        return stats(given or self.chosen.root, files=None if given else beside, topics=wanted[0],
                     subscriptions=wanted[1], by_address=True)  # fmt: skip

    def counted(self, totals: pa.Table, kinds: pa.Table) -> Counted:
        """The sums of all blocks' ``TOTALS``. Raises ``InputError`` where no line is about what is asked for, of which
        there are events of some ``kinds``."""
        named = {name: {each for of in totals[name].to_pylist() for each in of or ()} for name in _NAMES}
        check_asked(self.path, self.options, named["subscriptions"], named["topics"])
        found = Counted.of(totals)
        if not pc.any(pc.is_valid(kinds["topic"])).as_py():
            lines = f"{pc.sum(found.files['lines']).as_py() or 0:,} lines of {len(self.chosen.mine):,} files"
            raise InputError(f"{self.path}: no line about a subscription in {lines}; is it a broker's log in the stock "
                             "layout, at INFO or DEBUG?")  # fmt: skip
        return found

    def concluded(
        self, of: Counted, cast: Cast, kinds: pa.Table, delivered: pa.Table, unnamed: Mapping[str, int],
        seen: Stats | None, acts: pa.Table,
    ) -> Conclusion:  # fmt: skip
        """What is told at the end. ``delivered`` are the ``sizes`` of deliveries, ``unnamed`` the rejected ones by
        file, ``acts`` (``ACTS``) those of all files."""
        rows = Counter(zip(*(cast.membership[name].to_pylist() for name in ("subscription", "topic")), strict=True))
        of_batch, single = set[tuple[str, int]](), Counter[tuple[str, int]]()
        for row in delivered.to_pylist():
            rows[row["subscription"], row["topic"]] += row["count"]
            topic_partition = row["topic"], row["partition"]
            of_batch |= {topic_partition} if row["of_batch"] else set()
            single[topic_partition] += 0 if row["of_batch"] else row["count"]
        pairs = pairs_of(rows)
        version = pc.max(of.files["version"]).as_py()
        of_3 = bool(pc.any(of.files["of_3"]).as_py())
        selectors = () if seen is None else seen.selectors
        membership, run, notes = suggested(pairs, cast.membership, kinds, version, of_3, selectors)
        acts = acts.filter(pc.invert(pc.is_in(acts["file"], value_set=pa.array(list(of.twice), pa.string()))))
        if pairs and (found := resets(acts, pairs[0][1], pairs[0][0], membership)):
            run["topic"] = {"resets": found}
        if pairs and seen is not None:
            concluded, said = concluded_limits(seen.found, *pairs[0])
            run |= {"liveness": concluded} if concluded else {}
            notes += [*said, *blocking(seen.found), *silent(seen.found)]
        if unsure := sum(single[topic_partition] for topic_partition in of_batch):
            notes.append(f"{unsure:,} deliveries of entries of one message count as of no batches, which the log does "
                         "not tell from batches of one: an audit goes by what the messages say")  # fmt: skip
        counts = (*of.counts(unnamed), *(() if seen is None else counted(seen)))
        every = *NOTES, *notes, *of.notes(), *self.chosen.notes
        return Conclusion(membership, counts, run, tuple(pairs[1:]), every)


SIZES: Final = pa.schema([("subscription", pa.string()), ("topic", pa.string()), ("partition", pa.int32()),
                          ("of_batch", pa.bool_()), ("count", pa.int64())])  # fmt: skip
_NAMES: Final = ("topics", "subscriptions")


@dataclass(frozen=True)
class Counted:
    """What its blocks count: one row a file (``TOTALS``), and the files that are there twice, each with the first one
    of its content."""

    files: pa.Table
    twice: Mapping[str, str]

    @classmethod
    def of(cls, totals: pa.Table) -> Counted:
        """The sums of blocks."""
        more = [("kept", "sum"), ("back", "max"), ("version", "max"), ("of_3", "max")]
        told = totals.group_by("file").aggregate(more).rename_columns(["file", *(name for name, _ in more)])
        files = summed(totals.select(FILES.names)).join(told, "file").combine_chunks().sort_by("file")
        return cls(files, duplicates(files))

    @property
    def span(self) -> Span:
        """From when to when the log tells."""
        ends = pc.min(self.files["first"]), pc.max(self.files["last"])
        return Span(*(at.cast(pa.int64()).as_py() or 0 for at in ends))

    def counts(self, unnamed: Mapping[str, int]) -> Iterator[FileCount]:
        """Lines by file. Valid ones gave events of what is asked for, of somebody who is named."""
        for row in self.files.to_pylist():
            name, every, quarantined = row["file"], row["lines"], row["quarantined"]
            if name in self.twice:
                yield FileCount(name, every, 0, every)
            else:
                others = every - row["kept"] - quarantined
                yield FileCount(name, every, quarantined + unnamed.get(name, 0), others)

    def notes(self) -> Iterator[str]:
        """Sentences about its files."""
        for name, first in sorted(self.twice.items()):
            yield f"{name} has the lines of {first}, and counts once"
        for row in self.files.to_pylist():
            if row["back"] >= BACKWARDS and row["file"] not in self.twice:
                yield (f"the clock of {row['file']} goes back by {row['back'] / 1_000:,.3f} s: its lines are taken in "
                       "the order of the file")  # fmt: skip


def sizes(deliveries: pa.Table) -> pa.Table:
    """How many deliveries (``count``) of each subscription of a topic partition are of a batch, and how many are
    not."""
    of_batch = pc.greater_equal(deliveries["batch_index"], 0)
    sized = deliveries.select(SIZES.names[:3]).append_column("of_batch", of_batch)
    counted = sized.group_by(SIZES.names[:4]).aggregate([([], "count_all")])
    return counted.rename_columns(SIZES.names).cast(SIZES)


def suggested(
    pairs: Sequence[tuple[str, str]], membership: pa.Table, kinds: pa.Table, version: str | None, of_3: bool,
    selectors: Iterable[Selector] = (),
) -> tuple[pa.Table, dict[str, Any], list[str]]:  # fmt: skip
    """The membership, whose types of ``unknown`` are told where the log does, the run for the first of ``pairs`` of
    subscriptions and topics, and sentences about what is not known of it.

    ``kinds`` are those of each subscription's events. ``version`` is what the broker said when it started; ``of_3``:
    its lines have the form of 3.x. ``selectors`` are those that polled statistics show.
    """
    if not pairs:
        return membership, {}, []
    subscription, topic = pairs[0]
    for each in sorted({pair[0] for pair in pairs}):
        membership = _typed(membership, each, kinds)
    run: dict[str, Any] = {"name": subscription, "topic": topic}
    policy, notes = policy_of(membership, subscription, best_selector(selectors, subscription, topic))
    run |= policy
    if version is None and of_3 and "profile" not in run:
        run["profile"] = "pulsar-3.2"
        notes.append("the log does not tell the broker's version; its lines have the form of 3.2: check profile")
    elif version is None and "profile" not in run:
        notes.append("the log does not tell the broker's version: set subscription.profile, which is pulsar-4.0 here")
    elif version is not None:
        run["profile"], differs = find_nearest_profile("pulsar", version)
        notes += [differs] if differs else []
    traffic, untold = unranked(membership)
    return membership, {"subscription": run} | traffic, [*notes, *untold, *_concluded(membership)]


def _concluded(membership: pa.Table) -> list[str]:
    """What to say of priority levels that were concluded, where they are not all the same."""
    if not pc.max(membership["priority"]).as_py():
        return []
    known = membership.filter(pc.is_valid(membership["priority"]))
    of = zip(*(known[name].to_pylist() for name in ("subscription", "priority", "consumer")), strict=True)
    told = ", ".join(f"{name} {level} ({subscription})" for subscription, level, name in sorted(set(of)))
    return [f"the log does not tell priority levels; these explain who was announced as active: {told}"]


def _typed(membership: pa.Table, subscription: str, kinds: pa.Table) -> pa.Table:
    """The membership with the type that lines of the one active consumer tell, where it was not known."""
    mine = pc.equal(membership["subscription"], subscription)
    unknown = pc.and_(mine, pc.equal(membership["type"], "unknown"))
    of_one = kinds.filter(pc.and_(pc.equal(kinds["subscription"], subscription), pc.equal(kinds["kind"], "got")))
    if not pc.any(unknown).as_py() or not len(of_one):
        return membership
    reasons = pc.unique(membership.filter(mine)["reason"]).to_pylist()
    if any(reason and _EXCLUSIVE in reason for reason in reasons):
        kind = "Exclusive"
    elif _at_once(membership.filter(mine)):
        kind = "Failover"
    else:
        return membership
    index = membership.schema.get_field_index("type")
    return membership.set_column(index, membership.schema.field(index), pc.if_else(unknown, kind, membership["type"]))


def _at_once(members: pa.Table) -> bool:
    """Whether two consumers were members of a dispatcher at once."""
    here: dict[int, int] = {}
    for row in members.select(["partition", "event", "at", "seq"]).sort_by([("seq", "ascending")]).to_pylist():
        step = {"join": 1, "leave": -1, "crash": -1}.get(row["event"], 0)
        here[row["partition"]] = max(0, here.get(row["partition"], 0) + step)
        if here[row["partition"]] > 1:
            return True
    return False
