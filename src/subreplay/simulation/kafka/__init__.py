"""Consumption: what the members of a Kafka consumer group do with the records of their partitions (client 4.0.2).

A member is one server for all its partitions: it polls, processes the batch record by record, and polls again. So
partitions of a group wait for each other, and a group is replayed as a whole: ``GroupReplay``. What the members do
between two changes of the group is one compiled event loop; when they are to turn to the coordinator, it comes back to
Python, where ``ClassicProtocol`` or ``ServerProtocol`` decides who gets which partition when.

One clock. At one instant, the group changes first; then records are appended; then members poll, in the order in which
they joined. So a poll sees whatever was published by then.
"""
