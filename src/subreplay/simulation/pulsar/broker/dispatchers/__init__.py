"""What a dispatcher does with the entries of one read, by subscription type.

``reading`` decides what to read next: waiting entries first, then new ones. ``shared`` deals them out in turn
(``turns``), and keeps the chunks of one message together (``chunks``). ``single_active`` gives all to one consumer, for
Exclusive and Failover. ``key_shared_joined`` is Key_Shared of 3.x and ``key_shared_draining`` Key_Shared of 4.x, which
differ in how they keep order after a change of members. ``sending`` hands entries to a consumer and charges its
permits.

The lists these work on (cursor, delayed entries, entries to come again) are in ``simulation.pulsar.broker``.
"""
