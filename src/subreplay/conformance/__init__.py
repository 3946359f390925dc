"""Golden vectors of the real brokers and assignors, replayed through the public API."""
