"""Read the permit requests of consumers from a broker's own log.

Shared and Key_Shared dispatchers at level DEBUG write a line for each request that triggers a read. It contains the
topic, the subscription and the consumer with its address. Other lines are ignored.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from subreplay.simulation.pulsar.broker.dispatch_rules import MILLISECOND

_LOG_FILES = ("broker.log.gz", "broker.log")
_PERMIT_LINE = re.compile(
    r"(?P<at>\S+) \[.*? - \[(?P<topic>\S+) / (?P<subscription>.+?)-Consumer\{.*?consumerId=(?P<id>\d+),"
    r".*?address=(?:.*?R:)?/(?P<address>[\d.:]+).*\] Trigger new read after receiving flow control message"
    r".* after adding (?P<permits>\d+) permits"
)

_PERMIT_ATTRIBUTES = re.compile(  # from 5.0 on (PIP-467)
    r"(?P<at>\S+) \[.*? - Trigger new read after receiving flow control message \{additionalNumberOfMessages="
    r"(?P<permits>\d+), consumer=Consumer\{.*?consumerId=(?P<id>\d+),.*?address=(?:.*?R:)?/(?P<address>[\d.:]+)"
    r".*\}, subscription=(?P<subscription>.+), topic=(?P<topic>\S+), totalAvailablePermits="
)


class LoggedPermitRequest(NamedTuple):
    """A request for so many more ``permits`` in the millisecond that begins at ``at`` (ns)."""

    at: int
    topic: str
    subscription: str
    instance: str
    permits: int


def read_logged_flows(folder: Path) -> tuple[LoggedPermitRequest, ...]:
    """Read the requests in a recording's ``broker.log``, in its order; none if there is no log or no such line."""
    path = next((folder / name for name in _LOG_FILES if (folder / name).exists()), None)
    return tuple(_read_flows(path)) if path else ()


def _read_flows(path: Path) -> Iterator[LoggedPermitRequest]:
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if "Trigger new read" in line and (match := _PERMIT_LINE.match(line) or _PERMIT_ATTRIBUTES.match(line)):
                at = round(datetime.strptime(match["at"], "%Y-%m-%dT%H:%M:%S,%f%z").timestamp() * 1_000) * MILLISECOND
                instance = f"{match['address']}#{match['id']}"  # as ``ConsumerEvent.instance``
                yield LoggedPermitRequest(at, match["topic"], match["subscription"], instance, int(match["permits"]))
