"""Replay a Pulsar subscription: which consumer receives which entry, and when.

``broker`` is the dispatcher of the broker (3.2.3, 4.0.8, 4.2.4). ``clients`` are the consumers: receiver queues,
permits, acknowledgements, the application. Two programs drive them. ``reenact`` takes the recorded actions of consumers
and lets the broker decide. ``subscription_replay`` takes only the log and the members: ``consumer_model`` and
``service_model`` say how consumers behave, and ``event_loop`` runs both sides under one clock. ``dispatcher_choice``
finds the dispatcher of a policy. ``no_progress`` detects when nothing can happen any more, and ``pending_rows`` reports
what is pending then.

One replay is one topic or partition. Reading tables and defining scenarios belong to ``whatif``.
"""
