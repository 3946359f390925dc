"""Read spans of OpenTelemetry (OTLP JSON lines) as canonical deliveries.

``otlp_json`` parses lines into columns, and ``span_columns`` converts these. ``span_outcomes`` decides the outcome of
each span, with ``duplicate_spans``. ``span_counts`` has the counts, and ``span_deliveries`` builds the deliveries.
``span_stream`` folds spans as streams of any size, and ``span_summary`` has the notes, the errors and the result.

A span shows what an application received, by its own clock. Spans may be sampled, so a missing span proves nothing.
"""
