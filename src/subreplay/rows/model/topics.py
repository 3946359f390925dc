"""Topic names, and the topics that one consumer subscribes to (documented rows L-TOPIC-1, L-TOPIC-2, L-PART-1)."""

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
        """The topic of a whole name, of ``tenant/namespace/topic`` or of ``topic`` in ``public/default``.

        Raises InputError naming the rule broken.
        """
        domain, tenant, namespace, local = _parts(text)
        if not local.strip() or "/" in local:
            raise _malformed(text, f"the topic's own name {local!r} must not be blank nor contain a slash")
        numbered = _PARTITION.fullmatch(local)  # "-partition-01" is part of a name, as for Pulsar
        if numbered:
            return cls(domain, tenant, namespace, numbered[1], int(numbered[2]))
        return cls(domain, tenant, namespace, local)

    def __str__(self) -> str:
        return self.scope.full_name

    @property
    def whole(self) -> TopicName:
        """The topic that this is a partition of, or the topic itself."""
        return replace(self, partition=-1)

    @property
    def scope(self) -> Scope:
        """What the dispatcher of this topic or partition serves."""
        return Scope(f"{self.domain}://{self.tenant}/{self.namespace}/{self.topic}", self.partition)

    def partitions(self, count: int) -> tuple[TopicName, ...]:
        """The internal topics of a topic with ``count`` partitions."""
        return tuple(replace(self, partition=number) for number in range(count))

    def selects(self, topic: TopicName) -> bool:
        """Whether a consumer of this topic is one of ``topic``: of all its partitions, or of the one that this is."""
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
        """A name with a regular expression instead of the topic's own name; short forms as in ``TopicName.parse``.

        Raises InputError naming the rule broken.
        """
        parts = _parts(text)
        try:
            re.compile(parts[-1])
        except re.error as error:
            raise _malformed(text, f"{parts[-1]!r} must be a regular expression: {error}") from None
        return cls(*parts)

    def selects(self, topic: TopicName) -> bool:
        """Whether the topic matches; a partition does if its topic does."""
        here = (topic.domain, topic.tenant, topic.namespace) == (self.domain, self.tenant, self.namespace)
        return here and re.fullmatch(self.expression, topic.topic) is not None


Selection: TypeAlias = TopicName | TopicPattern


def picked_up(
    selections: Iterable[Selection], appeared: Iterable[tuple[TopicName, Instant]], joined: Instant
) -> dict[Scope, Instant]:
    """From when a consumer that joined at ``joined`` is served each topic or partition that its selections name.

    A topic that appears later is picked up at once (a client that looks for new topics now and then is later). Of
    messages in different topics no order is promised.
    """
    wanted = tuple(selections)
    return {
        topic.scope: max(joined, since)
        for topic, since in appeared
        if any(selection.selects(topic) for selection in wanted)
    }


def _parts(text: str) -> tuple[str, str, str, str]:
    """Domain, tenant, namespace and the rest."""
    domain, path = text.split("://", 1) if "://" in text else ("persistent", text)
    parts = path.split("/", 2)
    if len(parts) == 1 and "://" not in text:
        parts = ["public", "default", *parts]
    if domain not in DOMAINS:
        raise _malformed(text, f"the domain must be {' or '.join(DOMAINS)}, not {domain!r}")
    if len(parts) < 3:
        raise _malformed(text, "it must have the form domain://tenant/namespace/topic, tenant/namespace/topic or topic")
    tenant, namespace, local = parts
    for part, name in (("tenant", tenant), ("namespace", namespace)):
        if not _NAME.fullmatch(name):
            raise _malformed(text, f"the {part} {name!r} must be of letters, digits and _-=:. only")
    return domain, tenant, namespace, local


def _malformed(text: str, rule: str) -> InputError:
    return InputError(f"invalid topic name {text!r}: {rule}")
