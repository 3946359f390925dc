"""What the sections of a run file are made of: durations, and models that know every key."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

_UNITS = {"ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")


def parse_duration(value: Any) -> int:
    """A duration such as ``500ms``, ``10s`` or ``1.5h`` in µs; an integer is taken as µs already."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    found = _DURATION.fullmatch(str(value).strip())
    if not found:
        raise ValueError(f"not a duration: {value!r}; write a number and one of {', '.join(_UNITS)}, e.g. 10s")
    return round(float(found[1]) * _UNITS[found[2]])


CENTURY = 36_525 * _UNITS["d"]
Duration = Annotated[int, BeforeValidator(parse_duration), Field(ge=0, le=CENTURY)]


class Model(BaseModel):
    """A section of a run file: an unknown key is an error, and nothing changes after it was read."""

    model_config = ConfigDict(extra="forbid", frozen=True)
