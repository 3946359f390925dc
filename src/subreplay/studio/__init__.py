"""A local page on which one changes a set-up and sees at once what it does to recorded traffic.

``state`` is what the page edits: scenarios, windows and planning settings, as sections of a run file, within limits.
``workbench`` holds the traffic and answers for a state: figures and charts, plans, the report, the run file.
``drawing`` draws the charts with the components of the report. ``replay`` runs dispatch replays behind, in a process of
their own. ``server`` serves the page and its requests, and ``access`` decides which requests it answers. ``page`` has
the files of the page, which needs nothing else.
"""
