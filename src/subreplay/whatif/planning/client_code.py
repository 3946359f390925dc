"""Sticky ranges as client code and settings, ready to be pasted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from subreplay.rows.model.range_table import Range


def java(names: Sequence[str], ranges: Sequence[Range | None]) -> tuple[str, ...]:
    """What each consumer of the Java client says on subscribing, as lines."""
    lines: list[str] = []
    for name, one in _given(names, ranges):
        lines += [
            f"// {name}",
            "consumerBuilder.subscriptionType(SubscriptionType.Key_Shared)",
            f"    .keySharedPolicy(KeySharedPolicy.stickyHashRange().ranges(Range.of({one[0]}, {one[1]})));",
        ]
    return tuple(lines)


def python(names: Sequence[str], ranges: Sequence[Range | None]) -> tuple[str, ...]:
    """The same for the Python client: an argument of ``client.subscribe``, by consumer."""
    return (
        "from pulsar import ConsumerKeySharedPolicy, ConsumerType, KeySharedMode",
        "",
        "key_shared_policy = {",
        *(
            f'    "{name}": ConsumerKeySharedPolicy(KeySharedMode.Sticky, sticky_ranges=[({one[0]}, {one[1]})]),'
            for name, one in _given(names, ranges)
        ),
        "}",
        "# client.subscribe(..., consumer_type=ConsumerType.KeyShared,",
        "#                  key_shared_policy=key_shared_policy[name])",
    )


def run_file(names: Sequence[str], ranges: Sequence[Range | None]) -> tuple[str, ...]:
    """The same as members of a scenario of a run file."""
    return tuple(f"- {{consumer: {name}, ranges: [[{one[0]}, {one[1]}]]}}" for name, one in _given(names, ranges))


def _given(names: Sequence[str], ranges: Sequence[Range | None]) -> Iterator[tuple[str, Range]]:
    """Who has any."""
    for name, one in zip(names, ranges, strict=True):
        if one is not None:
            yield name, one


SETTINGS = (
    "# broker.conf, where Key_Shared was switched off:",
    "subscriptionKeySharedEnable=true",
    "# for the namespace, where its subscription types are limited:",
    "pulsar-admin namespaces set-subscription-types-enabled TENANT/NAMESPACE --types Key_Shared",
)
"""What a broker needs; the ranges themselves are the clients' alone. All slots must be covered: messages of a slot that
no connected consumer asked for wait."""
