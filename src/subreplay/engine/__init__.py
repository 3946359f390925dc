"""What runs pure steps over data that may be larger than memory: one interface, and two engines, ``local`` and
``spark``."""
