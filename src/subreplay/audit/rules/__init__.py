"""The rules of the audit, a file for each family.

Each family's file has its ``RULES`` (title, meaning, source, standing) and the steps that look for them: who owns a
message (``ownership``), in which order it comes (``order``), who waits for whom (``holding``), how much is sent and
when (``flow``), what is redelivered (``redelivery``), what is never delivered (``undelivered``), which
consumer is silent (``liveness``) and what waits for it to the end (``waiting_at_end``), what producers did
(``publication``, ``partitions``), what sticky ranges leave uncovered (``ranges``) and what arrives on the dead letter
topic (``dead_letters``). ``registry`` collects them and says what each policy promises.

The steps are called by ``audit.passes``; no file here reads a table by itself.
"""
