"""Render the report as one HTML page that opens without a network.

``html`` fills the ``templates`` with the data that ``page_view`` and ``dispatch_view`` prepare. The modules ``chart_*``
draw the charts; ``chart_canvas`` provides their common axes, and ``svg`` their marks. ``palette`` gives each consumer a
colour. ``range_rectangles`` finds the rectangles of the range map, and ``finding_filter`` the choices of the filter.

The page is complete without its script. All its figures come from the report data.
"""
