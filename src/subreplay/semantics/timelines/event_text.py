"""Describe membership events in the text of a finding."""

from __future__ import annotations

from collections.abc import Sequence

from subreplay.rows.model.rows import MembershipEvent
from subreplay.rows.model.text_format import format_clock
from subreplay.semantics.timelines.timeline import Epoch

_PAST_VERBS = {
    "join": "joined", "leave": "left", "crash": "disconnected", "assigned": "was assigned the partition",
    "revoked": "gave up the partition", "lost": "lost the partition", "owner": "became the partition's owner",
}  # fmt: skip
_PENDING_VERBS = {"join": "was joining", "leave": "was leaving", "crash": "was disconnecting"}
_MAX_NAMED = 4  # consumers of one change


def describe_event(epoch: Epoch, dates: bool = False) -> str:
    """Describe the event that started an epoch. If its consumer shares its name, the text has its instance, too.

    With ``dates``, the instant includes the date.
    """
    if epoch.cause is None:
        return "epoch 0: nobody had joined yet"
    rejection = " and was rejected" if epoch.rejected else ""
    event = epoch.cause.event
    event_text = f"{_describe_consumer(epoch.cause)} {_PAST_VERBS[event]}" if event in _PAST_VERBS else "a rebalance"
    return f"epoch {epoch.index}: {event_text}{rejection} at {format_clock(epoch.start.at, dates)}"


def describe_pending_change(epoch: Epoch, dates: bool = False) -> str:
    """Describe the change that started an epoch as an observer sees it before the change is complete."""
    if epoch.cause is None:
        return describe_event(epoch)
    verb = _PENDING_VERBS.get(epoch.cause.event)
    change_text = "a rebalance was under way" if verb is None else f"{_describe_consumer(epoch.cause)} {verb}"
    return f"epoch {epoch.index}: {change_text} since {format_clock(epoch.since.at, dates)}"


def _describe_consumer(cause: MembershipEvent) -> str:
    has_other_instance = cause.alias and cause.instance not in (
        None,
        cause.alias,
    )  # else the alias is all that there is
    return cause.label + (f" [{cause.instance}]" if has_other_instance else "")


def describe_changes(epochs: Sequence[Epoch]) -> str:
    """Describe the events that started neighbouring epochs: the consumers by name, or their number if many."""
    if len(epochs) == 1:
        return describe_event(epochs[0])
    names_by_verb: dict[str, list[str]] = {}
    for epoch in epochs:
        if epoch.cause is not None:
            verb = "was rejected" if epoch.rejected else _PAST_VERBS.get(epoch.cause.event, "rebalanced")
            names_by_verb.setdefault(verb, []).append(epoch.cause.label)
    names_fit = sum(map(len, names_by_verb.values())) <= _MAX_NAMED
    changes = ", ".join(
        f"{', '.join(names) if names_fit else len(names)} {verb}" for verb, names in names_by_verb.items()
    )
    return f"epochs {epochs[0].index} to {epochs[-1].index}: {changes} at {format_clock(epochs[0].start.at)}"
