"""Membership events in words: what explains a finding."""

from __future__ import annotations

from subreplay.timeline import Epoch
from subreplay.words import clock

_VERBS = {"join": "joined", "leave": "left", "crash": "disconnected"}


def event_words(epoch: Epoch) -> str:
    """The event that opened an epoch, in words; where its consumer shared its name, with its instance."""
    if epoch.cause is None:
        return "epoch 0: nobody had joined yet"
    refused = " and was rejected" if epoch.rejected else ""
    who = epoch.cause.label + (f" [{epoch.cause.instance}]" if epoch.cause.alias else "")
    happened = f"{who} {_VERBS[epoch.cause.event]}" if epoch.cause.event in _VERBS else "a rebalance"
    return f"epoch {epoch.index}: {happened}{refused} at {clock(epoch.start.at)}"
