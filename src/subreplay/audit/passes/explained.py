"""What acts of operators and clients (``audit.acts``) explain, deliveries in order of time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from subreplay.audit.acts import Act
from subreplay.audit.codes import Code, Exemption
from subreplay.audit.deliveries import Ending
from subreplay.audit.passes.loads import act_columns
from subreplay.rows.model.columns import NEVER, UNKNOWN, Ints, flags, ints
from subreplay.rows.model.rows import Scope
from subreplay.rows.model.words import position

_DUP: Final = Code.DUP_DELIVERY.bit
_AGAIN: Final = _DUP | Code.DUP_OUTSTANDING.bit


class Explained:
    """Which of a dispatcher's redeliveries its acts explain, by what the log shows of them (``Patterns.found``), and
    which are of ``seeks`` (``Seeks.found``)."""

    def __init__(self, acts: Sequence[Act], found: Ints | None, seeks: Ints | None = None) -> None:
        self._seeks = np.empty((0, 5), np.int64) if seeks is None else seeks
        self._sought = Counts(len(self._seeks))
        self._seekers: dict[int, str] = {}
        self._at = np.array([act.at for act in acts], np.int64)
        declared = np.array([act.declared is not None for act in acts], np.bool_)
        self._named = np.array([act.is_named for act in acts], np.bool_)
        self._first = np.where(declared, UNKNOWN, NEVER if found is None else found[:, 1])
        self._seen = Counts(len(acts))

    @property
    def has_seeks(self) -> bool:
        """Whether the log shows seeks."""
        return len(self._seeks) > 0

    def judge(self, facts: pa.Table) -> pa.Table:
        """``FACTS`` in order of time, without what no act explains."""
        facts = self._seek(facts) if len(self._seeks) else facts
        when = ints(facts, "reset")
        mine = np.flatnonzero(when != UNKNOWN)
        if not len(mine):
            return facts
        act = np.searchsorted(self._at, when[mine])
        again, exemptions = ints(facts, "codes")[mine] & _DUP != 0, ints(facts, "excuses")
        ordinal = ints(facts, "ordinal")[mine]
        explained = (ordinal >= self._first[act]) | (~again & self._named[act])
        exemptions[mine[~explained]] &= ~Exemption.RESET.bit
        self._seen.add(facts, mine[explained], act[explained], again[explained])
        return facts.set_column(facts.schema.get_field_index("excuses"), "excuses", pa.array(exemptions))

    def _seek(self, facts: pa.Table) -> pa.Table:
        """``FACTS`` with what came again because its consumer sought back."""
        begin, until, lowest, highest, session = self._seeks.T
        codes, at, ordinal = (ints(facts, name) for name in ("codes", "at", "ordinal"))
        mine = np.flatnonzero((codes & _AGAIN != 0) & (ints(facts, "reset") == UNKNOWN))
        seek = np.searchsorted(begin, at[mine], "right") - 1
        fits = (seek >= 0) & (at[mine] <= until[seek]) & (ints(facts, "session")[mine] == session[seek])
        fits &= (lowest[seek] <= ordinal[mine]) & (ordinal[mine] <= highest[seek])
        mine, seek = mine[fits], seek[fits]
        if not len(mine):
            return facts
        exemptions, previous = ints(facts, "excuses").copy(), ints(facts, "previous").copy()
        exemptions[mine] |= Exemption.SOUGHT_BACK.bit
        previous[mine] = Ending.SOUGHT
        self._sought.add(facts, mine, seek, codes[mine] & _DUP != 0)
        for number, row in zip(*np.unique(seek, return_index=True), strict=True):
            self._seekers.setdefault(int(number), facts["consumer"][int(mine[row])].as_py())
        for name, values in (("excuses", exemptions), ("previous", previous)):
            field = facts.schema.field(name)
            facts = facts.set_column(facts.schema.get_field_index(name), field, pa.array(values, field.type))
        return facts

    def sums(self, scope: Scope) -> Iterator[Mapping[str, Any]]:
        """Columns of ``LOAD`` that count what each act, and each seek, had redelivered."""
        yield self._seen.sums(scope, self._at)
        yield self._sought.sums(scope, self._seeks[:, 0], lambda number: f" {self._seekers[number]}")


class Counts:
    """Of each of some acts, how many messages were redelivered, when, and which is the first of them."""

    def __init__(self, acts: int) -> None:
        self._counts = np.zeros((acts, 2), np.int64)  # acknowledged before, all
        self._times = np.tile([NEVER, UNKNOWN], (acts, 1))
        self._lowest = np.full((acts, 4), NEVER)  # ordinal and position of the first one

    def add(self, facts: pa.Table, rows: Ints, act: Ints, again: np.ndarray) -> None:
        """Add redelivered ``rows``, each of an ``act``; ``again``: it had been acknowledged."""
        today = ~flags(facts, "before")[rows]
        rows, act, again = rows[today], act[today], again[today]
        at, ordinal = ints(facts, "at")[rows], ints(facts, "ordinal")[rows]
        acts = len(self._counts)
        self._counts += np.column_stack([np.bincount(act[mine], minlength=acts) for mine in (again, ...)])
        np.minimum.at(self._times[:, 0], act, at)
        np.maximum.at(self._times[:, 1], act, at)
        for number in np.unique(act).tolist():
            first = rows[act == number][np.argmin(ordinal[act == number])]
            where = [int(facts[name][first].as_py()) for name in ("ordinal", "ledger", "entry", "batch_index")]
            if where[0] < self._lowest[number, 0]:
                self._lowest[number] = where

    def sums(self, scope: Scope, at: Ints, more: Callable[[int], str] = lambda _: "") -> dict[str, Any]:
        """Columns of ``LOAD`` of these acts, with ``more`` behind the position of the first message of each."""
        seen = np.flatnonzero(self._counts[:, 1])
        return act_columns(
            at[seen],
            [f"{scope.partition} {position(*self._lowest[n, 1:].tolist())}{more(n)}" for n in seen.tolist()],
            self._counts[seen],
            self._times[seen],
        )
