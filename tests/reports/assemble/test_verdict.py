"""What an audit may say of itself: green only over what was judged, red only over what nothing else could explain."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from subreplay.audit.clocks import Clocks, ClockShift
from subreplay.audit.needs import Need
from subreplay.audit.rules.registry import Code, Exemption, find_rule_statuses
from subreplay.config import run as config
from subreplay.reports.assemble.audit_verdict import compute_share_judged, find_unchecked_guarantees, judge_audit
from subreplay.reports.assemble.finding_views import build_code_summaries
from subreplay.reports.figures import Figures
from subreplay.rows.model.rows import RuleStatus, Verdict
from subreplay.rows.model.stored_rows import MOST_LISTED, Stored, explain_nothing_found, list_names
from subreplay.semantics.policies import make_policy
from subreplay.whatif.message_assignment import ScenarioPlan

DAY, LATER = date(2026, 11, 21), date(2026, 11, 22)
HELD = (
    Stored("messages", None, "orders", DAY, LATER),
    Stored("membership", "sub", "orders", DAY, DAY),
    Stored("deliveries", "sub", "orders", DAY, LATER),
    Stored("deliveries", "audit-log", "events", DAY, DAY),
)
POLICY = make_policy("pulsar.key_shared.auto_split", "pulsar-4.0")
COUNTS = tuple({"table": table, "valid": 100, "quarantined": 0} for table in ("messages", "membership", "deliveries"))
JUDGED = Figures(
    "orders",
    COUNTS,
    {"first": 0, "last": 9, "messages": 100, "deliveries": 100},
    1_000,
    ScenarioPlan("recorded", POLICY, {}),
    (),
    totals={"deliveries": 100, "undelivered": 0},
)


def found(code: str, count: int = 1, exemption: Exemption = Exemption.NONE) -> dict[str, Any]:
    return {"window": 0, "code": code, "excuse": exemption.value, "consumer": "c1", "count": count}


def run(**keys: Any) -> config.RunConfig:
    return config.parse({"subscription": {"name": "sub", "topic": "orders"}, **keys}, "run.yaml")


def verdict(figures: Figures, **keys: Any) -> tuple[Verdict, tuple[str, ...]]:
    judged = judge_audit(figures, run(**keys))
    return judged.verdict, judged.uncertainties


def rejected(table: str, rows: int) -> Figures:
    return replace(JUDGED, inputs=[c | {"quarantined": rows if c["table"] == table else 0} for c in COUNTS])


def test_what_was_judged_and_kept_is_valid() -> None:
    assert verdict(JUDGED) == (Verdict.VALID, ())


@pytest.mark.parametrize(
    ("subscription", "topic", "day", "why"),
    [
        (
            "sbu",
            "orders",
            None,
            "no rows of subscription 'sbu'; did you mean 'sub'? it has subscriptions 'audit-log', 'sub'",
        ),
        ("SUB", "orders", None, "no rows of subscription 'SUB'; did you mean 'sub'?"),
        ("sub", "Orders", None, "no rows of topic 'Orders'; did you mean 'orders'? it has topic 'orders'"),
        ("sub", "events", None, "no rows of topic 'events'; it has topic 'orders'"),
        ("sub", "orders", date(2026, 12, 1), "no rows of 2026-12-01, only from 2026-11-21 to 2026-11-22"),
        ("sub", "orders", None, "no valid rows"),
    ],
)
def test_why_a_table_has_nothing_and_what_it_has(subscription: str, topic: str, day: date | None, why: str) -> None:
    assert explain_nothing_found(HELD, "deliveries", subscription, topic, day).startswith(f"table deliveries has {why}")
    assert explain_nothing_found((), "deliveries", subscription, topic, day) == "table deliveries is empty"


def test_a_long_list_of_names_is_cut_and_its_rest_is_counted() -> None:
    assert list_names("topic", map(str, range(MOST_LISTED + 1_000))).endswith(" and 1,000 more")


NO_DELIVERY = (
    "table deliveries is empty, although 100 messages were published: either none was delivered, or the deliveries "
    "were not recorded"
)


def test_nothing_judged_is_unknown_whatever_the_run_demands() -> None:
    nothing = replace(JUDGED, extent=JUDGED.extent | {"deliveries": 0}, totals={}, stored=HELD[:2])  # type: ignore[operator]
    assert verdict(nothing) == (Verdict.UNKNOWN, (NO_DELIVERY,))


def test_why_nothing_was_judged_names_the_rows_in_quarantine() -> None:
    nothing = replace(JUDGED, extent=JUDGED.extent | {"deliveries": 0}, stored=())
    inputs = [*nothing.inputs, {"table": "ingest", "valid": 0, "quarantined": 534}]
    _, doubts = verdict(replace(nothing, inputs=inputs))
    assert doubts == (NO_DELIVERY, "534 of 834 rows of ingest are in quarantine")


@pytest.mark.parametrize(("days", "expected"), [("valid", Verdict.VALID), ("unknown", Verdict.UNKNOWN)])
def test_a_quiet_day_is_what_the_run_says(days: str, expected: Verdict) -> None:
    quiet = replace(JUDGED, extent={"first": 0, "last": 9, "messages": 0, "deliveries": 0}, totals={}, is_quiet=True)
    assert verdict(quiet, require={"quiet_days": days}, date=DAY)[0] is expected


@pytest.mark.parametrize(
    ("demand", "doubts"),
    [
        ({"deliveries": 101}, ("the run requires 101 deliveries, but the data contain 100",)),
        ({"messages": 5_000}, ("the run requires 5,000 messages, but the data contain 100",)),
        ({"deliveries": 100, "messages": 100, "share_judged": 1}, ()),
    ],
)
def test_a_run_may_demand_more(demand: dict[str, int], doubts: tuple[str, ...]) -> None:
    assert verdict(JUDGED, require=demand) == (Verdict.UNKNOWN if doubts else Verdict.VALID, doubts)


def test_what_waited_what_is_unknown_and_what_was_rejected_is_not_judged() -> None:
    findings = [
        found("UNSEEN", 6),
        found("LOST", 4),
        found("UNKNOWN_MESSAGE", 5),
        found("UNSEEN", 9, Exemption.FILTERED),
    ]
    some = replace(rejected("deliveries", 20), totals={"deliveries": 100, "undelivered": 10}, findings=findings)
    assert compute_share_judged(some) == (110 - 6 - 5) / 130


def test_rows_in_quarantine_are_tolerated_as_far_as_the_run_says() -> None:
    one = rejected("deliveries", 1)
    assert verdict(one) == (Verdict.UNKNOWN, ("1 of 101 rows of deliveries are in quarantine",))
    assert verdict(one, tolerate={"deliveries": 0.01})[0] is Verdict.VALID
    assert verdict(rejected("messages", 1), tolerate={"deliveries": 0.01})[0] is Verdict.UNKNOWN
    (more,) = verdict(rejected("deliveries", 2), tolerate={"deliveries": 0.01})[1]
    assert more.endswith("more than the 1.00% that the run tolerates")


def test_what_a_rejected_row_could_explain_is_unknown_and_the_rest_invalid() -> None:
    strays = replace(rejected("membership", 1), findings=[found("NOT_CONNECTED", 400, Exemption.MEMBER_REJECTED)])
    assert verdict(strays, tolerate={"membership": 1})[0] is Verdict.UNKNOWN
    (doubt,) = verdict(strays, tolerate={"membership": 1})[1]
    assert doubt.startswith("NOT_CONNECTED may not be violations: a membership row")
    both = replace(strays, findings=[*strays.findings, found("KEY_ORDER")])
    assert verdict(both)[0] is Verdict.INVALID
    status = {summary.code: summary.status for summary in build_code_summaries(both)}
    assert (status["NOT_CONNECTED"], status["KEY_ORDER"]) == ("unknown", "violated")


def test_contradicting_rows_make_the_verdict_unknown() -> None:
    (doubt,) = verdict(replace(JUDGED, contradicted={"deliveries": 3, "membership": 0}))[1]
    assert doubt == "in table deliveries, 3 rows contradict another row of the same event"


def test_a_rule_that_could_not_look_says_why() -> None:
    lacking = frozenset({Need.ACKNOWLEDGEMENTS, Need.MEMBERSHIP})
    rules = {rule.code: rule for rule in build_code_summaries(replace(JUDGED, lacking=lacking))}
    assert (rules["DUP_DELIVERY"].status, rules["DUP_DELIVERY"].note) == (
        "not applicable",
        "no acknowledgement is recorded",
    )
    assert rules["KEY_TWO_OWNERS"].status == "unknown"
    assert rules["KEY_TWO_OWNERS"].note.startswith(Need.MEMBERSHIP.value)
    assert rules["PARTITION_ORDER"].note == "pulsar.key_shared.auto_split does not guarantee this"
    assert rules["DLQ_INCOMPLETE"].note == "the run configures no dead letter policy"
    assert rules["KEY_ORDER"].status == "clean"


ORDER_OF_KEYS = {Code.KEY_ORDER, Code.KEY_TWO_OWNERS, Code.BEFORE_PREDECESSOR_ACK, Code.REDELIVERY_ORDER}
OF_ONE_SLOT = {Code.WRONG_OWNER, Code.LOST, Code.UNROUTABLE, Code.STUCK, Code.STARVED}
OF_ALL_DELIVERIES = {Code.LOST, Code.UNSEEN, Code.UNACKED, Code.STUCK, Code.STARVED, Code.UNROUTABLE}


@pytest.mark.parametrize(
    ("need", "blind", "seeing"),
    [
        (Need.KEYS, ORDER_OF_KEYS | {Code.MIXED_BATCH, Code.KEY_TWO_PARTITIONS}, OF_ONE_SLOT),
        (Need.STICKY_KEYS, OF_ONE_SLOT, ORDER_OF_KEYS),
        (Need.PRODUCERS, {Code.PRODUCER_ORDER, Code.DUP_PUBLISH}, ORDER_OF_KEYS | OF_ONE_SLOT),
        (Need.EVERY_DELIVERY, OF_ALL_DELIVERIES | {Code.OVER_PERMITS}, ORDER_OF_KEYS | {Code.WRONG_OWNER}),
        (Need.DELIVERIES, ORDER_OF_KEYS | OF_ONE_SLOT | OF_ALL_DELIVERIES, {Code.PRODUCER_ORDER, Code.MIXED_BATCH}),
    ],
)
def test_a_rule_without_its_columns_is_not_applicable(need: Need, blind: set[Code], seeing: set[Code]) -> None:
    list_names = {summary.code: summary for summary in build_code_summaries(replace(JUDGED, lacking=frozenset({need})))}
    assert {list_names[code.name].status for code in blind} == {"not applicable"}
    assert all(need.value in list_names[code.name].note for code in blind - {Code.STUCK, Code.STARVED})
    assert "not applicable" not in {list_names[code.name].status for code in seeing}


def test_the_slot_of_a_message_without_a_key_needs_its_producer_only_where_the_release_spreads_such_messages() -> None:
    before = make_policy("pulsar.key_shared.auto_split", "pulsar-3.2")
    assert (
        find_rule_statuses(POLICY, lacking=frozenset({Need.STICKY_KEYS}))[Code.WRONG_OWNER] is RuleStatus.NOT_APPLICABLE
    )
    assert find_rule_statuses(before, lacking=frozenset({Need.STICKY_KEYS}))[Code.WRONG_OWNER] is RuleStatus.PROMISED


def test_of_empty_tables_no_rule_says_that_it_found_nothing() -> None:
    unmoved = {Need.SOME_MESSAGE: {Code.UNKNOWN_MESSAGE, Code.NOT_CONNECTED}, Need.SOME_DELIVERY: {Code.MIXED_BATCH}}
    for need, seeing in unmoved.items():
        list_names = {
            summary.code: summary for summary in build_code_summaries(replace(JUDGED, lacking=frozenset({need})))
        }
        assert (list_names["KEY_ORDER"].status, need.value in list_names["KEY_ORDER"].note) == ("unknown", True)
        assert {list_names[code.name].status for code in seeing} == {"clean"}


def test_progress_alone_finds_nothing_lost_and_proves_nothing() -> None:
    progress = replace(JUDGED, lacking=frozenset({Need.DELIVERIES}))
    assert verdict(progress) == (Verdict.UNKNOWN, (Need.DELIVERIES.value,))


def test_a_membership_without_joins_is_unknown_and_lists_the_subscriptions_it_contains() -> None:
    nobody = replace(JUDGED, lacking=frozenset({Need.MEMBERSHIP}))
    assert verdict(replace(nobody, stored=HELD))[1] == (Need.MEMBERSHIP.value,)
    other = Stored("membership", "other", "orders", DAY, DAY)
    assert verdict(replace(nobody, stored=(other,))) == (
        Verdict.UNKNOWN,
        ("table membership has no rows of subscription 'sub'; it has subscription 'other'",),
    )


def test_only_what_the_data_lack_limits_what_valid_means() -> None:
    assert find_unchecked_guarantees(JUDGED) == frozenset()
    assert find_unchecked_guarantees(replace(JUDGED, lacking=frozenset({Need.RECEIPTS}))) == {Need.RECEIPTS}


def test_every_inconclusive_exemption_belongs_to_promised_rules() -> None:
    inconclusive = [exemption for exemption in Exemption if exemption.inconclusive]
    assert inconclusive
    assert all(exemption.codes <= set(Code) and exemption.sentence for exemption in inconclusive)


# clocks


def test_what_is_broken_only_as_recorded_or_only_with_clocks_corrected_is_unknown() -> None:
    off = (ClockShift("c2", -5_000_000_000, ("received_at",)),)
    owner, order = {Code.WRONG_OWNER: 9}, {Code.KEY_ORDER: 1}
    list_names = "the clock of c2 is 5.00 s behind the broker's: "

    def judged(recorded: dict[Code, int], corrected: dict[Code, int]) -> tuple[Verdict, tuple[str, ...]]:
        findings = [found(code.name, count) for code, count in recorded.items()]
        return verdict(replace(JUDGED, findings=findings, clocks=Clocks(off, recorded, corrected)))

    assert judged({}, {}) == (Verdict.VALID, ())
    assert judged(owner, {}) == (Verdict.UNKNOWN, (list_names + "9 findings as recorded, 0 with it corrected",))
    assert judged({}, order) == (Verdict.UNKNOWN, (list_names + "0 findings as recorded, 1 with it corrected",))
    assert judged(owner, owner)[0] is Verdict.INVALID
    assert judged(owner | order, order) == (
        Verdict.INVALID,
        (list_names + "10 findings as recorded, 1 with it corrected",),
    )


def test_a_rule_that_a_clock_explains_is_unknown_and_says_so() -> None:
    clocks = Clocks(
        (ClockShift("c2", -5_000_000_000, ("received_at",)),), {Code.WRONG_OWNER: 9, Code.LOST: 1}, {Code.LOST: 1}
    )
    some = replace(JUDGED, findings=[found("WRONG_OWNER", 9), found("LOST")], clocks=clocks)
    summaries = {s.code: (s.status, s.verdict, s.note) for s in build_code_summaries(some)}
    assert summaries["WRONG_OWNER"] == ("unknown", "unknown", "no findings after the clocks are corrected")
    assert summaries["LOST"] == ("violated", "invalid", "")
