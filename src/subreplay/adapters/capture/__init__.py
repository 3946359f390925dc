"""Read what consumers recorded with ``subreplay.capture`` as canonical tables.

``capture_events`` reads the files of a capture, and ``capture_stream`` folds any number of them as streams.
``event_checks`` checks each row against its contract. ``cumulative_acks`` finds the receipts that a cumulative
acknowledgement or a commit ends. ``captured_deliveries`` builds deliveries from receipts and their outcomes,
``captured_membership`` joins and leaves, and ``capture_summary`` messages, counts and the run. ``event_joins`` has the
joins between events.

All times are of the consumers' clocks, so the time when the broker dispatched a message is unknown.
"""
