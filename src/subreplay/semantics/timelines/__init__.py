"""From the rows of table ``membership`` to who owned which slot at which time.

``membership`` orders the rows of each dispatcher into events, and ``namesakes`` tells apart consumers that are
connected under one name at once. ``timeline`` folds a policy over these events: each event begins an epoch, and each
epoch has a range table. ``group_timeline`` does the same for a Kafka consumer group, which decides about all its
partitions at once. ``happenings`` puts the event that began an epoch into words.

The decisions themselves belong to ``policies``. Nothing here looks at messages or deliveries.
"""
