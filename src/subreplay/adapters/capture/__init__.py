"""What consumers recorded of themselves with ``subreplay.capture``, as canonical tables.

``files`` reads the files of a capture, and ``adapter`` makes tables of all of them at once; ``folds`` makes the same of
any number as streams. ``checks`` holds each row against its contract. ``progress`` finds which receipts a cumulative
acknowledgement or a commit ends, ``deliveries`` makes deliveries of receipts and of what became of them, and
``membership`` makes joins and leaves. ``joins`` has the joins between events that these need.

All times are those of the consumers' clocks: when the broker dispatched a message is not known.
"""
