"""How faithfully the replay of a Kafka group predicts what a real group did: recordings in, figures out.

``plan`` makes the group to be predicted from a recorded scenario's plan: who comes, goes and does what when. ``owners``
says who owned which partition when, by the consumers' callbacks and by the prediction. ``measure`` compares both.

Of what happened, only the log and the names that a cluster draws at random are given.
"""
