"""Files of somebody's own form, read by Spark's tasks.

An adapter's rules are pure functions in ``subreplay.adapters``; here they are given to tasks. ``tasks`` deals out what
there is to read. Some sources are one story, which ``whole`` gives to one task. A source of which a month may lie there
is read a file at a time, and what is in the files is sorted and folded as streams: ``streamed`` does so for every
adapter that says how, and ``broker_log`` for the logs of brokers. The driver holds names of files, counts, and members.
"""
