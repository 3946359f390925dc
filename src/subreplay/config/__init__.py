"""The run file: from YAML text to frozen, validated models.

``yaml_text`` reads the text within limits and evaluates nothing. ``fields`` has the field types of all sections, such
as durations. ``dispatch`` and ``group_dispatch`` are the section ``dispatch`` of a scenario, for Pulsar and for a Kafka
group. ``run`` loads and checks the whole file. ``mistakes`` describes errors: each sentence names file, line, key,
legal values and the value found. ``plans`` builds plans from the scenarios.

``conf/default.yaml`` lists every key with its unit and default. Nothing here opens a table or starts Spark.
"""
