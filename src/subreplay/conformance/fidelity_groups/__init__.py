"""How faithfully a Kafka group is replayed: recordings of real groups in, figures out.

``reenact`` lets clients do what they did, with ``clients`` and ``coordinators``: the coordinator decides anew.
``figures`` compares both sides, with ``instants``, which derives when each member hears, joins and takes from what was
before; ``text`` puts the figures into words.

``decisions`` holds what a coordinator recorded that it decided beside what its assignor must decide.

``plan`` makes the group to be predicted from a recorded scenario's plan: who comes, goes and does what when. ``owners``
says who owned which partition when, by the consumers' callbacks and by the prediction. ``predicted`` compares both, and
``chance`` many runs of one plan. Of what happened, a prediction is given the log only, and the names that a cluster
draws at random.
"""
