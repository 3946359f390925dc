"""Find the redeliveries that acts of operators and clients (``audit.acts``) explain, in order of time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from subreplay.audit.acts import Act
from subreplay.audit.codes import Code, Exemption
from subreplay.audit.deliveries import Ending
from subreplay.audit.passes.loads import make_act_columns
from subreplay.rows.model.columns import NEVER, UNKNOWN, Ints, flags, ints
from subreplay.rows.model.rows import Scope
from subreplay.rows.model.text_format import format_position

_DUP: Final = Code.DUP_DELIVERY.bit
_AGAIN: Final = _DUP | Code.DUP_OUTSTANDING.bit


class RedeliveryExplainer:
    """Finds which redeliveries of a dispatcher its acts explain, according to the log (``Patterns.found``), and which
    belong to ``seeks`` (``Seeks.found``)."""

    def __init__(self, acts: Sequence[Act], found: Ints | None, seeks: Ints | None = None) -> None:
        self._seeks = np.empty((0, 5), np.int64) if seeks is None else seeks
        self._sought = RedeliveryCounts(len(self._seeks))
        self._seekers: dict[int, str] = {}
        self._at = np.array([act.at for act in acts], np.int64)
        declared = np.array([act.declared is not None for act in acts], np.bool_)
        self._named = np.array([act.is_named for act in acts], np.bool_)
        self._first = np.where(declared, UNKNOWN, NEVER if found is None else found[:, 1])
        self._seen = RedeliveryCounts(len(acts))

    @property
    def has_seeks(self) -> bool:
        """Whether the log shows seeks."""
        return len(self._seeks) > 0

    def judge(self, facts: pa.Table) -> pa.Table:
        """Return ``FACTS`` in order of time, without the exemptions that no act explains."""
        facts = self._explain_seeks(facts) if len(self._seeks) else facts
        when = ints(facts, "reset")
        selected = np.flatnonzero(when != UNKNOWN)
        if not len(selected):
            return facts
        act = np.searchsorted(self._at, when[selected])
        again, exemptions = ints(facts, "codes")[selected] & _DUP != 0, ints(facts, "excuses")
        ordinal = ints(facts, "ordinal")[selected]
        explained = (ordinal >= self._first[act]) | (~again & self._named[act])
        exemptions[selected[~explained]] &= ~Exemption.RESET.bit
        self._seen.add(facts, selected[explained], act[explained], again[explained])
        index = facts.schema.get_field_index("excuses")
        return facts.set_column(index, facts.schema.field(index), pa.array(exemptions))

    def _explain_seeks(self, facts: pa.Table) -> pa.Table:
        """Mark the ``FACTS`` of messages that were redelivered because their consumer sought back."""
        begin, until, lowest, highest, session = self._seeks.T
        codes, at, ordinal = (ints(facts, name) for name in ("codes", "at", "ordinal"))
        selected = np.flatnonzero((codes & _AGAIN != 0) & (ints(facts, "reset") == UNKNOWN))
        seek = np.searchsorted(begin, at[selected], "right") - 1
        fits = (seek >= 0) & (at[selected] <= until[seek]) & (ints(facts, "session")[selected] == session[seek])
        fits &= (lowest[seek] <= ordinal[selected]) & (ordinal[selected] <= highest[seek])
        selected, seek = selected[fits], seek[fits]
        if not len(selected):
            return facts
        exemptions, previous = ints(facts, "excuses").copy(), ints(facts, "previous").copy()
        exemptions[selected] |= Exemption.SOUGHT_BACK.bit
        previous[selected] = Ending.SOUGHT
        self._sought.add(facts, selected, seek, codes[selected] & _DUP != 0)
        for number, row in zip(*np.unique(seek, return_index=True), strict=True):
            self._seekers.setdefault(int(number), facts["consumer"][int(selected[row])].as_py())
        for name, values in (("excuses", exemptions), ("previous", previous)):
            field = facts.schema.field(name)
            facts = facts.set_column(facts.schema.get_field_index(name), field, pa.array(values, field.type))
        return facts

    def sums(self, scope: Scope) -> Iterator[Mapping[str, Any]]:
        """Yield columns of ``LOAD`` that count the redeliveries of each act and each seek."""
        yield self._seen.sums(scope, self._at)
        yield self._sought.sums(scope, self._seeks[:, 0], lambda number: f" {self._seekers[number]}")


class RedeliveryCounts:
    """The number of redelivered messages of each act, their time range, and the first message."""

    def __init__(self, acts: int) -> None:
        self._counts = np.zeros((acts, 2), np.int64)  # acknowledged before, all
        self._times = np.tile([NEVER, UNKNOWN], (acts, 1))
        self._lowest = np.full((acts, 4), NEVER)  # ordinal and position of the first one

    def add(self, facts: pa.Table, rows: Ints, act: Ints, again: np.ndarray) -> None:
        """Add redelivered ``rows``, each with its ``act``. ``again``: the message had been acknowledged."""
        today = ~flags(facts, "before")[rows]
        rows, act, again = rows[today], act[today], again[today]
        at, ordinal = ints(facts, "at")[rows], ints(facts, "ordinal")[rows]
        acts = len(self._counts)
        self._counts += np.column_stack([np.bincount(act[selected], minlength=acts) for selected in (again, ...)])
        np.minimum.at(self._times[:, 0], act, at)
        np.maximum.at(self._times[:, 1], act, at)
        for number in np.unique(act).tolist():
            first = rows[act == number][np.argmin(ordinal[act == number])]
            where = [int(facts[name][first].as_py()) for name in ("ordinal", "ledger", "entry", "batch_index")]
            if where[0] < self._lowest[number, 0]:
                self._lowest[number] = where

    def sums(self, scope: Scope, at: Ints, more: Callable[[int], str] = lambda _: "") -> dict[str, Any]:
        """Return columns of ``LOAD`` of these acts, with ``more`` after the position of each first message."""
        seen = np.flatnonzero(self._counts[:, 1])
        return make_act_columns(
            at[seen],
            [f"{scope.partition} {format_position(*self._lowest[n, 1:].tolist())}{more(n)}" for n in seen.tolist()],
            self._counts[seen],
            self._times[seen],
        )
