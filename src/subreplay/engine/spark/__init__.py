"""The one package that imports pyspark: it selects, joins, windows and lifts; every rule is in the core.

``session`` opens or finds the Spark session, ``lake`` reads and writes tables, ``schemas`` checks them at the door, and
``ingest`` writes what an adapter read. A run begins with ``read``, which brings the checked log. ``audit`` sends it
through the passes; ``whatif`` plans scenarios and evaluates them over the traffic's profile (``profiled``; what is
asked of keys themselves, ``keys``); ``dispatch`` replays their deliveries. ``trace`` and ``explain`` answer questions
about one message or key. ``collect`` is the one way for rows to come back to the driver, which keeps them few; of a
small log all rows do.
"""
