"""Replays of a dispatch, message by message: of a Pulsar broker and its clients, and of a Kafka group."""
