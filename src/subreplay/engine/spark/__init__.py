"""The engine of Spark, and the one package that imports pyspark.

``engine`` runs steps over ``datasets``, whose outputs go through Java as large values (``packing``); ``scans`` opens
tables, ``tables`` and ``lake`` write them; ``session`` opens or finds the Spark session. ``columns`` has the column
functions of ``subreplay.api``.
"""
