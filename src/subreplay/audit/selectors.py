"""Find the selector that explains the recorded owners, if the deliveries do not fit the policy or profile of the run.

``OwnerFits`` compares the first deliveries of a dispatcher with the owners under every other selector and profile, if
many of them went to wrong owners. ``find_best_fit`` decides from the sums whether one of them explains the deliveries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np

from subreplay.audit.codes import Code
from subreplay.audit.context import Dispatcher
from subreplay.audit.scoped_rows import ScopedRows
from subreplay.audit.sessions import UNKNOWN_CONSUMER
from subreplay.errors import ConfigError
from subreplay.hashing.profiles import KEYLESS
from subreplay.rows.model.columns import Ints, flags, ints
from subreplay.rows.model.range_table import NOBODY
from subreplay.semantics.policies import list_option_names, make_policy
from subreplay.semantics.policies.base import Policy
from subreplay.semantics.timelines.timeline import Timeline

MOST_COMPARED: Final = 4_096
"""The largest number of compared deliveries of a dispatcher."""
FEWEST_MISSED: Final = 10
"""The smallest number of deliveries to wrong owners that are examined."""
MISSED_SHARE: Final = 0.01
"""The smallest share of deliveries to wrong owners that is examined."""
FITTING_SHARE: Final = 0.995
"""The smallest share of deliveries to right owners with which a selector fits."""
_SPLITTING: Final = ("pulsar.key_shared.consistent_hash", "pulsar.key_shared.auto_split")
"""Selectors that a broker setting chooses. Clients do not know which one it is."""
_WRONG: Final = Code.WRONG_OWNER.bit
_UNCLEAR: Final = Code.UNKNOWN_MESSAGE.bit | Code.NOT_CONNECTED.bit


def format_selector(policy: Policy) -> str:
    """Format a policy and its profile as the key of a sum."""
    return f"{policy.name} {policy.profile}"


def list_other_selectors(policy: Policy) -> Iterator[Policy]:
    """Yield what the broker may have run instead: other profiles, and the other selector of the setting, with the same
    options."""
    if policy.routing == "any" or policy.serving == "polled" or policy.measures_load:
        return
    names = [policy.name, *(name for name in _SPLITTING if policy.name in _SPLITTING and name != policy.name)]
    options = {field.name: getattr(policy, field.name) for field in fields(policy) if field.name != "profile"}  # type: ignore[arg-type]
    for name in names:
        legal = {option: value for option, value in options.items() if option in list_option_names(name)}
        for profile in KEYLESS:
            if (name, profile) != (policy.name, policy.profile):
                try:
                    yield make_policy(name, profile, **legal)
                except ConfigError:  # this profile has no such policy or option
                    continue


class OtherTimelines:
    """The timelines of a dispatcher under other selectors. Consecutive dispatchers with the same events share them."""

    def __init__(self) -> None:
        self._of: Timeline | None = None
        self._known: dict[str, Timeline] = {}
        self._has: dict[str, bool] = {}

    def has(self, policy: Policy) -> bool:
        """Return whether there are selectors other than that of a policy."""
        if format_selector(policy) not in self._has:
            self._has[format_selector(policy)] = next(list_other_selectors(policy), None) is not None
        return self._has[format_selector(policy)]

    def fold_under(self, policy: Policy, timeline: Timeline) -> Timeline:
        """Return ``timeline`` under another policy."""
        if self._of is None or self._of.index is not timeline.index:
            self._of, self._known = timeline, {}
        if format_selector(policy) not in self._known:
            causes = (epoch.cause for epoch in timeline.epochs)
            events = (event for event in causes if event is not None)
            self._known[format_selector(policy)] = Timeline.fold(policy, timeline.scope, events)
        return self._known[format_selector(policy)]


class OwnerFits:
    """The first deliveries of a dispatcher outside of membership changes, with which selectors are compared."""

    def __init__(self, policy: Policy, dispatcher: Dispatcher, others: OtherTimelines) -> None:
        self._policy, self._timeline, self._others = policy, dispatcher.timeline, others
        self._parts: list[Ints] = []
        self._remaining = MOST_COMPARED if others.has(policy) else 0

    @property
    def is_complete(self) -> bool:
        """Whether there are as many deliveries as are compared."""
        return not self._remaining

    def add(self, columns: Ints) -> None:
        """Add deliveries in order of time: hash, time, order, session, and whether each went to a consumer that does
        not own it."""
        self._parts.append(columns[:, : self._remaining].copy())
        self._remaining -= self._parts[-1].shape[1]

    def rows(self) -> dict[str, Any]:
        """Return columns of ``LOAD``: the number of compared deliveries (``outside``) and of right owners
        (``at_owner``) for each ``selector``. No rows unless many owners are wrong."""
        compared = np.concatenate([np.zeros((5, 0), np.int64), *self._parts], axis=1)
        hashes, at, seq, session, wrong = compared
        missed = int(np.count_nonzero(wrong))
        found = {format_selector(self._policy): len(wrong) - missed}
        if not missed or missed < MISSED_SHARE * len(wrong):
            found = {}
        for other in list_other_selectors(self._policy) if found else ():
            found[format_selector(other)] = self._count_fitting(other, hashes, at, seq, session)
        return {"selector": [*found], "outside": [len(wrong)] * len(found), "at_owner": [*found.values()]}

    def _count_fitting(self, policy: Policy, hashes: Ints, at: Ints, seq: Ints, session: Ints) -> int:
        timeline = self._others.fold_under(policy, self._timeline)
        unsigned = hashes.astype(np.uint32)
        owner = timeline.find_owners(policy.compute_slots(unsigned), unsigned, timeline.find_epochs(at, seq))
        # by name: of consumers of equal names nobody knows which one it was
        number: dict[str, int] = {}
        names = np.array([number.setdefault(one.name, len(number)) for one in timeline.consumers], np.int64)
        return int(np.count_nonzero((owner != NOBODY) & (names[owner] == names[session])))


def add_fits(fits: Sequence[OwnerFits], some: ScopedRows, codes: Ints) -> None:
    """Add ``FACTS`` of deliveries of each dispatcher in order of time, and their findings, to what it compares."""
    if all(each.is_complete for each in fits):
        return
    session = ints(some.rows, "session")
    clear = ~flags(some.rows, "in_transition") & (codes & _UNCLEAR == 0) & (session != UNKNOWN_CONSUMER)
    columns = (ints(some.rows, "hash"), ints(some.rows, "at"), ints(some.rows, "seq", 0), session, codes & _WRONG)
    of_clear, bounds = np.stack(columns)[:, clear], some.find_bounds(clear)
    for each, begin, end in zip(fits, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        each.add(of_clear[:, begin:end])


@dataclass(frozen=True)
class OwnerFit:
    """The number of ``compared`` deliveries and of those at their owners: under the run's policy, and under ``others``,
    which fit."""

    policy: str
    profile: str
    compared: int
    at_owner: int
    others: tuple[tuple[str, str, int], ...]  # policy, profile, how many

    @property
    def sentence(self) -> str:
        """A clause with the selector that fits and the one that does not."""
        policy, _, fits = self.others[0]
        profiles = " or ".join(profile for _, profile, _ in self.others)
        fitting, mine, key = profiles, self.profile, "profile"
        if policy != self.policy:
            fitting, mine, key = f"{policy} under {profiles}", f"{self.policy} under {self.profile}", "policy"
        return (
            f"the recorded owners fit {fitting} ({fits:,} of {self.compared:,} deliveries), not {mine} "
            f"({self.at_owner:,}): set subscription.{key} to what the broker runs"
        )


def find_best_fit(policy: Policy, rows: Iterable[Mapping[str, Any]]) -> OwnerFit | None:
    """Return the selectors that fit while the run's does not. ``rows`` are the sums of ``OwnerFits.rows``. None if
    there are none, or if few owners are wrong."""
    sums = {tuple(row["selector"].split(" ")): (row["outside"], row["at_owner"]) for row in rows}
    compared, at_owner = sums.pop((policy.name, policy.profile), (0, 0))
    missed = compared - at_owner
    if missed < FEWEST_MISSED or missed < MISSED_SHARE * compared:
        return None
    fitting = [(name, profile, fits) for (name, profile), (_, fits) in sums.items() if fits >= FITTING_SHARE * compared]
    if not fitting:
        return None
    order = [*KEYLESS]
    fitting.sort(key=lambda each: (each[0] != policy.name, -each[2], order.index(each[1])))
    name, _, most = fitting[0]
    best = tuple(each for each in fitting if each[0] == name and each[2] == most)
    return OwnerFit(policy.name, policy.profile, compared, at_owner, best)
