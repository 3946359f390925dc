"""Kafka's assignors: one a file, and the group that they share partitions in."""
