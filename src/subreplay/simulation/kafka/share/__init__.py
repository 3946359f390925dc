"""Share groups (KIP-932): which member acquires which records, and what becomes of them.

* ``share_window`` are the share partitions as arrays; ``share_partition`` changes them: acquisition, acknowledgement,
  expiry of locks, release.
"""
