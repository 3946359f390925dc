"""What-ifs and plans as stages of a run.

``stages`` makes plans of scenarios over the recorded traffic and counts what they assign; ``plans`` gives a question of
``planning`` what it asks: the traffic's profile, the recorded membership, a service model.
"""
