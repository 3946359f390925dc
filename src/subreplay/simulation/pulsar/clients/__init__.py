"""The consumers in a prediction: what a client library and an application do with what the broker sends.

``client_state`` has the clients and their messages as arrays. ``receiver_queues`` fills receiver queues,
``client_permits`` requests more messages, ``chunk_assembly`` waits for whole messages, and ``application`` processes
one message at a time. ``acknowledgements`` and ``redeliveries`` send the results to the broker. ``in_flight`` has the
rows of messages that a client has received, ``event_heap`` the timers, ``log_intake`` what is appended to the log, and
``recorded_waits`` which consumer waits for which.

Nothing here decides which consumer receives an entry; the broker does.
"""
