"""Evidence that the project behaves as real brokers do.

``golden`` replays single decisions: the results of a class of the real broker or assignor for given inputs.
``fidelity`` and ``fidelity_groups`` re-enact whole recordings of real brokers and groups and compare every delivery.

Both are commands (``subreplay conformance``, ``subreplay fidelity``) and tests. No audit needs them.
"""
