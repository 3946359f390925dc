"""Files of somebody's own form, read by Spark's tasks.

An adapter's rules are pure functions in ``subreplay.adapters``; here they are given to tasks. ``tasks`` deals out what
there is to read. Most sources are one story, which ``whole`` gives to one task. A source of which a month may lie there
is read a file at a time, and its events are sorted and folded as a stream: ``broker_log``. The driver holds names of
files, counts, and members.
"""
