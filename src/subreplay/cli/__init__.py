"""The command line.

``main`` and ``commands`` define the commands; ``pipeline.story`` defines what a run does. ``command`` opens the
terminal, the log file and the engine, calls the command, and turns its result or its error into an exit code.
``terminal`` writes results to standard output, and progress and errors to standard error. ``run_log`` writes the output
of Spark, Java and other libraries to a file. ``interruption`` cancels the engine's work at Ctrl-C or SIGTERM.
"""
