"""The dispatch replay on Spark.

``replay`` makes each topic partition of each scenario one sorted stream through the kernel, and adds up what comes out;
``stage`` is the stage of a run: predict, count, judge.
"""
