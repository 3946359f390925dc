"""Which scenario a what-if recommends, why, and at which price."""

from __future__ import annotations

from dataclasses import replace

import pytest

from subreplay.reports.assemble.recommendations import MAX_FINALISTS, recommend_scenario
from subreplay.reports.data import Recommendation, ScenarioConsumer, ScenarioView
from subreplay.reports.dispatch_data import DispatchView, Drain, Early, Latency, Outcomes

MS, SECOND = 10**6, 10**9


def scenario(name: str, share: float = 0.5, **changes: object) -> ScenarioView:
    """A scenario with two consumers and 1,000 messages that keeps the order of keys."""
    rows = (ScenarioConsumer("a", 500, 0, 9, share, 1.0), ScenarioConsumer("b", 500, 0, 9, 1 - share, 1.0))
    view = ScenarioView(
        name, "pulsar.key_shared.consistent_hash", "pulsar-4.0", 2, 1_000, share, 0.5, share / 0.5, share / 0.5, 90,
        0.01, 100.0, 1, 0.1, 0.1, 9, 0, "", rows, order="key",
    )  # fmt: skip
    return replace(view, **changes)  # type: ignore[arg-type]


def replay(name: str, p99: int | None = SECOND, **changes: object) -> DispatchView:
    """A dispatch replay that acknowledges all messages."""
    latency = Latency(1_000, 1, p99, p99)
    view = DispatchView(
        name, "", "", "5 ms a message", None, (), latency, latency, (), 9, "", Drain(1, SECOND, (), ""), 0, (), 0, (),
        0, Outcomes(1_000, 1_000, 0, 0, 0, 0, 0, 0), 0, 0, (),
    )  # fmt: skip
    return replace(view, **changes)  # type: ignore[arg-type]


def recommend(*pairs: tuple[ScenarioView, DispatchView] | ScenarioView) -> Recommendation:
    views = [one if isinstance(one, ScenarioView) else one[0] for one in pairs]
    found = recommend_scenario(views, [one[1] for one in pairs if not isinstance(one, ScenarioView)])
    assert found is not None
    return found


def pair(name: str, p99: int | None = SECOND, **changes: object) -> tuple[ScenarioView, DispatchView]:
    """A scenario and its replay; the changes are those of the replay."""
    return scenario(name), replay(name, p99, **changes)


def test_the_lowest_latency_is_recommended_with_both_figures() -> None:
    found = recommend(pair("now", 149 * MS), pair("new", 67 * MS))
    assert (found.scenario, found.choice) == ("new", 'Use "new"')
    assert found.reason == '99% of the messages reach the application within 67 ms instead of 149 ms with "now".'
    assert found.price == ""


def test_without_a_replay_the_busiest_consumer_decides() -> None:
    found = recommend(scenario("kafka.range", 0.48), scenario("kafka.roundrobin", 0.21))
    assert found.choice == "Use kafka.roundrobin"
    assert found.reason.startswith(
        "The busiest consumer gets 21.0% of the messages instead of 48.0% with kafka.range; "
    )


def test_a_better_scenario_states_what_gets_worse() -> None:
    moving = replace(scenario("new", 0.2, traffic_moved=0.4, keys_rerouted=24, traffic_rerouted=0.25), consumers=6)
    found = recommend(scenario("now", 0.5), moving)
    assert found.price == (
        "24 keys with 25.0% of the messages go to another partition and lose their order until the old one is "
        "consumed; it has 6 consumers instead of 2; 40.0% of the traffic moves to another consumer at membership "
        "changes instead of 10.0%."
    )


def test_the_baseline_is_kept_unless_another_one_is_clearly_better() -> None:
    found = recommend(scenario("now", 0.5), scenario("new", 0.49), scenario("bad", 0.9))
    assert found.scenario == "now"
    assert found.reason.startswith('No other scenario is better: with "now" the busiest consumer gets 50.0%')


def test_equal_scenarios_are_said_not_to_differ() -> None:
    found = recommend(pair("now"), pair("new", 99 * SECOND // 100))
    assert (found.scenario, found.choice) == ("", "The 2 scenarios do not differ in what matters")
    assert "within 5% of that" in found.reason


def test_one_scenario_is_compared_with_nothing() -> None:
    found = recommend(scenario("now"))
    assert (found.scenario, found.finalists) == ("", ("now",))
    assert found.choice == 'There is nothing to compare with "now"'


def test_fewer_consumers_are_recommended_where_the_latency_is_equal() -> None:
    many = (scenario("many", 0.1, consumers=10), replay("many"))
    found = recommend(many, pair("few"))
    assert found.scenario == "few"
    assert found.reason == 'It has 2 consumers instead of 10 with "many".'
    assert found.price.startswith("The busiest consumer gets 50.0% of the messages instead of 10.0%; ")


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ({"outcomes": Outcomes(1_000, 999, 1, 0, 0, 0, 0, 0)}, "1 of 1,000 messages are dead-lettered"),
        ({"outcomes": Outcomes(1_000, 990, 0, 10, 0, 0, 0, 0)}, "10 of 1,000 messages expire"),
        ({"outcomes": Outcomes(1_000, 980, 0, 0, 20, 0, 0, 0)}, "20 of 1,000 messages are dropped"),
        ({"drain": Drain(9, None, (), "")}, "the backlog never drains"),
        ({"early": Early(4, 9, SECOND, SECOND)}, "4 of 9 delayed messages come 1 s too early"),
    ],
)
def test_a_faster_scenario_with_a_fault_is_not_recommended_and_its_fault_is_named(
    fault: dict[str, object], text: str
) -> None:
    found = recommend(pair("now"), pair("fast", MS, **fault), pair("slow", 9 * SECOND))
    assert found.scenario == "now"
    assert found.reason.endswith(f'With "fast" 99% of the messages reach the application within 1 ms, but {text}.')


@pytest.mark.parametrize("order", ["key", "partition"])
def test_a_scenario_without_order_ranks_behind_those_with_order(order: str) -> None:
    shared = scenario("shared", 0.1, order="none")
    found = recommend(scenario("now", order=order), shared, scenario("slow", 0.9, order=order))
    assert found.scenario == "now"
    assert found.reason.endswith("but it keeps no order.")


def test_order_that_nobody_promised_is_not_missed() -> None:
    assert recommend(scenario("now", order="none"), scenario("new", 0.1, order="none")).price == ""


def test_a_scenario_that_keeps_less_order_is_recommended_with_that_price() -> None:
    found = recommend(scenario("failover", order="partition"), scenario("keys", 0.2))
    assert (found.scenario, found.price) == ("keys", "It keeps the order of each key, not of a partition.")


def test_where_all_scenarios_lose_messages_the_loss_is_the_price() -> None:
    lossy = {"outcomes": Outcomes(1_000, 995, 5, 0, 0, 0, 0, 0)}
    found = recommend(pair("now", **lossy), pair("new", MS, **lossy))
    assert (found.scenario, found.price) == ("new", "5 of 1,000 messages are dead-lettered.")


def test_a_backlog_that_never_drains_is_the_first_reason_and_is_explained() -> None:
    found = recommend(
        pair("now", None, drain=Drain(9, None, (), "It never drains. 4 of 9 are never received.")), pair("new")
    )
    assert found.reason.startswith(
        'With "now" the backlog never drains: 4 of 9 are never received. 99% of the messages '
    )


def test_a_slower_scenario_that_loses_nothing_names_the_loss_of_the_others() -> None:
    lossy = {"outcomes": Outcomes(1_000, 995, 0, 0, 5, 0, 0, 0)}
    found = recommend(pair("now", **lossy), pair("new"))
    assert (found.scenario, found.reason) == ("new", 'With "now" 5 of 1,000 messages are dropped.')
    found = recommend(pair("now", MS, **lossy), pair("new"))
    assert found.reason == (
        'With "now" 99% of the messages reach the application within 1 ms, but 5 of 1,000 messages are dropped.'
    )
    assert found.price == "99% of the messages reach the application within 1 s instead of 1 ms."


def test_idle_consumers_are_part_of_the_price() -> None:
    idle = ScenarioConsumer("c", 0, 0, 0, 0.0, 0.0, "there were fewer partitions than consumers")
    better = scenario("new", 0.2)
    found = recommend(scenario("now"), replace(better, per_consumer=(*better.per_consumer, idle)))
    assert found.price == "1 of 3 consumers is idle: there were fewer partitions than consumers."


def test_the_finalists_are_the_recommended_one_the_baseline_and_the_next() -> None:
    found = recommend(
        *(scenario(name, share) for name, share in zip("abcdef", (0.9, 0.5, 0.8, 0.6, 0.7, 0.4), strict=True))
    )
    assert found.finalists == ("f", "a", "b", "d")
    assert len(found.finalists) == MAX_FINALISTS


def test_a_scenario_that_serves_nobody_is_not_recommended() -> None:
    assert recommend_scenario([scenario("empty", 0.0)], ()) is None
    found = recommend(scenario("empty", 0.0), scenario("new"))
    assert (found.scenario, found.reason) == ("new", 'With "empty" no consumer receives a message.')
