"""How the server's uniform assignor builds an assignment: of a ``group`` whose members subscribe to the same topics
``equal`` (``UniformHomogeneousAssignmentBuilder``), elsewhere ``unequal`` (``UniformHeterogeneousAssignmentBuilder``).
"""
