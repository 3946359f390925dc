"""Explain findings in sentences, for the people who have to act on them.

``findings`` takes whole columns of findings and gives each finding its sentence (``sentences``), its evidence and its
cause (``causes``): the join, close or rejection that explains it, or "unexplained". ``text_columns`` formats columns of
instants and positions as ``rows.model.text_format`` formats single values. ``upstream_faults`` knows the tickets of
broker and client faults, and which of them a finding matches. ``trace`` lists the events of one message or one key in
order of time.

This package does not decide what a finding is. The rules in ``audit.passes`` do that before.
"""
