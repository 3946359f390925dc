"""What acts of operators and clients (``audit.acts``) explain, deliveries in order of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from subreplay.audit.acts import Act
from subreplay.audit.codes import Code, Excuse
from subreplay.audit.passes.loads import act_rows
from subreplay.model.columns import NEVER, UNKNOWN, Ints, flags, ints
from subreplay.model.rows import Scope
from subreplay.model.words import position

_DUP: Final = Code.DUP_DELIVERY.bit


class Explained:
    """Which of a dispatcher's redeliveries its acts explain, by what the log shows of them (``Patterns.found``)."""

    def __init__(self, acts: Sequence[Act], found: Ints | None) -> None:
        self._at = np.array([act.at for act in acts], np.int64)
        declared = np.array([act.declared is not None for act in acts], np.bool_)
        self._named = np.array([act.named for act in acts], np.bool_)
        self._first = np.where(declared, UNKNOWN, NEVER if found is None else found[:, 1])
        self._counts = np.zeros((len(acts), 2), np.int64)  # acknowledged before, all
        self._times = np.tile([NEVER, UNKNOWN], (len(acts), 1))
        self._lowest = np.full((len(acts), 4), NEVER)  # ordinal and position of the first one

    def judge(self, facts: pa.Table) -> pa.Table:
        """``FACTS`` in order of time, without what no act explains."""
        when = ints(facts, "reset")
        mine = np.flatnonzero(when != UNKNOWN)
        if not len(mine):
            return facts
        act = np.searchsorted(self._at, when[mine])
        again, excuses = ints(facts, "codes")[mine] & _DUP != 0, ints(facts, "excuses")
        ordinal = ints(facts, "ordinal")[mine]
        explained = (ordinal >= self._first[act]) | (~again & self._named[act])
        excuses[mine[~explained]] &= ~Excuse.RESET.bit
        self._add(facts, mine[explained], act[explained], again[explained])
        return facts.set_column(facts.schema.get_field_index("excuses"), "excuses", pa.array(excuses))

    def _add(self, facts: pa.Table, rows: Ints, act: Ints, again: np.ndarray) -> None:
        today = ~flags(facts, "before")[rows]
        rows, act, again = rows[today], act[today], again[today]
        at, ordinal = ints(facts, "at")[rows], ints(facts, "ordinal")[rows]
        self._counts += np.column_stack([np.bincount(act[mine], minlength=len(self._at)) for mine in (again, ...)])
        np.minimum.at(self._times[:, 0], act, at)
        np.maximum.at(self._times[:, 1], act, at)
        for number in np.unique(act).tolist():
            first = rows[act == number][np.argmin(ordinal[act == number])]
            where = [int(facts[name][first].as_py()) for name in ("ordinal", "ledger", "entry", "batch_index")]
            if where[0] < self._lowest[number, 0]:
                self._lowest[number] = where

    def sums(self, scope: Scope) -> pa.Table:
        """``JUDGED`` rows that count what each act had redelivered."""
        seen = np.flatnonzero(self._counts[:, 1])
        return act_rows(
            scope,
            self._at[seen],
            [f"{scope.partition} {position(*self._lowest[number, 1:].tolist())}" for number in seen.tolist()],
            self._counts[seen],
            self._times[seen],
        )
