"""Rows of the input tables: selected by conditions, checked, counted, and made rows of the log."""
