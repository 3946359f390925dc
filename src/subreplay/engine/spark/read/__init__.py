"""From the input tables to the checked log of one subscription.

``traffic`` opens the input tables, and ``contracts`` splits each into valid rows and rows for quarantine. ``log``
unites messages and deliveries into one stream of rows. ``direct`` reads tables that are files of this machine without
Spark's scan, and leaves many rows in files for who judges them. ``input_statistics`` counts in one look what is there:
rows, times, partitions, members. ``checkpoint`` adds what earlier nights handed on. ``source`` is all of this together,
as the stages of a run take it. ``rejects`` says what the rows in quarantine could be about, ``clocks`` measures and
corrects clocks that are off, ``known_secret`` checks that keys were hashed with the secret of this run, and ``held``
looks what the tables hold where a run finds nothing.

Nothing here judges a delivery.
"""
