"""Traffic as a what-if needs it: compact, exact, without readable keys.

``traffic_profile`` defines the data: messages in runs of one key, as arrays. ``profile_builder`` builds it from
messages, and ``profile_storage`` writes it to disk. ``plan_evaluator`` evaluates a plan over it in one pass.
``ownership_arrays`` has the owners over time for it, and ``window_cells`` cuts runs into windows. ``evaluation_counts``
has the resulting counts, and ``moved_messages`` reports what changed owners. ``recent_load`` measures the traffic for
the policy that splits the busiest consumer's range. ``producer_rerouting`` moves the traffic to another number of
partitions, and ``retention`` finds what would have been retained.

This package knows no engines, files or scenarios: callers pass a policy and its timelines.
"""
