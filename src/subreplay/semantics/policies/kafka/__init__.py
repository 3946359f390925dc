"""Kafka's assignors, one per file, and the consumer group whose partitions they assign."""
