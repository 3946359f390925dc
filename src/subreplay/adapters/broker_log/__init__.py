"""The log file of a Pulsar broker, as canonical membership and deliveries.

``files`` reads lines in batches. ``words`` has the known lines word for word, and ``scan`` finds which line is of which
kind and where its fields stand. ``events`` makes one event of each line (``texts`` and ``columns`` give its fields as
columns). ``members`` and ``deliveries`` then fold the events of one subscription, with the loops in ``kernels``.
``adapter`` has the functions that others call.

A broker's log has no keys and no publication times, so it gives no messages.
"""
