"""Parse the position of a message on the command line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from subreplay.errors import ConfigError
from subreplay.rows.model.rows import Scope

_MESSAGE: Final = re.compile(r"(.+?)(?:-partition-(\d+))?:(\d+):(\d+)(?::(\d+))?")


@dataclass(frozen=True)
class Position:
    """The position of a message, or of a whole entry if ``batch_index`` is None."""

    scope: Scope
    ledger: int
    entry: int
    batch_index: int | None

    @classmethod
    def parse(cls, text: str, option: str = "--message") -> Position:
        """Parse ``TOPIC:LEDGER:ENTRY`` or ``TOPIC:LEDGER:ENTRY:BATCH_INDEX``; Kafka's offset 7 is ``TOPIC:0:7``.

        Raises ``ConfigError`` that names the ``option`` for any other text.
        """
        found = _MESSAGE.fullmatch(text)
        if not found:
            raise ConfigError(
                f"{option} {text}: write TOPIC:LEDGER:ENTRY or TOPIC:LEDGER:ENTRY:BATCH_INDEX, "
                "such as persistent://public/default/orders:5:120"
            )
        topic, partition, ledger, entry, index = found.groups()
        scope = Scope(topic, -1 if partition is None else int(partition))
        return cls(scope, int(ledger), int(entry), None if index is None else int(index))

    def __str__(self) -> str:
        inside = "" if self.batch_index is None else f":{self.batch_index}"
        return f"{self.scope.full_name}:{self.ledger}:{self.entry}{inside}"
