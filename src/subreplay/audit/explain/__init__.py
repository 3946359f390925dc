"""Findings in words, for people who have to act on them.

``findings`` takes whole columns of findings and gives each its sentence (``sentences``), its witness rows and its cause
(``causes``): the join, close or rejection that explains it, or "unexplained". ``wording`` writes columns of instants
and positions as ``rows.model.words`` writes single ones. ``incidents`` knows faults of brokers and clients by their
tickets, and which of them a finding looks like. ``trace`` tells everything that happened to one message or one key, in
order of time.

Nothing here decides whether something is a finding; that is done before, in ``audit.passes``.
"""
