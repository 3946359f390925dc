"""The audit of one subscription: what was delivered is held against what its policy promises.

A log is read twice. The first pass goes through it by position: ``passes.facts`` puts each delivery beside its message,
its owner and its epoch. The rows are then sorted by time, and the second pass, ``passes.timed``, looks at order,
holding, permits and who was active. ``judge`` drives both passes, and ``checkpoint`` hands their state from one run of
a date to the next. ``judging`` and ``explaining`` are the steps that an engine runs, ``sums`` counts what tasks found,
and ``window_sums`` puts many counts into windows. The rules stand in ``rules``, a file for each family, their codes in
``codes``; ``explain`` puts findings into words, and ``definitions`` states the rules once more, slowly, for the tests.

Before all this, ``beginning``, ``clocks``, ``rejects`` and ``sessions`` say what the data cannot tell, so that a gap in
the data is not taken for a broken promise. Nothing here knows an engine; ``pipeline`` says which rows go through which
step.

``subreplay.audit(…)``, to which the package lends its name, is ``subreplay.api.audit``.
"""

import sys

from subreplay import CallablePackage

sys.modules[__name__].__class__ = CallablePackage
