"""Replay topic logs through subscription semantics, on Spark."""

__version__ = "0.1.0"
