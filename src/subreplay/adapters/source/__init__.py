"""Sources in somebody else's columns: a declared mapping makes them canonical tables."""
