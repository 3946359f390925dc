"""The questions that plans answer, over traffic and policies.

``layout_questions`` has ranges, partitions and policy; ``size_questions`` has consumers and capacity;
``change_questions`` has rollout, upgrade and static membership. Each answer is an ``Answer``.
"""
