"""Read and change settings of a session that may belong to a platform.

Serverless compute raises an error for most settings, even when they are only read with a default value
(``CONFIG_NOT_AVAILABLE``).
"""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession


def read_setting(session: SparkSession, name: str) -> str | None:
    """Return a setting of a session; None if it is not set or the platform hides it."""
    try:
        return session.conf.get(name, None)
    except PySparkException:
        return None


def change_setting(session: SparkSession, name: str, value: str | None) -> bool:
    """Set a setting of a session, or remove it for None; return False if the platform refuses."""
    try:
        session.conf.unset(name) if value is None else session.conf.set(name, value)
    except PySparkException:
        return False
    return True
