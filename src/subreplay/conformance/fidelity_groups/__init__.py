"""Measure how faithfully a Kafka group is replayed, from recordings of real groups.

``group_reenactment`` lets clients repeat their recorded actions, with ``recorded_members`` and
``recorded_coordinators``; the coordinator decides anew. ``group_comparison`` compares both sides, with
``derived_instants``, which derives when each member is notified, joins and takes partitions. ``group_text`` formats the
figures. ``coordinator_decisions`` compares a coordinator's recorded decisions with those that its assignor must make.

``planned_group`` builds the group of a recorded scenario's plan. ``partition_owners`` returns the owner of each
partition over time, by callbacks and by prediction. ``group_prediction`` compares both, and ``run_agreement`` many runs
of one plan. A prediction only uses the recorded log and the names that a cluster draws at random.
"""
