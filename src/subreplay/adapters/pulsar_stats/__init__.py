"""Polled topic statistics of a Pulsar broker, as canonical membership.

``polls`` reads the files, one poll at a time; ``answers`` leaves out what is there already. ``membership`` makes joins
and leaves of what changed between two polls. ``adapter`` has the functions that others call, for polls that fit memory;
``folds`` does the same with streams of any number.

There are no messages and no deliveries in statistics. Joins are exact; a leave is known to the interval between polls.
"""
