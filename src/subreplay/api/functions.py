"""Column functions for everyday questions: which hash, slot, partition and owner a key has. ``register`` makes them
functions of SQL, too."""

from subreplay.engine.spark.column_functions import Owners, kafka_partition, murmur3, owner, owners, register, slot

__all__ = ["Owners", "kafka_partition", "murmur3", "owner", "owners", "register", "slot"]
