"""Commands that are a story of their own; ``cli.main`` has the others, and puts all together.

``sources`` looks at somebody's files and makes canonical tables of them; ``plan`` asks which set-up to take;
``conformance`` holds the simulators against the real classes, brokers and groups. A command imports what it needs when
it runs.
"""
