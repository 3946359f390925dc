"""Compare the dead letter topic with the messages that reached the redelivery limit, on any engine
(``audit.lost_letters``)."""

from __future__ import annotations

from datetime import date as Date
from functools import partial

from subreplay.audit.dead_letters import DeadLetters
from subreplay.audit.judge import Judge
from subreplay.audit.lost_letters import (
    ATTEMPTS,
    DELIVERY_COLUMNS,
    KEY_COLUMNS,
    LETTER_STREAMS,
    MOST_NAMED,
    NAMED,
    ORIGINS,
    POSITIONS,
    AttemptReader,
    LetterReader,
    MessageKeyReader,
    join_keys_of_exhausted,
    make_letter_attempts,
    read_origins,
    split_without_letter,
)
from subreplay.audit.rules.dead_letters import EXHAUSTED, find_disorder, find_incomplete
from subreplay.audit.topic_findings import FindingRows
from subreplay.engine.interface import Dataset, Engine
from subreplay.rows.model.columns import ints
from subreplay.rows.model.key_masking import KeyMasking
from subreplay.rows.model.tables import VIOLATIONS


def find_dead_letter_findings(
    engine: Engine,
    deliveries: Dataset,
    messages: Dataset,
    letters: Dataset | None,
    judge: Judge,
    subscription: str,
    day: Date | None,
    rejected: bool = False,
) -> Dataset | None:
    """Find DLQ_INCOMPLETE and DLQ_ORDER as rows of table ``violations``; None if the run has no dead letter policy.

    ``deliveries`` are those of the run; ``messages``, rows of ``LOG``, contain their keys. A message may reach its
    limit before midnight and arrive on the dead letter topic afterwards. So ``letters`` (rows of ``messages`` with
    their ``origin``) of later days count too. Their order is checked on their own ``day``, after the letters of earlier
    days. ``rejected``: some letters are in quarantine.
    """
    limit = judge.terms.max_redeliveries
    if letters is None or limit is None:
        return None
    rows = FindingRows(subscription, judge.rule_statuses)
    missing = _find_exhausted(engine, deliveries, messages, letters, limit, judge.words)
    lost = rows.make_step(partial(find_incomplete, max_redeliveries=limit, rejected=rejected, dates=judge.dates))
    streams = engine.sort([letters.map(LetterReader(judge.words, day), LETTER_STREAMS.schema)], LETTER_STREAMS)
    return engine.concat([missing.map(lost, VIOLATIONS), streams.map(rows.make_step(find_disorder), VIOLATIONS)])


def build_dead_letters(letters: Dataset | None, rejected: bool) -> DeadLetters:
    """Collect which messages are on the dead letter topic. ``rejected``: some letters are in quarantine."""
    return DeadLetters() if letters is None else DeadLetters.of(letters.map(read_origins, ORIGINS).to_table(), rejected)


def _find_exhausted(
    engine: Engine, deliveries: Dataset, messages: Dataset, letters: Dataset, limit: int, words: KeyMasking
) -> Dataset:
    """Find the messages (``EXHAUSTED``) that reached ``limit`` redeliveries and are not on the dead letter topic."""
    columns = [name for name in DELIVERY_COLUMNS if name in deliveries.schema.names]
    attempts = deliveries.select(columns).map(AttemptReader(limit), ATTEMPTS.schema)
    known = letters.select(["origin"]).map(make_letter_attempts, ATTEMPTS.schema)
    found = engine.sort([attempts, known], ATTEMPTS).split(
        split_without_letter, {"exhausted": NAMED, "positions": POSITIONS}
    )
    positions = found["positions"].to_table(MOST_NAMED + 1)
    if not len(positions):
        return engine.create_dataset(EXHAUSTED.empty_table())
    some = ints(positions.sort_by("hash"), "hash") if len(positions) <= MOST_NAMED else None
    keys = messages.select(KEY_COLUMNS).map(MessageKeyReader(words, some), NAMED.schema)
    return engine.sort([found["exhausted"], keys], NAMED).map(join_keys_of_exhausted, EXHAUSTED)
