"""Read a Kafka consumer group from its internal topic ``__consumer_offsets`` and its coordinator's log.

``consumer_offsets`` decodes records into tables. ``group_records`` and ``protocol_bytes`` have their layout, and
``offset_commits`` decodes the many offset commits column by column. ``streams_records`` has the records of streams
groups, and describes tasks as partitions. ``coordinator_log`` reads events from the log.
``group_rows`` joins both into canonical membership, with ``group_members`` and ``group_generations``.
``commit_progress`` and ``acknowledged_records`` derive deliveries from commits, and ``group_stream`` runs it all.

Neither source shows which record went to which member, so deliveries are only acknowledged records.
"""
