"""Larger commands; ``cli.main`` has the others and registers all of them.

``sources`` inspects files and converts them to canonical tables. ``plan`` recommends a set-up. ``conformance`` compares
the simulators with the real classes, brokers and groups. A command imports what it needs when it runs.
"""
