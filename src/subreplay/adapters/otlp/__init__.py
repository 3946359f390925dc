"""Spans of OpenTelemetry (OTLP JSON lines), as canonical deliveries.

``lines`` reads lines into columns, and ``columns`` helps with them. ``fates`` decides what becomes of each span, with
``repeats``, which finds what is told twice; ``counts`` are the sums, and ``deliveries`` is the table of the others.
``spans`` is the adapter for spans that fit memory, ``folds`` the same for streams of any number.

A span tells what an application received, by its own clock. Spans may be sampled, so what is not there says nothing.
"""
