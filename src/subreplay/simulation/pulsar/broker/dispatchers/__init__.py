"""The dispatchers: what happens to the entries of one read, by subscription type.

``next_read`` decides what to read next: waiting entries first, then new ones. ``shared`` sends entries round robin
(``shared_turns``), and keeps the chunks of one message together (``chunk_dispatch``). ``single_active`` sends all
entries to one consumer, for Exclusive and Failover. ``key_shared_joined`` is Key_Shared of 3.x and
``key_shared_draining`` Key_Shared of 4.x; they differ in how they keep order after a change of members.
``entry_delivery`` sends entries to a consumer and charges its permits.

The lists that they use (cursor, delayed entries, replay set) are in ``simulation.pulsar.broker``.
"""
