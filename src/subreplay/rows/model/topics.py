"""Topic names, and the topics to which a consumer subscribes (documented rows L-TOPIC-1, L-TOPIC-2, L-PART-1)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from subreplay.errors import InputError
from subreplay.rows.model.rows import Instant, Scope

DOMAINS = ("persistent", "non-persistent")

_NAME = re.compile(r"[-=:.\w]+", re.ASCII)
_PARTITION = re.compile(r"(.+)-partition-(0|[1-9]\d*)", re.ASCII)


@dataclass(frozen=True, slots=True)
class TopicName:
    """``{persistent|non-persistent}://tenant/namespace/topic``; ``partition`` is -1 for a topic as a whole.

    Follows ``TopicName`` of pulsar-common (3.2.3, 4.x) without its legacy form, which names a cluster too.

    >>> TopicName.parse("orders-partition-3")
    TopicName(domain='persistent', tenant='public', namespace='default', topic='orders', partition=3)
    """

    domain: str
    tenant: str
    namespace: str
    topic: str
    partition: int = -1

    @classmethod
    def parse(cls, text: str) -> TopicName:
        """Parse a complete name, ``tenant/namespace/topic``, or ``topic`` in ``public/default``.

        Raises InputError that names the broken rule.
        """
        domain, tenant, namespace, local = _split_name(text)
        if not local.strip() or "/" in local:
            raise _make_error(text, f"the topic's own name {local!r} must not be blank nor contain a slash")
        numbered = _PARTITION.fullmatch(local)  # "-partition-01" is part of a name, as for Pulsar
        if numbered:
            return cls(domain, tenant, namespace, numbered[1], int(numbered[2]))
        return cls(domain, tenant, namespace, local)

    def __str__(self) -> str:
        return self.scope.full_name

    @property
    def whole(self) -> TopicName:
        """The topic of a partition, or the topic itself."""
        return replace(self, partition=-1)

    @property
    def scope(self) -> Scope:
        """The scope of this topic's or partition's dispatcher."""
        return Scope(f"{self.domain}://{self.tenant}/{self.namespace}/{self.topic}", self.partition)

    def partitions(self, count: int) -> tuple[TopicName, ...]:
        """Return the internal topics of a topic with ``count`` partitions."""
        return tuple(replace(self, partition=number) for number in range(count))

    def selects(self, topic: TopicName) -> bool:
        """Return whether a consumer of this topic also consumes ``topic``: it is this topic, or one of its
        partitions."""
        return topic == self or topic.whole == self


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """The topics of a namespace whose own names match ``expression`` as a whole.

    The specification of row L-TOPIC-2: no command reaches it, since a run names its topics.

    >>> pattern = TopicPattern.parse("persistent://public/default/finance-.*")
    >>> pattern.selects(TopicName.parse("finance-eu-partition-2")), pattern.selects(TopicName.parse("refinance-eu"))
    (True, False)
    """

    domain: str
    tenant: str
    namespace: str
    expression: str

    @classmethod
    def parse(cls, text: str) -> TopicPattern:
        """Parse a name with a regular expression as the topic's local name; short forms as in ``TopicName.parse``.

        Raises InputError that names the broken rule.
        """
        parts = _split_name(text)
        try:
            re.compile(parts[-1])
        except re.error as error:
            raise _make_error(text, f"{parts[-1]!r} must be a regular expression: {error}") from None
        return cls(*parts)

    def selects(self, topic: TopicName) -> bool:
        """Return whether the topic matches. A partition matches if its topic does."""
        same_namespace = (topic.domain, topic.tenant, topic.namespace) == (self.domain, self.tenant, self.namespace)
        return same_namespace and re.fullmatch(self.expression, topic.topic) is not None


Selection: TypeAlias = TopicName | TopicPattern


def find_subscribed_topics(
    selections: Iterable[Selection], appeared: Iterable[tuple[TopicName, Instant]], joined: Instant
) -> dict[Scope, Instant]:
    """Return when a consumer that joined at ``joined`` starts to receive messages of each topic or partition that its
    selections name.

    A topic that appears later is subscribed at once; a client that looks for new topics periodically is later. No order
    is promised between messages of different topics.
    """
    wanted = tuple(selections)
    return {
        topic.scope: max(joined, since)
        for topic, since in appeared
        if any(selection.selects(topic) for selection in wanted)
    }


def _split_name(text: str) -> tuple[str, str, str, str]:
    """Split a name into domain, tenant, namespace and the rest."""
    domain, path = text.split("://", 1) if "://" in text else ("persistent", text)
    parts = path.split("/", 2)
    if len(parts) == 1 and "://" not in text:
        parts = ["public", "default", *parts]
    if domain not in DOMAINS:
        raise _make_error(text, f"the domain must be {' or '.join(DOMAINS)}, not {domain!r}")
    if len(parts) < 3:
        raise _make_error(
            text, "it must have the form domain://tenant/namespace/topic, tenant/namespace/topic or topic"
        )
    tenant, namespace, local = parts
    for part, name in (("tenant", tenant), ("namespace", namespace)):
        if not _NAME.fullmatch(name):
            raise _make_error(text, f"the {part} {name!r} must be of letters, digits and _-=:. only")
    return domain, tenant, namespace, local


def _make_error(text: str, rule: str) -> InputError:
    return InputError(f"invalid topic name {text!r}: {rule}")
