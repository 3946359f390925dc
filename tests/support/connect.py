"""A Spark Connect server of this process on a port of its own, so that several runs of the tests go on at once."""

from __future__ import annotations

import socket

from pyspark.sql.connect.client import DefaultChannelBuilder


def free_port() -> str:
    """A port that is free, to which sessions of this process connect."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    DefaultChannelBuilder.default_port = staticmethod(lambda: port)
    return str(port)
