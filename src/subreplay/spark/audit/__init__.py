"""The audit on Spark: sorted streams of rows go through ``subreplay.audit``, and its findings are counted.

``stages`` has the order: ``passes`` sends each topic partition through both passes, ``topic_findings`` and
``dead_letters`` look for what is not about one delivery, ``withdrawals`` takes back findings of earlier nights that
this night knows better, and ``windows`` sums loads and violations by time. ``worst`` picks the findings that are told
in words.

No rule is decided here; this room moves and sorts rows, and adds up.
"""
