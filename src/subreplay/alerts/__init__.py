"""Alerts about what changed since the run before: their text, and how they are sent."""
