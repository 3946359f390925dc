"""A run to start from, as far as a broker's log tells the subscription: its type, its mode, the broker's version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.pulsar_policies import policy_of, unranked

PROFILES: Final = ("3.2", "4.0", "4.2")
_EXCLUSIVE: Final = "Exclusive consumer is already connected"


def suggested(
    pairs: Sequence[tuple[str, str]], membership: pa.Table, kinds: pa.Table, version: str | None, of_3: bool
) -> tuple[pa.Table, dict[str, Any], list[str]]:
    """The membership, whose types of ``unknown`` are told where the log does, the run for the first of ``pairs`` of
    subscriptions and topics, and sentences about what is not known of it.

    ``kinds`` are those of each subscription's events. ``version`` is what the broker said when it started; ``of_3``:
    its lines have the form of 3.x.
    """
    if not pairs:
        return membership, {}, []
    subscription, topic = pairs[0]
    for each in sorted({pair[0] for pair in pairs}):
        membership = _typed(membership, each, kinds)
    run: dict[str, Any] = {"name": subscription, "topic": topic}
    policy, notes = policy_of(membership, subscription)
    run |= policy
    if version is None and of_3:
        run["profile"] = "pulsar-3.2"
        notes.append("the log does not tell the broker's version; its lines have the form of 3.2: check profile")
    elif version is None:
        notes.append("the log does not tell the broker's version: set subscription.profile, which is pulsar-4.0 here")
    else:
        run["profile"] = _profile(version)
        if version not in PROFILES:
            notes.append(f"the broker is of version {version}; the profile is the nearest that is known")
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


def _profile(version: str) -> str:
    """The nearest release that is known: the latest one that is not later."""

    def number(text: str) -> tuple[int, ...]:
        return tuple(map(int, text.split(".")))

    earlier = [each for each in PROFILES if number(each) <= number(version)]
    return f"pulsar-{earlier[-1] if earlier else PROFILES[0]}"


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
    place = membership.schema.get_field_index("type")
    return membership.set_column(place, membership.schema.field(place), pc.if_else(unknown, kind, membership["type"]))


def _at_once(members: pa.Table) -> bool:
    """Whether two consumers were members of a dispatcher at once."""
    here: dict[int, int] = {}
    for row in members.select(["partition", "event", "at", "seq"]).sort_by([("seq", "ascending")]).to_pylist():
        step = {"join": 1, "leave": -1, "crash": -1}.get(row["event"], 0)
        here[row["partition"]] = max(0, here.get(row["partition"], 0) + step)
        if here[row["partition"]] > 1:
            return True
    return False
