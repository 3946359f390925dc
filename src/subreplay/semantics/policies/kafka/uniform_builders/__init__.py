"""The algorithms of the server's uniform assignor.

For a ``group`` whose members subscribe to the same topics it is ``equal`` (``UniformHomogeneousAssignmentBuilder``),
otherwise ``unequal`` (``UniformHeterogeneousAssignmentBuilder``).
"""
