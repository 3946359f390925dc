"""Simulate what the members of a Kafka consumer group do with the records of their partitions (client 4.0.2).

A member serves all its partitions in one loop: it polls, processes the batch record by record, and polls again.
Partitions of a group therefore wait for each other, and a group is replayed as a whole: ``GroupReplay``. Between two
changes of the group, members run in a compiled event loop. When they need the coordinator, the loop returns to Python,
where ``ClassicProtocol`` or ``ServerProtocol`` decides which member gets which partition, and when.

There is one clock. At one instant, the group changes first; then records are appended; then members poll, in the order
in which they joined. A poll therefore sees everything published by then.
"""
