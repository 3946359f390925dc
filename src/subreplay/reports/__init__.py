"""Build the report of a run, and write it as text, JSON and an HTML page.

``assemble`` turns the figures of a run into report data. ``data`` and the modules ``*_data`` define the report data,
which are frozen, complete and safe to publish. The renderers read nothing else: ``text`` for a
terminal, ``json_report`` for programs, ``page`` for a browser. ``write`` writes the files. ``formatting`` formats
numbers and times, ``metrics`` explains each figure, and ``text_cleaning`` makes names safe to show.

This package does not import Spark and does not read tables.
"""
