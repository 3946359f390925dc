"""Read sources with their own columns: a declared mapping converts them to canonical tables."""
