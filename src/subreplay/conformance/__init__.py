"""How the project proves that it does what real brokers do.

``golden`` replays single decisions: what a class of the real broker or assignor answered for given inputs. ``fidelity``
re-enacts whole recordings of real brokers and compares every dispatch.

Both are commands (``subreplay conformance``, ``subreplay fidelity``) and tests. No audit needs them.
"""
