"""Polled topic statistics of a Pulsar broker, as canonical membership.

``polls`` reads the files, one poll at a time. ``times`` reads the times that brokers write. ``membership`` makes joins
and leaves of what changed between two polls. ``adapter`` has the functions that others call.

There are no messages and no deliveries in statistics. Joins are exact; a leave is known to the interval between polls.
"""
