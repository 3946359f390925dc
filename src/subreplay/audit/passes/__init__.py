"""The two passes over the deliveries of one dispatcher, and their lookups.

The first pass runs in order of position. ``facts`` calls ``positions``, which reads each message once with its
deliveries, and ``owners``, which finds the epoch and the owner of each delivery. ``sessions`` finds connected
consumers, ``keys`` the key that decides the owner, and ``repeats`` drops rows that were exported twice. The second pass
runs in order of time: ``timed`` calls ``instants``, which keeps a bounded state for each key, slot and consumer.
``loads`` sums the load of each consumer during the second pass. ``states`` is the hash table of both passes.

Both passes take and return Arrow batches, so the same code runs on a list in a test and in a task.
"""
