"""Our own tables where they are files of this machine: read, checked, counted and made a log without Spark.

Spark converts each row between columns and rows on its way to Python, which costs more than all rules together. Files
of this machine every process can read itself. So ``files`` opens a table, ``rows`` reads and checks pieces of it,
``log_rows`` makes them rows of the log, and ``counts`` counts what a run has to know before it judges. Whatever is not
as plain is Spark's, which says the same in SQL (``engine.spark.read``); tests hold both equal.
"""
