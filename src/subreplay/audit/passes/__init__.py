"""The two passes over the deliveries of one dispatcher, and what they look up.

First pass, in order of position: ``facts`` calls ``positions``, which reads each message with its deliveries once, and
``owners``, which finds the epoch and the consumer that should have got it. ``sessions`` answers who was connected when,
``keys`` which key decides, and ``repeats`` drops rows that were exported twice. Second pass, in order of time:
``timed`` calls ``instants``, which keeps a bounded state for each key, slot and consumer. ``loads`` sums what each
consumer got while the second pass runs. ``states`` is the hash table in which both passes remember things.

Both passes take Arrow batches and return Arrow batches, so the same code runs on a list in a test and in a task.
"""
