"""A bundled recording of a real broker (Pulsar 4.0.8, Key_Shared: joins, a slow consumer, a leave) and a run over
it."""
