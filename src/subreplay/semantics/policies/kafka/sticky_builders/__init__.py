"""The algorithms of the sticky assignors (``AbstractStickyAssignor`` and its ``AbstractAssignmentBuilder``).

``group`` is the input of a builder. ``equal`` (``ConstrainedAssignmentBuilder``) applies if all members subscribe to
the same topics. Otherwise ``unequal`` (``GeneralAssignmentBuilder``) adds partitions and then ``moves`` them one by
one. The profile kafka-2.3 only has ``release_2_3``. ``claims`` decides which claims are kept, and ``racks`` finds
members near a replica.
"""
