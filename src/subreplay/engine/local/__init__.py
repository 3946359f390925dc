"""The engine for one machine: a pool of processes with files between them, without pyspark and Java.

The calling process handles small data itself.
"""
