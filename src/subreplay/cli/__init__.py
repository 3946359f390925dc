"""How a command runs, around what it does.

``command`` opens the terminal, the log file and the engine, calls the command's work, and turns what comes back or is
raised into an exit code. ``terminal`` writes results to standard output and progress and errors to standard error.
``run_log`` keeps what Spark, Java and other libraries say in a file. ``interruption`` cancels what the engine still
does when the user presses Ctrl-C or the process gets SIGTERM.

What the commands are stands in ``main`` and ``commands``; what a run does stands in ``pipeline.story``. Nothing here
reads or judges data.
"""
