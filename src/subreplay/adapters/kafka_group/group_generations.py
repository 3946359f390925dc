"""Find the generations of a Kafka group (epochs in the consumer protocol), and the owner of each partition in them.

A classic generation assigns all partitions at once, and lasts until the next one. Under the consumer protocol each
member moves to an epoch alone: a partition belongs to a member from the first record that assigns it to the first
record that neither assigns nor revokes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from subreplay.adapters.kafka_group.group_members import AWAY_EPOCH, SHARE, MemberPresence, RecordMark, Row

_UNKNOWN_TIMES = {"prepared_at": None, "reason": None, "client_reason": None, "stabilized_at": None, "at": None}


def build_generations(records: Iterable[tuple[str, Row]], events: Sequence[Row]) -> list[dict[str, Any]]:
    """Build rows of table ``generations`` for one group, without its name, in time order."""
    of_records, of_log = list(_list_recorded(records)), list(_list_logged(events))
    for row in of_records:
        same = [other for other in of_log if _generation_key(other) == _generation_key(row)]
        if same:
            other = min(same, key=lambda other: abs(_find_time(other) - _find_time(row)))
            of_log.remove(other)
            for name, value in other.items():
                if row.get(name) is None:
                    row[name] = value
            # the log has the exact start; the records have the time from which it applied
            row["evidence"] = "log and records"
            row["prepared_at"] = other["prepared_at"] or row["prepared_at"]
    return sorted([*of_records, *of_log], key=lambda row: (_find_time(row), row["generation"]))


def _generation_key(row: Mapping[str, Any]) -> tuple[str, int]:
    return row["protocol"], row["generation"]


def _find_time(row: Mapping[str, Any]) -> int:
    times = (row["at"], row["stabilized_at"], row["prepared_at"])
    return next((time for time in times if time is not None), 0)


def _list_recorded(records: Iterable[tuple[str, Row]]) -> Iterator[dict[str, Any]]:
    """Yield the generations in the records, each once."""
    latest: dict[str, Any] | None = None
    epochs: dict[int, dict[str, Any]] = {}
    present: set[str] = set()
    for table, row in records:
        at = row["record_time"]
        if table == "classic_groups" and not row["tombstone"]:
            if latest is None or latest["generation"] != row["generation"]:
                latest = _UNKNOWN_TIMES | {
                    "protocol": "classic", "generation": row["generation"], "assignor": row["protocol"],
                    "leader": row["leader"], "members": len(row["members"]), "stabilized_at": row["state_since"],
                    "at": at, "evidence": "records",
                }  # fmt: skip
                yield latest
        elif table == "classic_groups":
            latest = None
        elif table in ("members", "share_members"):
            (present.discard if row["tombstone"] else present.add)(row["member_id"])
        elif table in ("group_epochs", "share_epochs") and not row["tombstone"]:
            epochs[row["epoch"]] = epoch = _UNKNOWN_TIMES | {
                "protocol": SHARE if table == "share_epochs" else row.get("protocol", "consumer"),
                "generation": row["epoch"], "prepared_at": at, "members": len(present),
                "evidence": "records",
            }  # fmt: skip
            yield epoch
        elif table in ("target_epochs", "share_target_epochs") and row["epoch"] in epochs:
            epochs[row["epoch"]]["at"] = at


def _list_logged(events: Iterable[Row]) -> Iterator[dict[str, Any]]:
    """Yield the generations in the log."""
    preparing: Row | None = None
    latest: dict[str, Any] | None = None
    for event in events:
        kind, number = event["event"], event["generation"]
        row = _UNKNOWN_TIMES | {"protocol": event["protocol"], "generation": number, "evidence": "log"}
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
    """A partition. ``topic`` is a topic's name, or its id under the consumer protocol."""

    topic: str
    partition: int


class OwnerHistory:
    """Follows the owners of the partitions of one group. ``rows`` are of table ``owners``, without the group's name."""

    def __init__(self, topic_names: Mapping[str, str], gone: Iterable[MemberPresence]) -> None:
        self.names = dict(topic_names)
        self.rows: list[dict[str, Any]] = []
        self.owned_by_member: dict[str, dict[_TopicPartition, dict[str, Any]]] = {}
        self.departures: dict[str, list[int]] = {}
        for presence in gone:
            if presence.gone is not None and presence.protocol == "classic":
                self.departures.setdefault(presence.member, []).append(presence.gone["at"])

    def apply_record(self, table: str, row: Row) -> None:
        """Apply the next record."""
        mark = RecordMark(row["record_time"], row["record_offset"])
        if table == "classic_groups":
            owned = _list_classic_owners(row["members"] or ())
            for member in [*self.owned_by_member, *owned]:
                self._set_owned(member, row["generation"], owned.get(member, {}), mark)
        elif table in ("current_assignments", "share_assignments"):
            states: dict[_TopicPartition, str] = {}
            for name in ("revoking", "assigned"):
                states |= {_TopicPartition(p["topic_id"], p["partition"]): name for p in row.get(name) or ()}
            if row["epoch"] == AWAY_EPOCH:
                states = dict.fromkeys(states, "away")
            self._set_owned(row["member_id"], row["epoch"], states, mark, by_id=True)
        elif table == "share_partitions" and not row["tombstone"]:
            self.names |= {p["topic_id"]: p["topic"] for p in row["initialized"]}
        elif table == "topic_metadata":
            self.names |= {topic["topic_id"]: topic["topic"] for topic in row["topics"] or ()}

    def name_topics(self) -> list[dict[str, Any]]:
        """Return all rows, with the topic names that are known."""
        for row in self.rows:
            if row["topic_id"] is not None:
                row["topic"] = self.names.get(row["topic_id"])
                row["topic_id"] = None if row["topic"] == row["topic_id"] else row["topic_id"]  # a streams group's
            departures = [at for at in self.departures.get(row["consumer"], ()) if at >= row["from"]]
            if departures and (row["to"] is None or departures[0] < row["to"]):
                row["to"] = departures[0]
        return self.rows

    def _set_owned(
        self, member: str, generation: int, states: Mapping[_TopicPartition, str], mark: RecordMark, by_id: bool = False
    ) -> None:
        owned = self.owned_by_member.setdefault(member, {})
        for topic_partition, row in list(owned.items()):
            if (row["generation"], row["state"]) != (generation, states.get(topic_partition)):
                row |= {"to": mark.at, "to_offset": mark.offset}
                del owned[topic_partition]
        for topic_partition, state in states.items():
            if topic_partition not in owned:
                owned[topic_partition] = {
                    "topic": None if by_id else topic_partition.topic,
                    "topic_id": topic_partition.topic if by_id else None, "partition": topic_partition.partition,
                    "consumer": member, "generation": generation, "state": state,
                    "from": mark.at, "to": None, "from_offset": mark.offset, "to_offset": None,
                }  # fmt: skip
                self.rows.append(owned[topic_partition])


def _list_classic_owners(members: Iterable[Row]) -> dict[str, dict[_TopicPartition, str]]:
    """Find the partitions of each member of a classic generation. Under a cooperative assignor a moving partition has
    no owner for a generation: the member that claimed it in its join reads and commits until it has revoked it."""
    owned = {
        member["member_id"]: {
            _TopicPartition(p["topic"], p["partition"]): "assigned" for p in member["assignment"] or ()
        }
        for member in members
    }
    assigned = {one for states in owned.values() for one in states}
    for member in members:
        claimed = {_TopicPartition(p["topic"], p["partition"]) for p in member["owned"] or ()}
        owned[member["member_id"]] |= dict.fromkeys(claimed - assigned, "revoking")
    return owned
