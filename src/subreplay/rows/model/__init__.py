"""The domain model: the rows, tables, columns and names that every other package uses.

``rows`` has the frozen objects: instants, consumers, membership events. ``tables`` lists every canonical table with its
columns, and ``contracts`` defines the legal values of each input column. ``columns`` converts Arrow columns to the
arrays that rules compute with. ``text_format`` formats instants and positions, and ``key_masking`` masks keys.
``topics`` and ``subscription`` implement the rules for names and for the start and type of a subscription.
``entry_keys`` returns the key that a broker sees for each message, and ``range_table`` the consumer that owns each
slot.

No module here depends on a policy, a rule of the audit, Spark or a file format.
"""
