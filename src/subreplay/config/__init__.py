"""The run file: from YAML text to frozen, validated models.

``yaml_text`` reads the text within limits and without evaluating anything. ``fields`` has the parts that all sections
are made of, such as durations. ``dispatch`` and ``group_dispatch`` are the section ``dispatch`` of a scenario, for
Pulsar and for a Kafka group. ``run`` is the whole file: it loads and checks it. ``mistakes`` has the sentences for what
is wrong: each names file, line and key, what is legal there and what was given. ``plans`` makes plans of its scenarios.

Every key with its unit and its default stands in ``conf/default.yaml``. Nothing here opens a table or starts Spark.
"""
