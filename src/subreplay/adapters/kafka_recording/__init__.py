"""Recordings of Kafka groups, made beside real brokers and clients, as canonical tables.

``adapter`` reads the folder of a recording: what its consumers captured, what its coordinator logged and what its
topics hold. ``membership`` has the coordinator's side and the callbacks, ``deliveries`` says which commit acknowledged
what was polled, and ``commits`` has the commits themselves. ``rows`` has the contract of each file and the rows they
become.

Assignors and verdicts are not looked at.
"""
