"""The consumers' side of a prediction: what a client library and an application do with what the broker sends.

``state`` holds the clients and the messages they have, as arrays. ``receiving`` fills receiver queues, ``permits`` asks
for more, ``chunk_assembly`` waits for whole messages, and ``application`` works on one message at a time.
``acknowledging`` and ``redelivering`` tell the broker what became of it. ``in_flight`` has the rows of messages that
a client holds, ``heap`` the timers, ``intake`` what reaches the log, and ``blocking`` records who waits for whom.

Nothing here decides who gets an entry; that is the broker's part.
"""
