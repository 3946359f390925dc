"""Topics: rows L-TOPIC-1, L-TOPIC-2 and L-PART-1."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.errors import InputError
from subreplay.rows.model.rows import Instant, Scope
from subreplay.rows.model.topics import TopicName, TopicPattern, find_subscribed_topics
from subreplay.semantics.policies import make_policy
from tests.support.every_policy import histories
from tests.support.joins import fold


@pytest.mark.row("L-TOPIC-1")
@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("orders", "persistent://public/default/orders"),
        ("acme/shop/orders", "persistent://acme/shop/orders"),
        ("non-persistent://acme/shop/orders", "non-persistent://acme/shop/orders"),
        ("orders-partition-12", "persistent://public/default/orders-partition-12"),
    ],
)
def test_l_topic_1_short_forms_expand(text, whole):
    assert str(TopicName.parse(text)) == whole
    assert TopicName.parse(whole) == TopicName.parse(text)


@pytest.mark.row("L-TOPIC-1")
@pytest.mark.parametrize(
    ("text", "partition"),
    [("t-partition-0", 0), ("t-partition-1-partition-2", 2), ("t-partition-01", -1), ("t-partition-x", -1), ("t", -1)],
)
def test_l_topic_1_a_partition_is_a_number_at_the_end(text, partition):
    topic = TopicName.parse(text)
    assert (topic.partition, topic.scope.partition) == (partition, partition)
    assert topic.scope.full_name == f"persistent://public/default/{text}"


@pytest.mark.row("L-TOPIC-1")
@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("kafka://a/b/c", "the domain must be persistent or non-persistent, not 'kafka'"),
        ("a/b", "it must have the form domain://tenant/namespace/topic, tenant/namespace/topic or topic"),
        ("persistent://t", "it must have the form domain://tenant/namespace/topic"),
        ("persistent://a b/ns/t", "the tenant 'a b' must be of letters, digits and _-=:. only"),
        ("a//t", "the namespace '' must be of letters"),
        ("a/b/", "the topic's own name '' must not be blank nor contain a slash"),
        ("a/cluster/b/t", "the topic's own name 'b/t' must not be blank nor contain a slash"),
        ("", "the topic's own name '' must not be blank"),
    ],
)
def test_l_topic_1_a_malformed_name_is_reported_with_the_broken_rule(text, rule):
    with pytest.raises(InputError) as error:
        TopicName.parse(text)
    assert str(error.value).startswith(f"invalid topic name {text!r}: {rule}")


FINANCE = TopicPattern.parse("persistent://public/default/finance-.*")


@pytest.mark.row("L-TOPIC-2")
@pytest.mark.parametrize(
    ("topic", "selected"),
    [
        ("finance-eu", True),
        ("finance-eu-partition-3", True),
        ("finance", False),
        ("refinance-eu", False),
        ("public/other/finance-eu", False),
        ("non-persistent://public/default/finance-eu", False),
    ],
)
def test_l_topic_2_a_pattern_selects_whole_names_of_its_namespace(topic, selected):
    assert FINANCE.selects(TopicName.parse(topic)) == selected


@pytest.mark.row("L-TOPIC-2")
def test_l_topic_2_a_name_selects_itself_and_its_partitions():
    orders = TopicName.parse("orders")
    assert orders.selects(orders)
    assert orders.selects(TopicName.parse("orders-partition-7"))
    assert not TopicName.parse("orders-partition-7").selects(orders)
    assert not orders.selects(TopicName.parse("orders-2"))


@pytest.mark.row("L-TOPIC-2")
def test_l_topic_2_topics_that_appear_later_are_picked_up_from_then_on():
    appeared = [(TopicName.parse(name), Instant(at)) for name, at in (("finance-a", 1), ("finance-b", 9), ("x", 2))]
    a, b, x = (topic.scope for topic, _ in appeared)
    assert find_subscribed_topics([FINANCE], appeared, Instant(5)) == {a: Instant(5), b: Instant(9)}
    assert find_subscribed_topics([FINANCE, TopicName.parse("x")], appeared, Instant(5)) == {
        a: Instant(5), b: Instant(9), x: Instant(5)
    }  # fmt: skip


@pytest.mark.row("L-TOPIC-2")
def test_l_topic_2_a_pattern_must_be_a_regular_expression():
    with pytest.raises(InputError, match=r"'finance-\(' must be a regular expression"):
        TopicPattern.parse("finance-(")


@pytest.mark.row("L-PART-1")
def test_l_part_1_a_partitioned_topic_is_n_internal_topics():
    topics = TopicName.parse("orders").partitions(3)
    assert [str(topic) for topic in topics] == [f"persistent://public/default/orders-partition-{n}" for n in range(3)]
    assert {topic.whole for topic in topics} == {TopicName.parse("orders")}


@pytest.mark.row("L-PART-1")
@pytest.mark.parametrize("name", ["exclusive", "shared", "key_shared.auto_split", "key_shared.consistent_hash"])
@given(histories, st.integers(0, 9))
def test_l_part_1_a_partition_is_dispatched_as_a_topic_without_partitions_is(name, history, partition):
    policy = make_policy(f"pulsar.{name}", "documented")
    plain, part = (fold(policy, history, Scope("persistent://public/default/t", n)) for n in (-1, partition))
    assert [epoch.moves for epoch in part.epochs] == [epoch.moves for epoch in plain.epochs]
    assert part.consumers == plain.consumers
