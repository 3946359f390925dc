"""The group coordinator's log: ``files`` of a broker, each ``lines`` of a known shape, their ``times``, and the
``events`` that they tell."""
