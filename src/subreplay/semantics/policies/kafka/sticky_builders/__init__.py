"""How the sticky assignors build an assignment (``AbstractStickyAssignor`` and its ``AbstractAssignmentBuilder``).

``group`` is what a builder is given. Where all members subscribe to the same topics it is ``equal``
(``ConstrainedAssignmentBuilder``), elsewhere ``unequal`` (``GeneralAssignmentBuilder``), which adds and then ``moves``
one by one; the profile kafka-2.3 has ``release_2_3`` alone. ``claims`` settles who may keep what, and ``racks`` says
whose rack holds a replica.
"""
