"""Read polled topic statistics of a Pulsar broker as canonical membership.

``stats_answers`` reads the files one answer at a time, and ``poll_collection`` drops repeated answers.
``polled_membership`` derives joins and leaves from the changes between polls. ``stats_adapter`` has the functions for
polls that fit memory, and ``poll_stream`` folds polls of any number as streams.

Statistics contain no messages and no deliveries. Joins are exact; a leave is known to the interval between two polls.
"""
