"""Audit one subscription: compare the deliveries with the guarantees of its policy.

An audit reads a log twice. The first pass reads it by position: ``passes.facts`` joins each delivery with its message,
its owner and its epoch. Then the rows are sorted by time, and the second pass, ``passes.timed``, checks order,
outstanding messages, permits and active consumers. ``judge`` runs both passes, and ``checkpoint`` carries their state
from one daily run to the next. An engine runs the steps in ``judging`` and ``explaining``. ``sums`` counts the findings
of tasks, and ``window_sums`` groups many counts by window. ``rules`` has a module for each family of rules, and
``codes`` their codes. ``explain`` explains findings, and ``definitions`` defines the rules a second time, slowly, for
the tests.

Before both passes, ``beginning``, ``clocks``, ``rejects`` and ``sessions`` find what the data do not contain, so that
missing data do not look like a broken guarantee. No module here depends on an engine. ``pipeline`` decides which rows
go through which step.

``subreplay.audit(…)``, a call of this package, is ``subreplay.api.audit``.
"""

import sys

from subreplay import CallablePackage

sys.modules[__name__].__class__ = CallablePackage
