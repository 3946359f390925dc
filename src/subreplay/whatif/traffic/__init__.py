"""Traffic as a what-if needs it: compact, exact, without readable keys.

``traffic_profile`` defines the data: messages in runs of one key, as arrays. ``profile_builder`` builds it from
messages, and ``profile_storage`` writes it to disk. A plan is evaluated over it: ``ownership_arrays`` has the owners
over time, ``window_cells`` cuts runs into windows, ``plan_evaluator`` passes once over all of it, ``evaluation_counts``
has the counts, and ``moved_messages`` reports what changed owners. ``recent_load`` measures the traffic for the policy
that splits the busiest consumer's range. ``producer_rerouting`` moves the traffic to another number of partitions, and
``retention`` finds what would have been retained. This package knows no engines, files or scenarios: callers pass a
policy and its timelines.
"""
