"""The audit on Spark: sorted streams of rows go through ``subreplay.audit``, and its findings are counted.

``stages`` has the order: ``passes`` sends each topic partition through both passes, ``topic_findings`` and
``dead_letters`` look for what is not about one delivery, ``withdrawals`` takes back findings of earlier nights that
this night knows better, and ``summing`` counts, with ``windows``, which sums loads and violations by time, and
``worst``, which picks the findings that are told in words. Where all is on one machine, judged rows and findings are
written by tasks (``judged_files``, ``told_files``).

No rule is decided here; this room moves and sorts rows, and adds up.
"""
