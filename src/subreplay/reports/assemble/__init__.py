"""From figures and timelines to report data: every judgement that a report shows is made here.

``report`` puts the whole together. ``verdict`` decides between valid, invalid and unknown, and says what leaves doubt.
``findings`` counts all findings and picks those that are told in words. ``loads``, ``epochs`` and ``moves`` describe
who got how much, who owned what, and what changed hands. ``compare`` sets scenarios side by side and ``answer`` names
the best one. ``dispatch`` and ``drain`` are about replayed deliveries. ``result_tables`` makes the tables that the
driver writes.

Nothing is rendered here: no colour, no width, no markup.
"""
