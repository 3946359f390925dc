"""Stored texts that a test holds its output to."""

from __future__ import annotations

import os
from pathlib import Path

SNAPSHOTS = Path(__file__).parents[1] / "snapshots"


def snapshot(name: str, text: str) -> None:
    """Compare with a stored text; ``SUBREPLAY_SNAPSHOTS=write`` in the environment rewrites it."""
    path = SNAPSHOTS / name
    if os.environ.get("SUBREPLAY_SNAPSHOTS") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
