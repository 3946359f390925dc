"""Measure how faithfully the dispatch replay re-enacts the behaviour of a real broker.

``recorded_dispatchers`` reads a recording, dispatcher by dispatcher. ``broker_flow_log`` reads the permits in a
broker's own log. ``replay_inputs`` builds the inputs of a re-enactment, with ``consumer_sessions``,
``membership_changes``, ``permit_requests`` and ``read_times``. ``dispatch_reenactment`` re-enacts it.
``dispatch_comparison`` and ``blocked_entries`` compare both sides, ``fidelity_measure`` runs all steps, and
``fidelity_text`` formats the figures. ``dispatch_prediction`` predicts a recording from its plan alone.

A re-enactment predicts nothing about consumers: their actions are inputs, and only the dispatcher decides anew.
"""
