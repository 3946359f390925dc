"""Known upstream faults: each ticket is seen to fit a finding, and not to fit one that differs in one circumstance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
import yaml

from subreplay.audit import sums
from subreplay.audit.codes import Code
from subreplay.audit.explain.findings import Explainer
from subreplay.audit.explain.upstream_faults import Circumstance, load_faults, parse_faults
from subreplay.audit.findings import make_violations
from subreplay.audit.routing import Routing
from subreplay.audit.rules.partitions import FIRST_MESSAGES, find_keys_in_two_partitions
from subreplay.audit.rules.registry import RULES, find_rule_statuses
from subreplay.audit.terms import Terms
from subreplay.reports.assemble.finding_views import build_code_summaries
from subreplay.reports.figures import Figures
from subreplay.reports.finding_data import CodeSummary
from subreplay.rows.model.tables import VIOLATIONS
from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.base import Policy
from subreplay.whatif.fair_share import find_connected_intervals
from subreplay.whatif.message_assignment import ScenarioPlan
from tests.audit.rules.test_every_rule import (
    HELD,
    HOME,
    IDLE,
    NACKS,
    SOON,
    THRICE,
    Story,
    Told,
    of_key,
    on_dead_letter_topic,
)
from tests.support.history import History, auto_split, history
from tests.support.pure import audit_by, judge_of

WIDTH = 60_000_000_000
KEY_SHARED, OLDER, NEWER = auto_split(), auto_split("pulsar-3.2"), auto_split("pulsar-4.2")
SHARED, STICKY = make_policy("pulsar.shared", "pulsar-4.0"), make_policy("pulsar.key_shared.sticky", "pulsar-4.0")
RANGE, COOPERATIVE = make_policy("kafka.range", "kafka-4.0"), make_policy("kafka.cooperative_sticky", "kafka-4.0")
RING = make_policy("pulsar.key_shared.consistent_hash", "pulsar-2.10")
STRICT, COMPACTED = Terms(tick=0), Terms(compacted=True)


def failover(profile: str = "pulsar-4.0") -> Policy:
    return make_policy("pulsar.failover", profile)


def exclusive(profile: str = "pulsar-4.0") -> Policy:
    return make_policy("pulsar.exclusive", profile)


def beside(log: str, story: str, partition: int) -> Callable[[History], History]:
    """Another partition of the topic, with a history of its own."""

    def change(tables: History) -> History:
        other = history(log, story, partition)
        return {name: pa.concat_tables([table, other[name]]) for name, table in tables.items()}

    return change


def summaries(case: Story | Told) -> list[CodeSummary]:
    """What a report says of each rule."""
    if isinstance(case, Told):
        plan, rows, rule_status = ScenarioPlan("", case.policy, {}), [], find_rule_statuses(case.policy, case.terms)
        found = make_violations(case.findings, "sub", RULES, rule_status)
        last = 0
    else:
        tables = case.change(history(case.log, case.story, case.partition))
        judge = judge_of(case.policy, tables, case.terms)
        audited = audit_by(judge, tables)
        rows = [*Explainer(judge, "sub").explain_violations(audited.to_batches())]
        found = pa.Table.from_batches(rows, VIOLATIONS)
        plan = ScenarioPlan("", case.policy, {scope: d.timeline for scope, d in judge.dispatchers.items()})
        last = judge.last
    worst = sums.select_worst(found, 1_000, WIDTH, 1_000)
    counts = [{"window": 0, "code": row["code"], "excuse": 0, "consumer": row["consumer"], "count": 1} for row in worst]
    extent = {"first": 0, "last": last, "messages": 1, "deliveries": 1}
    figures = Figures(
        "t",
        (),
        extent,
        WIDTH,
        plan,
        find_connected_intervals(plan.timelines.values(), last + 1),
        findings=counts,
        worst=worst,
        terms=case.terms,
    )
    return [*build_code_summaries(figures)]


def tickets(case: Story | Told) -> set[str]:
    return {fault.ticket for summary in summaries(case) for fault in summary.incidents}


def in_partitions(policy: Policy, *producers: str) -> Told:
    """A key that each producer sent to a partition of its own."""
    rows = [of_key(i) | {"producer": producer} for i, producer in enumerate(producers)]
    return Told((*find_keys_in_two_partitions(pa.Table.from_pylist(rows, schema=FIRST_MESSAGES)),), policy)


HALF = 500_000_000
WAITING_CODES = Terms(stalled_after=HALF, late_after=HALF, stuck_after=HALF)
PROMPT = Terms(tick=0, stalled_after=HALF, late_after=HALF, stuck_after=HALF)
LIMITED = Terms(stalled_after=HALF, late_after=HALF, stuck_after=HALF, max_unacked_per_consumer=5)
CHUNKS, UNCHUNKED = "n1%0/2 n2%1/2 n3", "n1 n2 n3"
LEFTOVER, PILED = "+C1 n1>C1 n1! -C1 +C2 ~100 n1^", "+C1 +C2 n1>C1 n1! ~100 n1^"
LATER = "+C1 n1>C1 n1! ~200 n2>C1 n2!"
TOGETHER = "+C1 +C2 n1>C1 n1! ~200 n2>C1 n2!"
FIVE, AGAIN_ALL = "a1 a2 a3 a4 a5", "a2>C1 a2! a3>C1 a3! a4>C1 a4! a5>C1 a5!"
READ_AGAIN = f"+C1 a1>C1 a1! {AGAIN_ALL} -C1 ~{{}} +C1 {AGAIN_ALL}"
GROUP_AGAIN = f"+C1 =C1 a1>C1 a1! {AGAIN_ALL} C1!5 /C1 -C1 ~{{}} +C1 =C1 {AGAIN_ALL} C1!5"
ACKNOWLEDGED = "+C1 a1>C1 a2>C1 a1! a2!"
SWAPPED = "+C1 +C2 a2>C2 a1>C2 a1! a2!"
LEFT = "+C1 +C2 +C3 -C3 n1>C1 n1! ~250 n2>C1 n2!"
ASTRAY = "a3>C2 a3! a4>C2 a4!"
REJOINED, JOINED = "+C1 a1>C1 a1! -C1 ~5 +C1", "+C1 n1>C1 n1! ~300 n2>C1 n2!"
SERVED = beside("n1 n2", "+C1 n1>C1 n1! -C1 ~5 +C1 ~300 n2>C1 n2!", 1)  # the topic's other partition goes on
SKIPPED = "+C1 n1>C1 n1! -C1 ~5 +C1 a2>C1 a2!"
NAMESAKES = "+C1@x +C1@y +C1@z {} z1>C1@x z1! ~250 z2>C1@x z2!"
AGAIN = "+C1 a1>C1 a1! -C1 ~5 +C1 a1>C1"
HANDED_OVER = "+C1 +C2 =C1 a1>C1 C1!!1 a2>C1 {} =C2 a2>C2 C2!2"

# Of each ticket a finding that looks like it, and one that does not: another release, or without a circumstance
CASES: dict[str, tuple[Story | Told, Story | Told]] = {
    "apache/pulsar#23870": (
        Story("a1 a2", SWAPPED),
        Story("a1 a2", "+C1 a2>C1 a1>C1 a1! a2!"),  # one consumer: no hash is drained
    ),
    "apache/pulsar#23307": (
        Story("a1 a2", "+C1 +C2 a2>C2 -C2 a1>C1 a1! a2>C1 a2!", OLDER),
        Story("a1 a2", SWAPPED, OLDER),  # nobody came or left
    ),
    "apache/pulsar#14902": (
        Story("a1 a2 n1", "+C1 a1>C1 +C2 ~100 a1! a2>C2 a2! n1>C1 n1!", OLDER, SOON),
        Story("a1 a2", HELD.format(100), NEWER, SOON),  # PIP-379 is there
    ),
    "apache/pulsar#20885": (
        Story("a1 n1 n2", IDLE.format(250), OLDER, partition=0),
        Story("a1 n1 n2", IDLE.format(250), OLDER),  # not partitioned
    ),
    "apache/pulsar#20637": (
        Story("a1 a3 a4", f"+C1 +C2 a1>C1 a1! {ASTRAY}", failover("pulsar-3.2"), partition=2),
        Story("a1 a3 a4", f"+C1 +C2 a1>C1 a1! {ASTRAY}", failover(), partition=2),  # another release
    ),
    "apache/pulsar#15189": (
        Story("a1", "+C1 +C2 a1>C1 a1!", failover("pulsar-3.2"), partition=1),
        Story("a1", "+C1 +C2 a1>C1 a1!", failover(), partition=1),  # another release
    ),
    "apache/pulsar#14721": (
        Story("a1+300", "+C1 ~180 a1>C1 a1!", SHARED, STRICT),
        Story("a1+300", "+C1 ~80 a1>C1 a1!", SHARED),  # more than a tick before its time, delays are not strict
    ),
    "apache/pulsar#14982": (
        Story("a1,a2", "+C1 a1>C1 a2>C1 a1! -C1 ~5 +C1 a1>C1 a2>C1 a2!", SHARED),
        Story("a1,a2", "+C1 a1>C1 a2>C1 a1! a2? a1>C1 a2>C1 a2!", SHARED),  # the client asked for it
    ),
    "apache/pulsar#24730": (
        Story("a1", "+C1[0-9,60000-65535] a1>C1 a1!", STICKY),
        Story("a1 n1", "+C1[33000-65535] +C2[0-32999] a1>C1 a1! n1>C1 n1!", STICKY),  # it is another consumer's
    ),
    "apache/pulsar#23845": (
        Story("a1 n1 n2", LEFT),
        Story("a1 n1 n2", IDLE.format(250)),  # nobody left
    ),
    "apache/pulsar#26164": (
        Story("a1 a2", REJOINED, failover(), partition=0, change=SERVED),
        Story("a1 a2", "+C1 a1>C1 a1!", failover(), partition=0, change=beside("n1 n2", JOINED, 1)),  # nobody left
    ),
    "apache/pulsar#24722": (
        Story("n1 a1 a2", SKIPPED),
        Story("n1 a1 a2", "+C1 n1>C1 n1! a2>C1 a2!"),  # the topic stayed where it was
    ),
    "apache/pulsar#25998": (
        Story("a1 a2", REJOINED, exclusive(), COMPACTED, 0, SERVED),
        Story("a1 a2", REJOINED, exclusive(), partition=0, change=SERVED),  # not compacted
    ),
    "apache/pulsar#21187": (
        Story("a1", AGAIN, exclusive("pulsar-3.2"), COMPACTED),
        Story("a1", AGAIN, exclusive("pulsar-3.2")),  # not compacted
    ),
    "apache/pulsar#10750": (
        Story("a1 z1 z2", NAMESAKES.format("-C1@z"), RING),
        Story("a1 z1 z2", NAMESAKES.format("~1"), RING),  # nobody left
    ),
    "apache/pulsar#18237": (
        Story("n1 a1 a2", SKIPPED, auto_split("pulsar-2.10")),
        Story("n1 a1 a2", "+C1 n1>C1 n1! a2>C1 a2!", auto_split("pulsar-2.10")),  # the topic stayed where it was
    ),
    "apache/pulsar#26395": (
        Story(CHUNKS, LEFTOVER, SHARED, WAITING_CODES),
        Story(CHUNKS, "+C1 n1>C1 n1! ~100 n1^", SHARED, WAITING_CODES),  # nobody left
    ),
    "apache/pulsar#25620": (
        Story(CHUNKS, PILED, SHARED, WAITING_CODES),
        Story(UNCHUNKED, PILED, SHARED, WAITING_CODES),
    ),
    "apache/pulsar#26454": (
        Story(UNCHUNKED, PILED, SHARED, WAITING_CODES),
        Story(UNCHUNKED, PILED, KEY_SHARED, WAITING_CODES),  # another dispatcher
    ),
    "apache/pulsar#21104": (
        Story(UNCHUNKED, PILED, make_policy("pulsar.shared", "pulsar-3.2"), WAITING_CODES, 0),
        Story(UNCHUNKED, PILED, make_policy("pulsar.shared", "pulsar-3.2"), WAITING_CODES),  # not partitioned
    ),
    "apache/pulsar#22657": (
        Story(UNCHUNKED, PILED, SHARED, LIMITED),
        Story(UNCHUNKED, PILED, SHARED, WAITING_CODES),  # the limit is far away
    ),
    "apache/pulsar#15397": (
        Story("n1 n2+200", LATER, auto_split("pulsar-2.10"), PROMPT),
        Story("n1 n2", LATER, auto_split("pulsar-2.10"), PROMPT),  # not delayed
    ),
    "apache/pulsar#21554": (
        Story("n1 n2+200", TOGETHER, KEY_SHARED, PROMPT),
        Story("n1 n2", TOGETHER, KEY_SHARED, PROMPT),  # not delayed
    ),
    "apache/pulsar#25996": (
        Story("n1 n2+200", LATER, NEWER, PROMPT),
        Story("n1 n2+200", "+C1 n1>C1 n1! ~400 n2>C1 n2!", NEWER, WAITING_CODES),  # delays are not strict
    ),
    "apache/pulsar#749": (
        Story(FIVE, READ_AGAIN.format(5), SHARED),
        Story(FIVE, "+C1 a1>C1 a1! a2>C1 a2! -C1 ~5 +C1 a2>C1", SHARED),  # one message, not all from a position on
    ),
    "apache/pulsar#23910": (
        Story(FIVE, READ_AGAIN.format(5), exclusive()),
        Story(FIVE, READ_AGAIN.format(5), exclusive("pulsar-4.2")),  # another release
    ),
    "apache/pulsar#21544": (
        Story(FIVE, READ_AGAIN.format(5), make_policy("pulsar.shared", "pulsar-2.10")),
        Story(FIVE, READ_AGAIN.format(5), auto_split("pulsar-2.10")),  # another dispatcher
    ),
    "KAFKA-4682": (
        Story(FIVE, GROUP_AGAIN.format(8 * 8_640_000), RANGE),
        Story(FIVE, GROUP_AGAIN.format(50), RANGE),  # no pause of a week
    ),
    "apache/pulsar#22691": (
        Story("a1", "+C1 a1>C1 a1!!"),
        Story("a1", "+C1 a1>C1 a1!"),
    ),
    "apache/pulsar#23943": (
        Story("a1", "+C1 a1>C1 a1>C1*1 a1!", SHARED),
        Story("a1", "+C1 a1>C1 a1>C1*1 a1!", make_policy("pulsar.shared", "pulsar-4.2")),  # another release
    ),
    "apache/pulsar#1017": (
        Story("a1", "+C1 a1>C1 a1!", SHARED, Terms(routing=Routing(2, why="all are where BoostHash does")), 1 - HOME),
        Story("a1", "+C1 a1>C1 a1!", SHARED, Terms(routing=Routing(2, why="the number changed")), 1 - HOME),
    ),
    "apache/pulsar#23603": (
        in_partitions(KEY_SHARED, "p", "p"),
        in_partitions(KEY_SHARED, "p", "q"),
    ),
    "apache/pulsar#26125": (
        Story("a1,a2", ACKNOWLEDGED, SHARED, THRICE, change=on_dead_letter_topic(300, 0)),
        Story("a1 a2", ACKNOWLEDGED, SHARED, THRICE, change=on_dead_letter_topic(300)),  # no batch
    ),
    "apache/pulsar-site#1117": (
        Story("a1", "+C1 a1>C1 a1? a1>C1*1 a1? a1>C1 a1? a1>C1*1 a1? a1>C1*2 a1?", SHARED, THRICE),
        Story("a1", NACKS, SHARED, THRICE),  # the count never rose
    ),
    "apache/pulsar-client-node#368": (
        Story("a1", NACKS, SHARED, THRICE),
        Story("a1", "+C1 a1>C1 a1? a1>C1*1 a1? a1>C1 a1? a1>C1*1 a1? a1>C1*2 a1?", SHARED, THRICE),  # it fell
    ),
    "confluentinc/librdkafka#2782": (
        Story("a1 a2", "+C1 +C2 =C1 a1>C1 a2>C1 C1!2 /C1 =C2 C2!1", RANGE),
        Story("a1 a2", "+C1 =C1 a1>C1 a2>C1 C1!2 C1!1", RANGE),  # one consumer: no rebalance
    ),
    "akka/alpakka-kafka#118": (
        Story("a1", "+C1 +C2 =C1 a1>C1 C2!1", RANGE),
        Story("a1", "+C1 +C2 =C1 a1>C1 C2?1", RANGE),  # the coordinator refused it
    ),
    "dpkp/kafka-python#1589": (
        Story("a1 a2", HANDED_OVER.format("/C1"), RANGE),
        Story("a1 a2", "+C1 +C2 =C1 a1>C1 C1!1 /C1 =C2 a2>C2 C2!2", RANGE),  # it was committed in time
    ),
    "confluentinc/librdkafka#3340": (
        Story("a1 a2", "+C1 +C2 =C1 a1>C1 C1!1 /C1 =C2 a2>C1", RANGE),
        Story("a1 a2", "+C1 +C2 =C1 a1>C1 C1!1 /C1 =C2 a2>C2", RANGE),
    ),
    "confluentinc/librdkafka#4637": (
        Story("a1 a2", "+C1 =C1 a1>C1 a2>C1 a1>C1 C1!2", COOPERATIVE),
        Story("a1 a2", "+C1 =C1 a1>C1 a2>C1 a1>C1 C1!2", RANGE),  # another assignor
    ),
    "aio-libs/aiokafka#848": (
        Story("a1 a2", HANDED_OVER.format("_C1"), RANGE),
        Story("a1 a2", HANDED_OVER.format("/C1"), RANGE),  # it was revoked in time
    ),
    "zio/zio-kafka#1289": (
        Story("a1 a2", "+C1 =C1 a1>C1 C1!!2 a2>C1", RANGE),
        Story("a1 a2", "+C1 =C1 a1>C1 a2>C1 C1!!2", RANGE),
    ),
    "tulios/kafkajs#1154": (
        in_partitions(RANGE, "p", "q"),
        in_partitions(KEY_SHARED, "p", "q"),  # Pulsar's clients have hashes of their own
    ),
}  # fmt: skip
every = pytest.mark.parametrize("ticket", [fault.ticket for fault in load_faults()])


@every
def test_a_ticket_fits_a_finding_that_has_its_signature(ticket: str) -> None:
    assert ticket in tickets(CASES[ticket][0])


@every
def test_a_ticket_does_not_fit_a_finding_that_differs_in_one_circumstance(ticket: str) -> None:
    assert ticket not in tickets(CASES[ticket][1])


def test_every_ticket_has_its_cases() -> None:
    assert set(CASES) == {fault.ticket for fault in load_faults()}
    assert len(CASES) >= 25


@pytest.mark.parametrize("ticket", [one.ticket for one in load_faults() if "kafka-4.0" not in one.profiles])
def test_a_ticket_fits_no_release_line_but_those_it_names(ticket: str) -> None:
    case = CASES[ticket][0]
    assert ticket not in tickets(case._replace(policy=make_policy(case.policy.name, "documented")))


def test_a_finding_says_which_ticket_it_resembles_and_where_it_is_fixed() -> None:
    (summary,) = (one for one in summaries(CASES["apache/pulsar#23870"][0]) if one.incidents)
    (view,) = summary.incidents
    assert summary.code == "KEY_ORDER"
    assert view.sentence == "looks like apache/pulsar#23870, fixed in 4.0.3"
    assert view.url == "https://github.com/apache/pulsar/issues/23870"
    assert (view.findings, [finding.tickets for finding in summary.worst]) == (1, [("apache/pulsar#23870",)])


def test_predicted_deliveries_look_like_no_ticket() -> None:
    case = CASES["apache/pulsar#22691"][0]
    assert tickets(case)
    (known,) = (s for s in summaries(case) if s.incidents)
    assert known.source == "observed"


ENTRY: dict[str, Any] = {
    "ticket": "apache/pulsar#1", "title": "It stops", "attribution": "broker", "codes": ["LOST"],
    "policies": ["pulsar.shared"], "profiles": ["pulsar-4.0"], "affected": None, "fixed": "unknown",
    "evidence": "The ticket is open.", "advice": "Upgrade.",
}  # fmt: skip


def written(**changes: Any) -> str:
    return yaml.safe_dump([ENTRY | changes])


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"codes": ["LOSST"]}, "no such code: LOSST"),
        ({"policies": ["pulsar.sharde"]}, "no such policy: pulsar.sharde"),
        ({"profiles": ["pulsar-1.0"]}, "no such profile: pulsar-1.0"),
        ({"circumstances": ["raining"]}, "circumstances"),
        ({"ticket": "23870"}, "not a ticket"),
        ({"fixed": "soon"}, "fixed"),
        ({"fixd": ["4.0.3"]}, "fixd"),
        ({"advice": ""}, "advice"),
    ],
)
def test_an_entry_with_an_unknown_key_or_name_is_refused(changes: dict[str, Any], why: str) -> None:
    assert len(parse_faults(written())) == 1
    with pytest.raises(ValueError, match=why):
        parse_faults(written(**changes))


def test_two_entries_of_one_ticket_are_refused() -> None:
    with pytest.raises(ValueError, match="two entries of one ticket: apache/pulsar#1"):
        parse_faults(yaml.safe_dump([ENTRY, ENTRY]))


def test_what_upstream_does_not_state_is_said_to_be_unknown() -> None:
    (entry,) = parse_faults(written())
    assert entry.sentence == "looks like apache/pulsar#1, no release that fixes it is known"
    assert entry.releases == "Upstream does not name the affected releases; no release that fixes it is known."
    (jira,) = parse_faults(written(ticket="KAFKA-4682", fixed=["2.1.0", "2.2.0"]))
    assert jira.url == "https://issues.apache.org/jira/browse/KAFKA-4682"
    assert jira.sentence.endswith("fixed in 2.1.0 and 2.2.0")


def test_every_circumstance_has_a_meaning_and_every_code_of_an_entry_exists() -> None:
    assert all(circumstance.meaning for circumstance in Circumstance)
    assert {code for fault in load_faults() for code in fault.codes} <= set(Code)
