"""Spans of OpenTelemetry (OTLP JSON lines), as canonical deliveries.

``files`` finds and opens files. ``lines`` reads their lines into columns, ``columns`` picks attributes out of them,
``counts`` tells what became of each line and span, ``deliveries`` makes a delivery of each span that tells of one,
and ``repeats`` finds spans that were exported twice. ``spans`` is the adapter.

A span tells what an application received, by its own clock. Spans may be sampled, so what is not there says nothing.
"""
