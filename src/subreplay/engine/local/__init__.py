"""The engine of one machine: a pool of processes and files between them; no pyspark, no Java.

Few rows this process works on itself, in the same way.
"""
