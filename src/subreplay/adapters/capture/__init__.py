"""What consumers recorded of themselves with ``subreplay.capture``, as canonical tables.

``adapter`` reads the files of a capture. ``checks`` holds each row against its contract. ``deliveries`` makes
deliveries of receipts and of what became of them, and ``membership`` makes joins and leaves. ``joins`` has the joins
between events that these need.

All times are those of the consumers' clocks: when the broker dispatched a message is not known.
"""
