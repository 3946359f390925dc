"""Traffic as a what-if needs it: compact, exact, without a key in the clear.

``profile`` says what is kept: the messages in runs of one key, as arrays. ``measuring`` makes it of messages,
``storage`` is its form on disk. A plan is evaluated over it: ``ownership`` lays out who owns what and from when on,
``cells`` cuts runs into windows, ``evaluate`` passes once over all of it, ``evaluation`` is what it counted, and
``moves`` tells what changed hands. ``recent_load`` is the traffic that a policy looks at which splits the busiest
consumer's range; ``routing`` has the same traffic on another number of partitions, ``retention`` what would have been
kept of it. Nothing here knows of engines, of files, or of scenarios: it is given a policy and its timelines.
"""
