"""The rules of the audit, one module for each family.

Each module has its ``RULES`` (title, meaning, source, status) and the steps that find violations: which consumer owns a
message (``ownership``), in which order messages arrive (``order``), which consumer blocks others (``holding``), how
many messages are sent and when (``flow``), what is redelivered (``redelivery``) or never delivered (``undelivered``),
which consumer is silent (``liveness``) and which messages wait for it at the end of the data (``waiting_at_end``), what
producers did (``publication``, ``partitions``), which slots sticky ranges do not cover (``ranges``) and which messages
arrive on the dead letter topic (``dead_letters``). ``registry`` collects the rules and decides what each policy
promises.

``audit.passes`` calls the steps. These modules do not read tables.
"""
