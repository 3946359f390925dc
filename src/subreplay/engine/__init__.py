"""What runs the steps over data that may be larger than memory; ``spark`` is the only one so far."""
