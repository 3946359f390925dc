"""Answer planning questions, each with a lower bound that no setup can beat.

A plan starts from loads: an array of work by window and slot, by window and key, or by window and partition. Each
question has a module: ``sticky_ranges``, the smallest number of consumers (``consumer_count``), the number of
partitions (``partition_counts``) and so on. An answer (``questions.answer``) has the result, the lower bound, the gap
between both, the runner-up and the assumptions. ``capacity`` computes how much work a message is and how long it waits.
"""
