"""The rules once more, as they read: plain, quadratic, over lists of rows.

``histories`` makes plain objects of a dispatcher's log. ``deliveries`` states every rule about deliveries over them,
and ``messages`` every rule about messages. A test on random histories holds the compiled passes equal to these
definitions.

No run calls this room. It is the place to look when it is not clear what a rule means.
"""
