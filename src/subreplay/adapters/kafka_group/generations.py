"""The generations of a Kafka group (epochs in the consumer protocol), and who owned which partition in each.

A classic generation gives out all partitions at once, and is in force until the next one is. Under the consumer
protocol each member moves to an epoch alone: a partition is its member's from the first record that assigns it to the
first that neither assigns nor revokes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from subreplay.adapters.kafka_group.members import AWAY, Mark, Presence, Row

_NO_LINE = {"prepared_at": None, "reason": None, "client_reason": None, "stabilized_at": None, "at": None}


def generations(records: Iterable[tuple[str, Row]], events: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows of table ``generations`` of one group, without its name, in order of time."""
    of_records, of_log = list(_recorded(records)), list(_logged(events))
    for row in of_records:
        same = [other for other in of_log if _number(other) == _number(row)]
        if same:
            other = min(same, key=lambda other: abs(_moment(other) - _moment(row)))
            of_log.remove(other)
            for name, value in other.items():
                if row.get(name) is None:
                    row[name] = value
            # the log knows better when it began; the records, since when it was in force
            row["evidence"] = "log and records"
            row["prepared_at"] = other["prepared_at"] or row["prepared_at"]
    return sorted([*of_records, *of_log], key=lambda row: (_moment(row), row["generation"]))


def _number(row: Mapping[str, Any]) -> tuple[str, int]:
    return row["protocol"], row["generation"]


def _moment(row: Mapping[str, Any]) -> int:
    times = (row["at"], row["stabilized_at"], row["prepared_at"])
    return next((time for time in times if time is not None), 0)


def _recorded(records: Iterable[tuple[str, Row]]) -> Iterator[dict[str, Any]]:
    """Generations that the records tell, each once."""
    latest: dict[str, Any] | None = None
    epochs: dict[int, dict[str, Any]] = {}
    here: set[str] = set()
    for table, row in records:
        at = row["record_time"]
        if table == "classic_groups" and not row["tombstone"]:
            if latest is None or latest["generation"] != row["generation"]:
                latest = _NO_LINE | {
                    "protocol": "classic", "generation": row["generation"], "assignor": row["protocol"],
                    "leader": row["leader"], "members": len(row["members"]), "stabilized_at": row["state_since"],
                    "at": at, "evidence": "records",
                }  # fmt: skip
                yield latest
        elif table == "classic_groups":
            latest = None
        elif table == "members":
            (here.discard if row["tombstone"] else here.add)(row["member_id"])
        elif table == "group_epochs" and not row["tombstone"]:
            epochs[row["epoch"]] = epoch = _NO_LINE | {
                "protocol": "consumer", "generation": row["epoch"], "prepared_at": at, "members": len(here),
                "evidence": "records",
            }  # fmt: skip
            yield epoch
        elif table == "target_epochs" and row["epoch"] in epochs:
            epochs[row["epoch"]]["at"] = at


def _logged(events: Iterable[Row]) -> Iterator[dict[str, Any]]:
    """Generations that the log tells."""
    preparing: Row | None = None
    latest: dict[str, Any] | None = None
    for event in events:
        kind, number = event["event"], event["generation"]
        row = _NO_LINE | {"protocol": event["protocol"], "generation": number, "evidence": "log"}
        if kind == "preparing":
            preparing = event
        elif kind in ("stabilized", "empty"):
            latest = row | {"stabilized_at": event["at"], "members": event["members"]}
            if kind == "empty":
                latest |= {"members": 0, "at": event["at"]}
            if preparing is not None:
                latest["prepared_at"] = preparing["at"]
                latest |= {name: preparing[name] for name in ("reason", "client_reason")}
            preparing = None
            yield latest
        elif kind == "epoch_bumped":
            latest = row | {"prepared_at": event["at"]}
            yield latest
        elif kind in ("assignment", "target_computed") and latest is not None and latest["generation"] == number:
            latest |= {"at": event["at"], "assignor": event["assignor"]}
            if kind == "assignment":
                latest["leader"] = event["member_id"]


class _TopicPartition(NamedTuple):
    """A partition; ``topic`` is a topic's name, or its id under the consumer protocol."""

    topic: str
    partition: int


class Owners:
    """Follows who owns which partition of one group; ``rows`` are of table ``owners``, without the group's name."""

    def __init__(self, topic_names: Mapping[str, str], gone: Iterable[Presence]) -> None:
        self.names = dict(topic_names)
        self.rows: list[dict[str, Any]] = []
        self.held: dict[str, dict[_TopicPartition, dict[str, Any]]] = {}
        self.departures: dict[str, list[int]] = {}
        for presence in gone:
            if presence.gone is not None and presence.protocol == "classic":
                self.departures.setdefault(presence.member, []).append(presence.gone["at"])

    def apply(self, table: str, row: Row) -> None:
        """The next record."""
        mark = Mark(row["record_time"], row["record_offset"])
        if table == "classic_groups":
            held = _classic(row["members"] or ())
            for member in [*self.held, *held]:
                self._hold(member, row["generation"], held.get(member, {}), mark)
        elif table == "current_assignments":
            states: dict[_TopicPartition, str] = {}
            for name in ("revoking", "assigned"):
                states |= {_TopicPartition(p["topic_id"], p["partition"]): name for p in row[name] or ()}
            if row["epoch"] == AWAY:
                states = dict.fromkeys(states, "away")
            self._hold(row["member_id"], row["epoch"], states, mark, by_id=True)
        elif table == "topic_metadata":
            self.names |= {topic["topic_id"]: topic["topic"] for topic in row["topics"] or ()}

    def named(self) -> list[dict[str, Any]]:
        """All rows, with the names of their topics as far as they are known."""
        for row in self.rows:
            if row["topic_id"] is not None:
                row["topic"] = self.names.get(row["topic_id"])
            left = [at for at in self.departures.get(row["consumer"], ()) if at >= row["from"]]
            if left and (row["to"] is None or left[0] < row["to"]):
                row["to"] = left[0]
        return self.rows

    def _hold(
        self, member: str, generation: int, states: Mapping[_TopicPartition, str], mark: Mark, by_id: bool = False
    ) -> None:
        held = self.held.setdefault(member, {})
        for topic_partition, row in list(held.items()):
            if (row["generation"], row["state"]) != (generation, states.get(topic_partition)):
                row |= {"to": mark.at, "to_offset": mark.offset}
                del held[topic_partition]
        for topic_partition, state in states.items():
            if topic_partition not in held:
                held[topic_partition] = {
                    "topic": None if by_id else topic_partition.topic,
                    "topic_id": topic_partition.topic if by_id else None, "partition": topic_partition.partition,
                    "consumer": member, "generation": generation, "state": state,
                    "from": mark.at, "to": None, "from_offset": mark.offset, "to_offset": None,
                }  # fmt: skip
                self.rows.append(held[topic_partition])


def _classic(members: Iterable[Row]) -> dict[str, dict[_TopicPartition, str]]:
    """What each member of a classic generation holds. Under a cooperative assignor a partition that changes hands is
    nobody's for a generation: whoever claimed it in its join reads it, and commits, until it has given it up."""
    held = {
        member["member_id"]: {
            _TopicPartition(p["topic"], p["partition"]): "assigned" for p in member["assignment"] or ()
        }
        for member in members
    }
    given = {one for states in held.values() for one in states}
    for member in members:
        claimed = {_TopicPartition(p["topic"], p["partition"]) for p in member["owned"] or ()}
        held[member["member_id"]] |= dict.fromkeys(claimed - given, "revoking")
    return held
