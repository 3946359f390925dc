"""The patterns of log lines of a Pulsar broker about members, dispatches and acknowledgements.

They are of the layout ``time [thread] LEVEL logger - message``. Up to 4.2 a message is a sentence with its values. From
5.0 on it is a constant text, and its values follow as attributes (PIP-467), which ``%msg %X`` prints sorted by key:
``text {key=value, ...}``. A pattern is the message with a field name in angle brackets for each value; ``<_>`` is
skipped. No other lines are read.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

TEXT_FIELDS: Final = ("thread", "topic", "subscription", "consumer", "connection", "reason", "ids")
NUMBER_FIELDS: Final = ("consumer_id", "ledger", "entry", "count", "hash")

_CONSUMER = (
    "Consumer{subscription=<_>{topic=<topic>, name=<subscription>}, consumerId=<consumer_id>, "
    "consumerName=<consumer>, address=<connection>}"
)
_DISPATCHER = "[<topic> / <subscription>] "
_OF_CONSUMER = f"[<_>-{_CONSUMER}] "
_SUBSCRIPTION = "[<_>{topic=<topic>, name=<subscription>}] "


class LinePattern(NamedTuple):
    """A kind of line: the last part of its logger's name, its pattern, and a ``mark``, which is text that only this
    kind contains."""

    kind: str
    logger: str
    pattern: str
    mark: str


_SENTENCES: Final = (
    LinePattern("subscribing", "ServerCnx",
         "[<connection>] Subscribing on topic <topic> / <subscription>. consumerId: <consumer_id><_>",
         "] Subscribing on topic "),
    LinePattern("created", "ServerCnx",
         "[<connection>] Created subscription on topic <topic> / <subscription>", "] Created subscription on topic "),
    LinePattern("refused", "ServerCnx",
         "[<connection>][<topic>][<subscription>] Failed to create consumer: consumerId=<consumer_id>, <reason>",
         "] Failed to create consumer: "),
    LinePattern("refused", "PersistentTopic",
         "[<topic>][<subscription>] Consumer <consumer_id> <consumer> already connected: <reason>",
         " already connected: "),
    LinePattern("closing", "ServerCnx",
         "[<connection>] Closing consumer: consumerId=<consumer_id>", "] Closing consumer: "),
    LinePattern("disconnected", "ServerCnx", "Closed connection from <connection>", "Closed connection from "),
    LinePattern("removed", "PersistentDispatcherMultipleConsumers",
         f"Removed consumer {_CONSUMER} with pending <count> acks", "Removed consumer Consumer{"),
    LinePattern("removed", "AbstractDispatcherSingleActiveConsumer",
         f"Removing consumer {_CONSUMER}", "Removing consumer Consumer{"),
    LinePattern("disconnecting", "Consumer", f"Disconnecting consumer: {_CONSUMER}", "Disconnecting consumer: "),
    LinePattern("active", "Consumer",
         "notify consumer <_> - that [<_>] for subscription <_> has new active consumer : " + _CONSUMER,
         " has new active consumer : "),
    LinePattern("adding", "PersistentStickyKeyDispatcherMultipleConsumers",
         f"{_DISPATCHER}Adding <ledger>:<entry> to pending acks for consumer id:<consumer_id> name:<consumer>"
         " with sticky key hash <hash>", " to pending acks for consumer id:"),
    LinePattern("selected", "PersistentStickyKeyDispatcherMultipleConsumers",
         f"{_DISPATCHER}select consumer <consumer> with messages num <count>, read type is <_>",
         "] select consumer "),
    LinePattern("added", "Consumer",
         f"{_SUBSCRIPTION}Added <ledger>:<entry> ledger entry with batchSize of <count> to pendingAcks"
         " in broker.service.Consumer for consumerId: <consumer_id>", " ledger entry with batchSize of "),
    LinePattern("sending", "PulsarCommandSenderImpl",
         f"{_SUBSCRIPTION}Sending message to consumerId <consumer_id>, msg id <ledger>-<entry> with batchSize <count>",
         "] Sending message to consumerId "),
    LinePattern("got", "PersistentDispatcherSingleActiveConsumer",
         f"{_OF_CONSUMER}Got messages: <count>", "] Got messages: "),
    *(
        LinePattern("shown", f"PersistentDispatcher{kind}", f"{_OF_CONSUMER}{words}<_>", f"] {words}")
        for kind, words in (
            ("MultipleConsumers", "Trigger new read after receiving flow control message"),
            ("SingleActiveConsumer", "Trigger new read after receiving flow control message"),
            ("SingleActiveConsumer", "Ignoring flow control message"),
            ("SingleActiveConsumer", "Consumer buffer is full"),
        )
    ),
    LinePattern("nacked", "PersistentDispatcherMultipleConsumers",
         f"{_OF_CONSUMER}Redelivering unacknowledged messages for consumer [<ids>]",
         "] Redelivering unacknowledged messages for consumer ["),
    LinePattern("acked", "PersistentSubscription",
         "[<topic>][<subscription>] Individual acks on [<ids>]", "] Individual acks on ["),
    LinePattern("acked_up_to", "PersistentSubscription",
         "[<topic>][<subscription>] Cumulative ack on <ids>", "] Cumulative ack on "),
)  # fmt: skip

_OF_TOPIC = "subscription=<subscription>, topic=<topic>}"
_SHOWN = f"consumer={_CONSUMER}, <_>}}"
_ATTRIBUTES: Final = (
    ("subscribing", "ServerCnx", "Subscribing on topic",
     "cnx=<_>, consumerId=<consumer_id>, <_>remoteAddress=<connection>, " + _OF_TOPIC),
    ("created", "ServerCnx", "Created subscription on topic", "<_>remoteAddress=<connection>, " + _OF_TOPIC),
    ("refused", "ServerCnx", "Failed to create consumer",
     "consumerId=<consumer_id>, exception=<reason>, localAddress=<_>, remoteAddress=<connection>, " + _OF_TOPIC),
    ("refused", "PersistentTopic", "Consumer already connected",
     "consumerId=<consumer_id>, consumerName=<consumer>, exception=<reason>, " + _OF_TOPIC),
    ("closing", "ServerCnx", "Closing consumer: consumerId",
     "consumerId=<consumer_id>, <_>remoteAddress=<connection>}"),
    ("disconnected", "ServerCnx", "Closed connection", "<_>remoteAddress=<connection>}"),
    ("removed", "PersistentDispatcherMultipleConsumers", "Removed consumer with pending acks",
     f"consumer={_CONSUMER}, pendingAcks=<count>, <_>}}"),
    ("removed", "AbstractDispatcherSingleActiveConsumer", "Removing consumer", f"consumer={_CONSUMER}}}"),
    ("disconnecting", "Consumer", "Disconnecting consumer",
     "cnx=<connection>, consumerId=<consumer_id>, consumerName=<consumer>, " + _OF_TOPIC),
    ("active", "Consumer", "Notifying new active consumer for subscription", f"activeConsumer={_CONSUMER}, cnx=<_>}}"),
    ("adding", "PersistentStickyKeyDispatcherMultipleConsumers",
     "Adding: to pending acks for consumer id: name: with sticky key hash",
     "consumerId=<consumer_id>, consumerName=<consumer>, entryId=<entry>, ledgerId=<ledger>, stickyKeyHash=<hash>, "
     + _OF_TOPIC),
    ("selected", "PersistentStickyKeyDispatcherMultipleConsumers", "select consumer with messages num, read type is",
     "consumerName=<consumer>, readType=<_>, size=<count>, " + _OF_TOPIC),
    ("added", "Consumer", "Added entry to pendingAcks",
     "batchSize=<count>, cnx=<connection>, consumerId=<consumer_id>, consumerName=<consumer>, entryId=<entry>, "
     "ledgerId=<ledger>, " + _OF_TOPIC),
    ("sending", "PulsarCommandSenderImpl", "- Sending message to consumerId, msg id- with batchSize",
     "batchSize=<count>, consumerId=<consumer_id>, entryId=<entry>, ledgerId=<ledger>, "
     "subscription=<_>{topic=<topic>, name=<subscription>}, topic=<_>}"),
    ("got", "PersistentDispatcherSingleActiveConsumer", "Got messages",
     f"readConsumer={_CONSUMER}, size=<count>, <_>}}"),
    ("shown", "PersistentDispatcherMultipleConsumers", "Trigger new read after receiving flow control message",
     "additionalNumberOfMessages=<_>, " + _SHOWN),
    *(
        ("shown", "PersistentDispatcherSingleActiveConsumer", text, _SHOWN)
        for text in ("Trigger new read after receiving flow control message", "Consumer buffer is full, pause reading",
                     "Ignoring flow control message since consumer is not active partition consumer",
                     "Ignoring flow control message since consumer is waiting for cursor to be rewinded",
                     "Ignoring flow control message since we already have a pending read req")
    ),
    ("nacked", "PersistentDispatcherMultipleConsumers", "- Redelivering unacknowledged messages for consumer",
     f"consumer={_CONSUMER}, positions=[<ids>], <_>}}"),
    ("acked", "PersistentSubscription", "Individual acks on", "positions=[<ids>], " + _OF_TOPIC),
    ("acked_up_to", "PersistentSubscription", "Cumulative ack on", "position=<ids>, " + _OF_TOPIC),
)  # fmt: skip
"""Kind, logger, text and attributes of lines from 5.0 on, as a broker of 5.0.1 prints them."""

LINE_PATTERNS: Final = (
    *_SENTENCES,
    *(
        LinePattern(kind, logger, f"{text} {{{attributes}", f"{text} {{")
        for kind, logger, text, attributes in _ATTRIBUTES
    ),
)
LINE_KINDS: Final = tuple(dict.fromkeys(line.kind for line in LINE_PATTERNS))
MARK_PATTERN: Final = "|".join(re.escape(mark) for mark in dict.fromkeys(line.mark for line in LINE_PATTERNS))
"""A regular expression for the mark of any kind."""

LITERAL, UNTIL, NUMBER, REST, ENDING = range(5)
NO_FIELD: Final = -1


class PatternProgram(NamedTuple):
    """The patterns as arrays for a compiled loop, one step after the other.

    A step is ``LITERAL`` (match the words), ``UNTIL`` (a text up to the words), ``NUMBER``, ``REST`` (a text up to the
    line's end) or ``ENDING`` (a text up to the words that end the line). Its words are ``words[begin:end]``, and its
    field is an index of ``TEXT_FIELDS`` or ``NUMBER_FIELDS``. The steps of pattern i are ``first[i]`` to ``first[i +
    1]``. The patterns of logger j are ``patterns[j]`` to ``patterns[j + 1]``, and its name is
    ``words[logger_begin[j]:logger_end[j]]``. The mark of pattern i is ``words[mark_begin[i]:mark_end[i]]``. A search
    for words may skip ``skip[step, b]`` (``mark_skip[i, b]``) bytes where ``b`` is at the place of their last byte.
    """

    words: NDArray[np.uint8]
    step: NDArray[np.int64]
    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    field: NDArray[np.int64]
    skip: NDArray[np.int64]
    first: NDArray[np.int64]
    kind: NDArray[np.int64]
    patterns: NDArray[np.int64]
    logger_begin: NDArray[np.int64]
    logger_end: NDArray[np.int64]
    mark_begin: NDArray[np.int64]
    mark_end: NDArray[np.int64]
    mark_skip: NDArray[np.int64]


def _split_pattern(pattern: str) -> list[tuple[int, str, int]]:
    """Split a pattern into (step, words, field)."""
    head, *rest = re.split(r"<(\w+)>", pattern)
    steps = [(LITERAL, head, NO_FIELD)] if head else []
    for name, words in zip(rest[::2], rest[1::2], strict=True):
        if name in NUMBER_FIELDS:
            steps.append((NUMBER, "", NUMBER_FIELDS.index(name)))
            steps += [(LITERAL, words, NO_FIELD)] if words else []
        else:
            steps.append(
                (UNTIL if words else REST, words, TEXT_FIELDS.index(name) if name in TEXT_FIELDS else NO_FIELD)
            )
    if steps[-1][0] == UNTIL:
        steps[-1] = (ENDING, *steps[-1][1:])
    return steps


def _compute_skips(word: bytes) -> list[int]:
    """Compute for each byte its distance from the end of a word, without the last byte."""
    far = [max(len(word), 1)] * 256
    for i, byte in enumerate(word[:-1]):
        far[byte] = len(word) - 1 - i
    return far


def _build_program() -> PatternProgram:
    loggers = list(dict.fromkeys(line.logger for line in LINE_PATTERNS))
    lines = sorted(LINE_PATTERNS, key=lambda line: loggers.index(line.logger))
    steps = [_split_pattern(line.pattern) for line in lines]
    flat = [step for of_line in steps for step in of_line]
    words = [word.encode() for _, word, _ in flat] + [line.mark.encode() for line in lines]
    words += [name.encode() for name in loggers]
    ends = np.cumsum([len(word) for word in words])
    begins = ends - [len(word) for word in words]
    skips = np.array([_compute_skips(word) for word in words])
    marks = slice(len(flat), len(flat) + len(lines))
    of_logger = [loggers.index(line.logger) for line in lines]
    return PatternProgram(
        words=np.frombuffer(b"".join(words), np.uint8),
        step=np.array([step for step, _, _ in flat]),
        begin=begins[: len(flat)],
        end=ends[: len(flat)],
        field=np.array([field for _, _, field in flat]),
        skip=skips[: len(flat)],
        first=np.concatenate([[0], np.cumsum([len(of_line) for of_line in steps])]),
        kind=np.array([LINE_KINDS.index(line.kind) for line in lines]),
        patterns=np.searchsorted(of_logger, np.arange(len(loggers) + 1)),
        logger_begin=begins[marks.stop :],
        logger_end=ends[marks.stop :],
        mark_begin=begins[marks],
        mark_end=ends[marks],
        mark_skip=skips[marks],
    )


PATTERN_PROGRAM: Final = _build_program()
