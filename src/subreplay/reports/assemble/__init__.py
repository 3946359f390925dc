"""Turn figures and timelines into report data, with every judgement that a report shows.

``report`` combines the parts. ``audit_verdict`` decides between valid, invalid and unknown. ``finding_views`` counts
findings and samples those that a report describes. ``consumer_loads``, ``epoch_views`` and ``ownership_moves`` describe
load, owners and moves. ``scenario_comparison`` compares scenarios, and ``whatif_answers`` names the best one.
``dispatch_views`` and ``drain_limits`` describe replayed deliveries. ``result_tables`` builds the result tables.

These modules do not render: they know no colour, width or markup.
"""
