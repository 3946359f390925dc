"""What ``subreplay demo`` runs on: a recording of a real broker (Pulsar 4.0.8, Key_Shared: joins, a slow consumer, a
leave), and incidents that users reported, rebuilt as small tables. ``INPUT`` in a run file stands for their folder."""
