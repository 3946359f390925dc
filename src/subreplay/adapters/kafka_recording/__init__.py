"""Read recordings of Kafka groups, made beside real brokers and clients, as canonical tables.

``kafka_recording_adapter`` reads the folder of a recording: the captures of its consumers, the coordinator's log, and
the records of its topics. ``recorded_membership`` has the coordinator's decisions and the clients' callbacks,
``polled_deliveries`` finds the commit that acknowledged each polled record, and ``recorded_commits`` has the commits.
``recording_rows`` has the row contracts of the files.

Assignors and verdicts of the recording are not read.
"""
