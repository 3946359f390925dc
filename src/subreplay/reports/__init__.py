"""Reports: from what a run counted to text, JSON and a page.

``assemble`` turns figures into report data. ``data``, ``dispatch_data`` and ``finding_data`` are these data: frozen,
complete and safe to publish. Renderers read nothing else: ``text`` for a terminal, ``json_report`` for programs,
``page`` for a browser. ``write`` writes the files, each whole or not at all, and ``load`` reads a report back.
``words`` formats numbers and times, ``metrics`` explains each figure in one sentence, and ``clean`` makes names safe to
show.

Nothing here imports Spark or reads a table.
"""
