"""Run pure steps over data that may be larger than memory.

``interface`` defines the primitives, which two engines implement: ``local`` and ``spark``.
"""
