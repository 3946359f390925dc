"""The story of a run (``story``), and what a plan asks of it (``plan_questions``)."""
