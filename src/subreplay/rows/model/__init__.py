"""The words of the domain: the rows, tables, columns and names that every other room speaks of.

``rows`` are the frozen objects: instants, consumers, membership events. ``tables`` lists every canonical table with its
columns, and ``contracts`` says which values each input column may hold. ``columns`` turns Arrow columns into the arrays
that rules compute with; ``words`` writes instants, positions and keys in the same way everywhere. ``topics`` and
``subscription`` hold the rules of names and of a subscription's beginning and type. ``entry_keys`` gives the key a
broker sees for each message, and ``range_table`` says which consumer owns which slot.

Nothing here knows a policy, a rule of the audit, Spark or a file format.
"""
