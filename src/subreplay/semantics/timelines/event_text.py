"""Membership events in words: what explains a finding."""

from __future__ import annotations

from collections.abc import Sequence

from subreplay.rows.model.rows import MembershipEvent
from subreplay.rows.model.words import clock
from subreplay.semantics.timelines.timeline import Epoch

_VERBS = {
    "join": "joined", "leave": "left", "crash": "disconnected", "assigned": "was assigned the partition",
    "revoked": "gave up the partition", "lost": "lost the partition", "owner": "became the partition's owner",
}  # fmt: skip
_UNDER_WAY = {"join": "was joining", "leave": "was leaving", "crash": "was disconnecting"}
_MOST_NAMED = 4  # consumers of one change


def event_words(epoch: Epoch, dates: bool = False) -> str:
    """The event that opened an epoch, in words; where its consumer shared its name, with its instance. ``dates``: its
    instant is shown with the date."""
    if epoch.cause is None:
        return "epoch 0: nobody had joined yet"
    refused = " and was rejected" if epoch.rejected else ""
    event = epoch.cause.event
    happened = f"{_who(epoch.cause)} {_VERBS[event]}" if event in _VERBS else "a rebalance"
    return f"epoch {epoch.index}: {happened}{refused} at {clock(epoch.start.at, dates)}"


def change_under_way(epoch: Epoch, dates: bool = False) -> str:
    """The change that opened an epoch, in words, as somebody sees it who asks before it is complete."""
    if epoch.cause is None:
        return event_words(epoch)
    verb = _UNDER_WAY.get(epoch.cause.event)
    happening = "a rebalance was under way" if verb is None else f"{_who(epoch.cause)} {verb}"
    return f"epoch {epoch.index}: {happening} since {clock(epoch.since.at, dates)}"


def _who(cause: MembershipEvent) -> str:
    told = cause.alias and cause.instance not in (None, cause.alias)  # else the alias is all that there is
    return cause.label + (f" [{cause.instance}]" if told else "")


def change_words(epochs: Sequence[Epoch]) -> str:
    """The events that opened neighbouring epochs, in words: who did what, or how many where they are many."""
    if len(epochs) == 1:
        return event_words(epochs[0])
    done: dict[str, list[str]] = {}
    for epoch in epochs:
        if epoch.cause is not None:
            verb = "was rejected" if epoch.rejected else _VERBS.get(epoch.cause.event, "rebalanced")
            done.setdefault(verb, []).append(epoch.cause.label)
    few = sum(map(len, done.values())) <= _MOST_NAMED
    told = ", ".join(f"{', '.join(names) if few else len(names)} {verb}" for verb, names in done.items())
    return f"epochs {epochs[0].index} to {epochs[-1].index}: {told} at {clock(epochs[0].start.at)}"
