"""The report as one HTML page that opens without a network.

``html`` fills the ``templates`` with what ``view`` and ``dispatch_view`` prepare from the report data. Charts are drawn
in ``chart_map``, ``chart_share``, ``chart_time`` and ``chart_dispatch`` on the common time axis of ``canvas``; ``svg``
makes them part of the page, and ``palette`` gives each consumer its colour. ``rangemap`` finds the rectangles of the
range map, and ``finding_filter`` what the page's filter offers.

The page is complete without its script. No figure is computed here that the report data do not have.
"""
