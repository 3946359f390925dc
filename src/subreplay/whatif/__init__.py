"""What would have happened under another policy or with other members.

``scenario`` makes the membership of a scenario: the recorded one, or one that the run file invents. ``assign`` then
gives every message its owner under each scenario, without time, by the profile of the ``traffic``. From this follow
the load of each consumer against perfect balance (``balance``), what changes hands (``handovers``) and why somebody got
nothing (``idle``).

Where a scenario has a section ``dispatch``, ``predicted`` and ``predicted_group`` replay its deliveries in time, with
``dispatch`` and ``groups``; ``entries`` turns messages into the entries that a broker stores. No verdict is made here.

``subreplay.whatif(…)``, to which the package lends its name, is ``subreplay.api.whatif``.
"""

import sys

from subreplay import CallablePackage

sys.modules[__name__].__class__ = CallablePackage
