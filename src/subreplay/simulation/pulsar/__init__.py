"""The replay of a Pulsar subscription: who gets which entry, and when.

``broker`` is the dispatcher as the broker has it (3.2.3, 4.0.8, 4.2.4), and ``clients`` are the consumers: receiver
queues, permits, acknowledgements, the application. Two programs drive them. ``reenact`` is given what the consumers did
and lets the broker decide. ``predict`` is given only the log and the members: ``prediction`` and ``service`` say how
the consumers behave, and ``event_loop`` runs both sides under one clock. ``choice`` finds the dispatcher of a policy.
``no_progress`` notices when nothing can happen any more, and ``ending`` reports what is pending then.

One replay is one topic or partition. What is read from tables, and what a scenario is, belongs to ``whatif``.
"""
