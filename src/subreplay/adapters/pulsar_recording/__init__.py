"""Read recordings that an interceptor inside a Pulsar broker wrote, as canonical tables.

``pulsar_recording_adapter`` reads the folder of a recording. ``recorded_events`` has the row contracts of the files and
builds messages. ``recorded_members`` derives joins and leaves from the broker's events, ``recorded_deliveries``
deliveries and their outcomes, ``receipts`` adds receipts of applications, and ``dead_letters`` finds dead letters.
``recording_scenario`` has the settings of the session.

Policies and verdicts of the recording are not read.
"""
