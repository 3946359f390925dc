"""Re-enact and predict recorded share groups (KIP-932).

* ``shared_log`` is the log as a share group reads it; ``partition_requests`` are the requests of each partition.
* ``share_reenactment`` lets the broker decide anew; ``share_epochs`` does so for the coordinator.
* ``share_comparison`` compares both with the recording; ``share_text`` formats the result.
"""
