"""Read the group coordinator's log: ``log_files`` of a broker, the ``known_lines``, their ``log_clock``, and the
``log_events`` in them."""
