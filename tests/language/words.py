"""Words that the project replaced by the field's own terms, and the places that still use one."""

from __future__ import annotations

import io
import keyword
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.language.messages import PACKAGE, Message

MOST_WORDS: Final = 30
"""A visible sentence with more words than this is listed."""

NAMES: Final[dict[str, str]] = {
    "told": "recorded, shown, known", "tell": "report, show", "tells": "contains, reports", "telling": "output rows",
    "asked": "requested, configured", "asking": "request", "held": "owned, blocked, stored", "theirs": "source",
    "ours": "canonical", "witness": "evidence", "witnesses": "evidence", "excuse": "exemption", "excuses": "exemptions",
    "excused": "exempt", "standing": "rule status", "standings": "rule status", "doubt": "inconclusive",
    "doubtful": "inconclusive", "census": "input statistics", "room": "package", "brought": "collected",
    "night": "daily run", "nights": "daily runs", "withdrawn": "retracted", "withdrawal": "retraction",
    "withdrawals": "retractions", "dealt": "partitioned round robin", "happening": "event text",
    "happenings": "event text", "agenda": "timers", "looks": "format detection", "fate": "outcome", "fates": "outcomes",
    "stories": "dispatcher events", "sniff": "detect_format", "strangers": "unknown consumers",
    "stranger": "unknown consumer", "namesake": "consumer with an equal name", "namesakes": "equally named consumers",
    "unowned": "without an owner", "few": "small, local",
}  # fmt: skip
"""A word in an identifier, and what to use instead. ``given`` and ``left`` are absent: SQL and numpy use them."""

PHRASES: Final[dict[str, str]] = {
    r"told|tells": "recorded, contains, reports; shown, listed",
    r"(?:is|are|was|were|be|been|not|nor|as) asked|asked for": "requested, configured",
    r"leaves with|left with (?:code|exit)": "exits with",
    r"nights?": "daily run; day",
    r"withdrawn|withdrawals?": "retracted",
    r"mid-life": "left-truncated data",
    r"com(?:es?|ing) again|came again": "is redelivered",
    r"given back|gave (?:it|them) back": "negatively acknowledged",
    r"held back|holds? back": "blocked",
    r"lets? go of|letting go": "releases",
    r"witness(?:es)?": "evidence",
    r"excuse[sd]?": "exemption, exempt",
    r"standings?": "rule status",
    r"doubt(?:s|ful)?": "inconclusive",
    r"census": "input statistics",
    r"theirs|ours": "source, canonical",
    r"by turn|brought|dealt": "round robin, collected",
    r"strangers?|namesakes?": "unknown consumers, consumers with equal names",
    r"even share|unowned": "fair share, messages without an owner",
    r"not below": "lower bound",
    r"waits? for nobody": "is connected and idle",
}
"""A pattern of words in a visible string, and what to say instead."""

STORED: Final = frozenset({
    "TOLD_DIFFERS", "excuse", "excuses", "held_until", "tell", "withdrawn",
    "cannot_tell", "unowned", "unowned_why", "witness",
})  # fmt: skip
"""Rule codes, tables, columns and keys of report.json that users query, so that their names stay."""

_PHRASE: Final = re.compile(rf"(?<![\w-])(?:{'|'.join(PHRASES)})(?![\w-])", re.IGNORECASE)
_PARTS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SENTENCE: Final = re.compile(r"(?<=[.!?:;])\s+(?=[A-Z{])")


def find_replaced_names(package: Path = PACKAGE) -> Iterator[str]:
    """Yield each identifier of the package, and each file name, that contains a replaced word."""
    for path in sorted(package.rglob("*.py")):
        place = path.relative_to(package).as_posix()
        yield from _explain(place, path.stem)
        seen: set[str] = set()
        for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
            name = token.string
            if token.type == tokenize.NAME and not keyword.iskeyword(name) and name not in seen | STORED:
                seen.add(name)
                yield from _explain(f"{place}:{token.start[0]}", name)


def _explain(place: str, name: str) -> Iterator[str]:
    for part in _PARTS.findall(name):
        if part.lower() in NAMES:
            yield f"{place}: {name} contains {part!r}; use {NAMES[part.lower()]}"


def find_replaced_phrases(messages: list[Message]) -> Iterator[str]:
    """Yield each visible string that contains a replaced word."""
    for message in messages:
        spoken = re.sub(r"{[^{}]*}", "{}", message.text)
        for match in _PHRASE.finditer(spoken):
            use = next(use for phrase, use in PHRASES.items() if re.fullmatch(phrase, match.group(), re.IGNORECASE))
            yield f"{message.file}:{message.line}: {match.group()!r} in {' '.join(spoken.split())!r}; use {use}"


def find_long_sentences(messages: list[Message]) -> Iterator[str]:
    """Yield each visible sentence of more than ``MOST_WORDS`` words."""
    for message in messages:
        for sentence in _SENTENCE.split(re.sub(r"{[^{}]*}", "X", message.text)):
            count = len(re.findall(r"[\w'/.-]*[A-Za-z][\w'/.-]*", sentence))
            if count > MOST_WORDS:
                yield f"{message.file}:{message.line}: {count} words: {' '.join(sentence.split())}"
