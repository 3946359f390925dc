"""How many examples a property is tried with."""

from __future__ import annotations

from hypothesis import settings


def examples(of_hundred: int) -> settings:
    """So many where the profile asks for a hundred, which is Hypothesis's own default; at least three."""
    count = of_hundred * settings.default.max_examples // 100
    return settings(max_examples=max(3, count), deadline=None)
