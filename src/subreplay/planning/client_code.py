"""Sticky ranges as client code and settings, ready to be pasted."""

from __future__ import annotations

from collections.abc import Sequence

from subreplay.model.range_table import Range


def java(names: Sequence[str], ranges: Sequence[Range | None]) -> str:
    """What each consumer of the Java client says on subscribing; one line a consumer."""
    return "\n".join(
        f"/* {name} */ .subscriptionType(SubscriptionType.Key_Shared)"
        f".keySharedPolicy(KeySharedPolicy.stickyHashRange().ranges(Range.of({one[0]}, {one[1]})))"
        for name, one in zip(names, ranges, strict=True)
        if one is not None
    )


def python(names: Sequence[str], ranges: Sequence[Range | None]) -> str:
    """The same for the Python client: arguments of ``client.subscribe``, by consumer."""
    lines = [
        f'    "{name}": ConsumerKeySharedPolicy(KeySharedMode.Sticky, sticky_ranges=[({one[0]}, {one[1]})]),'
        for name, one in zip(names, ranges, strict=True)
        if one is not None
    ]
    return "\n".join(
        [
            "from pulsar import ConsumerKeySharedPolicy, ConsumerType, KeySharedMode",
            "",
            "key_shared_policy = {",
            *lines,
            "}",
            "# client.subscribe(…, consumer_type=ConsumerType.KeyShared, key_shared_policy=key_shared_policy[name])",
        ]
    )


def run_file(names: Sequence[str], ranges: Sequence[Range | None]) -> str:
    """The same as members of a scenario of a run file."""
    return "\n".join(
        f"- {{consumer: {name}, ranges: [[{one[0]}, {one[1]}]]}}"
        for name, one in zip(names, ranges, strict=True)
        if one is not None
    )


SETTINGS = (
    "# broker.conf, where Key_Shared was switched off: subscriptionKeySharedEnable=true\n"
    "# and for the namespace, where its subscription types are limited:\n"
    "pulsar-admin namespaces set-subscription-types-enabled TENANT/NAMESPACE --types Key_Shared"
)
"""What a broker needs; the ranges themselves are the clients' alone. All slots must be covered: messages of a slot that
no connected consumer asked for wait."""
