"""Format sticky ranges as client code and settings that can be pasted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from subreplay.rows.model.range_table import Range


def format_java(names: Sequence[str], ranges: Sequence[Range | None]) -> tuple[str, ...]:
    """Return the lines of Java client code with which each consumer subscribes."""
    lines: list[str] = []
    for name, (first, last) in _iterate_ranges(names, ranges):
        lines += [
            f"// {name}",
            "consumerBuilder.subscriptionType(SubscriptionType.Key_Shared)",
            f"    .keySharedPolicy(KeySharedPolicy.stickyHashRange().ranges(Range.of({first}, {last})));",
        ]
    return tuple(lines)


def format_python(names: Sequence[str], ranges: Sequence[Range | None]) -> tuple[str, ...]:
    """Return the lines of Python client code: the argument of ``client.subscribe`` for each consumer."""
    return (
        "from pulsar import ConsumerKeySharedPolicy, ConsumerType, KeySharedMode",
        "",
        "key_shared_policy = {",
        *(
            f'    "{name}": ConsumerKeySharedPolicy(KeySharedMode.Sticky, sticky_ranges=[({first}, {last})]),'
            for name, (first, last) in _iterate_ranges(names, ranges)
        ),
        "}",
        "# client.subscribe(..., consumer_type=ConsumerType.KeyShared,",
        "#                  key_shared_policy=key_shared_policy[name])",
    )


def format_run_file(names: Sequence[str], ranges: Sequence[Range | None]) -> tuple[str, ...]:
    """Return the lines of a run file that define the consumers as members of a scenario."""
    return tuple(
        f"- {{consumer: {name}, ranges: [[{first}, {last}]]}}" for name, (first, last) in _iterate_ranges(names, ranges)
    )


def _iterate_ranges(names: Sequence[str], ranges: Sequence[Range | None]) -> Iterator[tuple[str, Range]]:
    """Yield the consumers that have a range."""
    for name, slot_range in zip(names, ranges, strict=True):
        if slot_range is not None:
            yield name, slot_range


SETTINGS = (
    "# broker.conf, if Key_Shared was switched off:",
    "subscriptionKeySharedEnable=true",
    "# for the namespace, if its subscription types are restricted:",
    "pulsar-admin namespaces set-subscription-types-enabled TENANT/NAMESPACE --types Key_Shared",
)
"""The settings that a broker needs.

The ranges themselves are set by the clients only.

The ranges must cover all slots: messages of a slot that no connected consumer covers are not delivered.
"""
