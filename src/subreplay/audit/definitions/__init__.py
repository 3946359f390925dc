"""Define the rules a second time in plain Python: quadratic, over lists of rows.

``histories`` builds plain objects from a dispatcher's log. ``deliveries`` defines every rule about deliveries, and
``messages`` every rule about messages. A test with random histories compares the compiled passes with these
definitions.

No run uses this package. Read it when the meaning of a rule is not clear.
"""
