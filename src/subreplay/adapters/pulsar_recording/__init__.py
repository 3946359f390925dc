"""Recordings that an interceptor inside a Pulsar broker wrote, as canonical tables.

``adapter`` reads the folder of a recording and calls the others in turn. ``rows`` has the contract of each file and the
rows they become. ``membership`` makes joins and leaves of the broker's events, ``deliveries`` makes deliveries of
dispatches and of what ended them, ``receipts`` adds when applications received them, and ``dead_letters`` finds what
was given up.

Policies and verdicts are not looked at.
"""
