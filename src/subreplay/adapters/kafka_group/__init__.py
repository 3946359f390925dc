"""What Kafka tells of a consumer group: its internal topic ``__consumer_offsets`` and its coordinator's log.

``consumer_offsets`` decodes records into tables; ``records`` and ``protocol_bytes`` know their layout, ``commits``
decodes the many offset commits column by column. ``coordinator_log`` makes events of the log's lines. ``rows`` joins
both into canonical membership: ``members`` says who was there, ``generations`` who owned which partition, ``progress``
how far each partition was acknowledged.

Neither source tells which record went to which member, so there are no deliveries.
"""
