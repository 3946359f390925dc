"""The Spark engine, and the only package that imports pyspark.

``engine`` runs steps over ``datasets``. Their outputs pass through Java as large values (``packing``). ``scans`` opens
tables, ``tables`` and ``frame_tables`` write them, and ``session`` opens or finds the Spark session.
``column_functions`` has the column functions of ``subreplay.api``.
"""
