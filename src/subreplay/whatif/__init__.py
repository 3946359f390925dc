"""Replay a recorded log under another policy, or with other members.

``scenario`` builds the members of a scenario: the recorded ones, or those that the run file defines.
``message_assignment`` assigns every message to its owner under each scenario from the traffic profile (package
``traffic``), without simulating time. From this follow each consumer's load compared with its fair share
(``fair_share``), the slots that change owners (``handovers``), and the reasons why a consumer received nothing
(``idle_consumers``).

If a scenario has a section ``dispatch``, ``dispatch_replay`` and ``group_replay`` also simulate its deliveries over
time. ``log_entries`` turns messages into the entries that a broker stores. This package judges no rules.

``subreplay.whatif(…)``, which shares the name of this package, is ``subreplay.api.whatif``.
"""

import sys

from subreplay import CallablePackage

sys.modules[__name__].__class__ = CallablePackage
