"""Derive from the rows of table ``membership`` which consumer owned which slot at which time.

``membership`` orders the rows of each dispatcher into events. ``consumer_aliases`` distinguishes consumers that are
connected under the same name. ``timeline`` folds a policy over these events: each event starts an epoch, and each epoch
has a range table. ``group_timeline`` does the same for a Kafka consumer group, which decides about all its partitions
at once. ``event_text`` describes the event that started an epoch.

The decisions themselves belong to ``policies``. This package reads neither messages nor deliveries.
"""
