"""Read the log file of a Pulsar broker as canonical membership and deliveries.

``line_patterns`` has the known lines, and ``line_scan`` finds the kind and the fields of each line. ``line_events``
turns each line into an event, with ``field_texts``. ``log_members`` and ``log_deliveries`` fold the events of one
subscription, with ``event_columns`` and the loops in ``delivery_kernels``. ``log_stages`` has the functions that an
engine runs, and ``broker_logs`` the files and the result of a log.

A broker's log contains no keys and no publish times, so it gives no messages.
"""
