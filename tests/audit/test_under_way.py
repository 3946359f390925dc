"""What is on its way when something changes: a broker does not take it back."""

from __future__ import annotations

import pyarrow as pa

from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.base import Policy
from tests.support.history import History, findings_of, history

FAILOVER = make_policy("pulsar.failover", "pulsar-4.0")
SHARED = make_policy("pulsar.shared", "pulsar-4.0")


def failing(policy: Policy, tables: History) -> list[str]:
    return [code for code, _ in findings_of(policy, tables) if code.isupper()]


def sooner(tables: History, micros: int) -> History:
    """The last delivery so much earlier."""
    rows = tables["deliveries"].to_pylist()
    at = tables["deliveries"]["delivered_at"].cast(pa.int64()).to_pylist()
    rows[-1]["delivered_at"] = at[-1] - micros
    return tables | {"deliveries": pa.Table.from_pylist(rows, schema=tables["deliveries"].schema)}


def test_what_was_being_sent_when_another_became_active_still_goes_to_the_one_before() -> None:
    joins = (history("a1 a2", f"+C a1>C +D{number} a2>C") for number in range(99))
    tables = next(tables for tables in joins if failing(FAILOVER, tables))  # the first newcomer that takes over
    assert failing(FAILOVER, tables) == ["WRONG_OWNER"]  # ten milliseconds later
    assert failing(FAILOVER, sooner(tables, 4_000)) == ["WRONG_OWNER"]
    assert failing(FAILOVER, sooner(tables, 9_000)) == []


def test_a_nacked_message_that_two_concurrent_reads_found_is_delivered_twice() -> None:
    tables = history("a1", "+C +D a1>C a1? a1>D*1 a1>C*1")
    assert failing(SHARED, tables) == ["DUP_OUTSTANDING"]  # ten milliseconds later
    assert failing(SHARED, sooner(tables, 9_000)) == []
    never_given_back = history("a1", "+C +D a1>D a1>C")
    assert failing(SHARED, sooner(never_given_back, 9_000)) == ["DUP_OUTSTANDING"]
