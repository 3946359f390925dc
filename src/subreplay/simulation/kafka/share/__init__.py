"""Share groups (KIP-932): which member acquires which records, and what becomes of them.

* ``share_window`` are the share partitions as arrays; ``share_partition`` changes them: acquisition, acknowledgement,
  expiry of locks, release. ``share_coordinator`` decides epochs and targets.
* ``share_replay`` predicts a whole group: ``share_loop`` runs its events, ``share_fetches`` decides who gets records,
  and ``share_client`` is what a consumer does after a batch.
"""
