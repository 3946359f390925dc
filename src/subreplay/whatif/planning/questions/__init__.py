"""The questions that plans answer, over traffic and policies: ``shaping`` (ranges, partitions, policy), ``sizing``
(consumers, capacity) and ``changing`` (rollout, upgrade, static). Each answer is an ``Answer``."""
