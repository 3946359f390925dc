"""Findings that are not about one delivery: of topics, of ranges, of dead letters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.audit.codes import Code, Exemption
from subreplay.audit.definitions.messages import find_late_dead_letters
from subreplay.audit.findings import make_violations
from subreplay.audit.routing import Routing
from subreplay.audit.rules.dead_letters import EXHAUSTED, LETTER_ORDER, LETTERS, find_disorder, find_incomplete
from subreplay.audit.rules.partitions import FIRST_MESSAGES, find_keyless_strays, find_keys_in_two_partitions
from subreplay.audit.rules.ranges import find_range_findings
from subreplay.audit.rules.registry import RULES, find_rule_statuses
from subreplay.audit.terms import Terms
from subreplay.rows.model.partitioners import CountPeriod, KeyScheme, Part, Partitioners
from subreplay.rows.model.rows import RuleStatus, Scope
from subreplay.rows.model.tables import VIOLATIONS
from subreplay.semantics.policies import make_policy
from tests.support.joins import fold
from tests.support.properties import examples

SECOND = 1_000_000_000
STICKY = make_policy("pulsar.key_shared.sticky", "pulsar-4.0")
SHARED = make_policy("pulsar.shared", "pulsar-4.0")


def first(partition: int, at: int, messages: int = 1, key: str | None = "k", producer: str = "p") -> dict[str, Any]:
    position = {"topic": "t", "partition": partition, "ledger": 5, "entry": at, "batch_index": -1}
    return position | {"published": at * SECOND, "producer": producer, "key": key, "messages": messages}


class TestPartitions:
    def test_a_key_is_in_one_partition(self) -> None:
        rows = pa.Table.from_pylist([first(0, 3), first(1, 1, 7), first(2, 9, producer="q")], schema=FIRST_MESSAGES)
        found = [*find_keys_in_two_partitions(rows)]
        assert [(f.scope, f.position) for f in found] == [(Scope("t", 0), (5, 3, -1)), (Scope("t", 2), (5, 9, -1))]
        assert found[0].cause == "producer p changed its choice: its router or the number of partitions changed"
        assert found[1].cause == "producers p and q choose partitions differently"

    def test_what_is_known_of_the_partitioners_says_why(self) -> None:
        def cause(parts: tuple[Part, ...], *producers: str | None) -> str:
            shown = Partitioners(9, parts, 0, (), frozenset(), {}, 0, 2)
            rows = [first(0, 3, 7) | {"producer": producers[0]}, first(1, 6) | {"producer": producers[1]}]
            (found,) = find_keys_in_two_partitions(pa.Table.from_pylist(rows, schema=FIRST_MESSAGES), shown)
            return found.cause

        java, boost = KeyScheme("JavaStringHash"), KeyScheme("BoostHash")
        grew = Part(java, (CountPeriod(5, 0), CountPeriod(10, 5 * SECOND)), 9, 9)
        growth = "the number of partitions changed from 5 to 10 at 1970-01-01 00:00:05"
        assert cause((grew,), "p", "p").startswith(growth)
        late = (
            Part(java, (CountPeriod(5, 0),), 4, 4, ("p",)),
            Part(java, (CountPeriod(10, 5 * SECOND),), 5, 5, ("q",)),
        )
        assert cause(late, "p", "q").startswith(growth)
        two = (Part(java, (CountPeriod(5, 0),), 4, 4, ("p",)), Part(boost, (CountPeriod(5, 0),), 5, 5, ("q",)))
        differ = "choose partitions differently: they hash keys by JavaStringHash and by BoostHash"
        assert cause(two, "p", "q") == f"producers p and q {differ}"
        assert cause(two, "p", "p") == "producer p changed its choice: its router or the number of partitions changed"
        unnamed = tuple(replace(part, producers=()) for part in two)
        some = "producers choose partitions differently: some hash keys by JavaStringHash, others by BoostHash"
        assert cause(unnamed, None, None) == some

    def test_the_next_daily_run_reports_only_new_findings(self) -> None:
        rows = [first(0, 1) | {"known": True}, first(1, 2, 9) | {"known": True}, first(2, 3, 99)]
        (found,) = find_keys_in_two_partitions(pa.Table.from_pylist(rows, schema=FIRST_MESSAGES))
        assert found.scope == Scope("t", 2)
        assert [*find_keys_in_two_partitions(pa.Table.from_pylist(rows[:2], schema=FIRST_MESSAGES))] == []

    def test_messages_without_a_key_stay_where_their_producer_began(self) -> None:
        rows = [first(1, 1, key=None), first(0, 2, key=None), first(0, 3, key=None, producer="q")]
        frame = pa.Table.from_pylist(rows, schema=FIRST_MESSAGES)
        assert [f.position for f in find_keyless_strays(Routing(2, "SinglePartition"), frame)] == [(5, 2, -1)]
        assert [*find_keyless_strays(Routing(2), frame)] == []


class TestRanges:
    def test_slots_that_no_consumer_requested_are_a_gap_from_the_instant_it_opens(self) -> None:
        found = [*find_range_findings(fold(STICKY, "+C1[0-9] +C2[10-65535] -C1"))]
        assert [(f.code, f.slot, f.epoch) for f in found] == [(Code.STICKY_GAP, 10, 1), (Code.STICKY_GAP, 0, 3)]
        assert "slots 10..65535 had no owner" in found[0].explanation
        assert found[1].explanation.endswith("until the end")
        assert found[1].cause.startswith("epoch 3: C1 left")

    def test_slots_that_two_consumers_requested_are_an_overlap(self) -> None:
        (found,) = find_range_findings(fold(STICKY, "+C1[0-65535] +C2[5-9]"))
        assert (found.code, found.consumer, found.slot) == (Code.STICKY_OVERLAP, "C2", 5)
        assert found.evidence == ("C1 serves 0..65535",)

    def test_full_cover_is_neither_and_other_policies_have_no_such_ranges(self) -> None:
        assert [*find_range_findings(fold(STICKY, "+C1[0-9] +C2[10-65535]"))][1:] == []
        assert [*find_range_findings(fold(make_policy("pulsar.key_shared.auto_split", "pulsar-4.0"), "+C1"))] == []


def dead_lettered(entry: int, count: int = 3, nacked: bool = True, acked: bool = False) -> dict[str, Any]:
    position = {"topic": "t", "partition": -1, "ledger": 1, "entry": entry, "batch_index": -1, "key": "k"}
    return position | {"consumer": "C1", "at": SECOND, "redelivery_count": count, "nacked": nacked, "acked": acked}


def letter(entry: int, of: int, key: str = "k", judged: bool = True) -> dict[str, Any]:
    origin = {"origin_ledger": 1, "origin_entry": of, "origin_batch_index": -1}
    position = {"topic": "t", "partition": -1, "ledger": 9, "entry": entry, "batch_index": -1}
    return position | origin | {"key": key, "published": SECOND, "judged": judged}


def judged(exhausted: list[dict[str, Any]], letters: list[dict[str, Any]]) -> list[tuple[Code, int, Exemption]]:
    arrived = {row["origin_entry"] for row in letters}
    missing = [row for row in exhausted if row["entry"] not in arrived]
    found = [
        *find_incomplete(pa.Table.from_pylist(missing, schema=EXHAUSTED).to_batches(), 3),
        *find_disorder(pa.Table.from_pylist(letters, schema=LETTERS).to_batches()),
    ]
    return [(f.code, f.position[1], f.exemption) for f in found]


class TestDeadLetters:
    def test_a_message_that_exceeded_its_redeliveries_is_on_the_dead_letter_topic(self) -> None:
        assert judged([dead_lettered(7)], [letter(0, 7)]) == []
        assert judged([dead_lettered(7)], []) == [(Code.DLQ_INCOMPLETE, 7, Exemption.NONE)]
        assert judged([dead_lettered(7, count=4, nacked=False)], []) == [(Code.DLQ_INCOMPLETE, 7, Exemption.NONE)]

    def test_the_last_attempt_may_have_succeeded_or_be_under_way(self) -> None:
        assert judged([dead_lettered(7, nacked=False, acked=True)], []) == [
            (Code.DLQ_INCOMPLETE, 7, Exemption.LAST_ATTEMPT)
        ]
        assert judged([dead_lettered(7, nacked=False)], []) == []

    def test_dead_letters_of_a_key_may_change_places(self) -> None:
        assert judged([], [letter(0, 7), letter(1, 8)]) == []
        assert judged([], [letter(0, 8), letter(1, 7)]) == [(Code.DLQ_ORDER, 7, Exemption.NONE)]
        assert judged([], [letter(0, 8, "k"), letter(1, 7, "q")]) == []
        assert judged([], [letter(0, 7), letter(1, 7)]) == []  # a second copy stands behind no later message
        assert judged([], [letter(0, 8, judged=False), letter(1, 7)]) == [(Code.DLQ_ORDER, 7, Exemption.NONE)]
        assert judged([], [letter(0, 8), letter(1, 7, judged=False)]) == []  # of another day
        assert find_rule_statuses(SHARED, Terms(max_redeliveries=3))[Code.DLQ_ORDER] is RuleStatus.ALLOWED


@examples(50)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9)), max_size=12), st.sampled_from([1, 3, 100]))
def test_dead_letters_are_found_out_of_order_as_the_definition_says(reported: list[tuple[str, int]], rows: int) -> None:
    letters = [letter(entry, of, key) for entry, (key, of) in enumerate(reported)]
    table = pa.Table.from_pylist(letters, schema=LETTERS).sort_by([(name, "ascending") for name in LETTER_ORDER])
    found = [f.explanation.split()[2] for f in find_disorder(table.to_batches(rows))]
    assert sorted(found) == sorted(f"9:{position[1]}" for position in find_late_dead_letters(letters))


@pytest.mark.parametrize(("terms", "rows"), [(Terms(max_redeliveries=3), 1), (Terms(), 0)])
def test_they_become_rows_of_the_violations_table_where_the_rule_applies(terms: Terms, rows: int) -> None:
    found = find_incomplete(pa.Table.from_pylist([dead_lettered(7)], schema=EXHAUSTED).to_batches(), 3)
    table = make_violations(found, "sub", RULES, find_rule_statuses(SHARED, terms))
    assert table.schema == VIOLATIONS
    assert [(r["code"], r["verdict"], r["entry"]) for r in table.to_pylist()] == [
        ("DLQ_INCOMPLETE", "invalid", 7)
    ] * rows
