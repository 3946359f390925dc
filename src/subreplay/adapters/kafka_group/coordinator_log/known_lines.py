"""The known INFO lines of Kafka's group coordinator about its groups, with the event of each.

Source: ``GroupCoordinator`` of Kafka 2.x and 3.x, ``GroupMetadataManager`` from 3.7 on. Classic groups are *Group g*,
groups of the consumer protocol (KIP-848) *GroupId g*. Names of groups and clients may contain any characters.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class KnownLine(NamedTuple):
    """A known line: its event, the protocol of its group, and its pattern with the event's columns as groups."""

    event: str
    protocol: str
    pattern: str


_GROUP: Final = "(?P<group>.+?)"
_MEMBER: Final = r"(?:MemberMetadata\(memberId=)?(?P<member_id>.+?)(?:, groupInstanceId=.*)?"  # 2.x and 3.x print more
_STORED_IN: Final = r"(?: \(__consumer_offsets-\d+\))?"
_GENERATION: Final = r"(?P<generation>-?\d{1,10})"
_SIZE: Final = r"(?P<members>\d{1,9})"
_IN_STATE: Final = r"in (?P<state>\w+) state\. "
_STATIC: Final = r"Static [Mm]ember"
_UNKNOWN_ID: Final = r"Dynamic [Mm]ember with unknown member id joins"
_STATIC_JOIN: Final = rf"{_STATIC} with groupInstanceId=(?P<instance_id>.+?) and unknown member id joins group {_GROUP}"
_NEW_ID: Final = "Created a new member id (?P<member_id>.+?)"
_REJOIN: Final = "(?:for this member )?and request(?:ing)? the member to rejoin with this id"
_ADDED: Final = "(?:for this member )?and add(?:ed|ing)?(?: the member)? to the group"
_CLIENT_REASON: Final = "(?:; client reason: (?P<client_reason>.*?))?"
_CONSUMER_GROUP: Final = "(?:the )?consumer group(?: using the (?:consumer|classic) protocol)?"
_IN: Final = rf"\[GroupId {_GROUP}\] "

KNOWN_LINES: Final = (
    KnownLine(
        "stabilized",
        "classic",
        rf"Stabilized group {_GROUP} generation {_GENERATION}{_STORED_IN}(?: with {_SIZE} members)?",
    ),
    KnownLine(
        "assignment",
        "classic",
        rf"Assignment received from leader (?:(?P<member_id>.+?) )?for group {_GROUP} for generation {_GENERATION}"
        rf"(?:\. The group has {_SIZE} members, \d+ of which are static)?",
    ),
    KnownLine(
        "preparing",
        "classic",
        rf"Preparing to rebalance group {_GROUP} in state (?P<state>\w+) with old generation {_GENERATION}{_STORED_IN} "
        rf"\(reason: (?P<reason>.*?){_CLIENT_REASON}\)",
    ),
    KnownLine(
        "id_created",
        "classic",
        rf"{_UNKNOWN_ID} group {_GROUP} {_IN_STATE}{_NEW_ID} {_REJOIN}",
    ),
    KnownLine(
        "join",
        "classic",
        rf"{_UNKNOWN_ID} group {_GROUP} {_IN_STATE}{_NEW_ID} {_ADDED}",
    ),
    KnownLine(
        "join",
        "classic",
        rf"Pending dynamic member with id (?P<member_id>.+?) joins group {_GROUP} {_IN_STATE}"
        r"Adding to the group now",
    ),
    KnownLine(
        "join",
        "classic",
        rf"{_STATIC_JOIN} {_IN_STATE}{_NEW_ID} {_ADDED}",
    ),
    KnownLine(
        "static_return",
        "classic",
        rf"{_STATIC_JOIN} {_IN_STATE}Replacing previously mapped member (?P<previous_member_id>.+?) "
        "with this groupInstanceId",
    ),
    KnownLine(
        "leave",
        "classic",
        rf"\[Group {_GROUP}\] Member {_MEMBER} has left group through explicit `LeaveGroup` request"
        r"(?:; client reason: (?P<client_reason>.*))?",
    ),
    KnownLine(
        "leave",
        "classic",
        r"Member\[group\.instance\.id (?:None|Some\((?P<instance_id>.+?)\)), member\.id (?P<member_id>.+?)\] in group "
        rf"{_GROUP} has left, removing it from the group",
    ),
    KnownLine("leave", "classic", rf"Member (?P<member_id>.+?) in group {_GROUP} has left, removing it from the group"),
    KnownLine("failed", "classic", rf"Member {_MEMBER} in group {_GROUP} has failed, removing it from the group"),
    KnownLine(
        "failed",
        "classic",
        rf"Group {_GROUP} removed (?:dynamic )?members who haven't joined: (?:Set\(|\[)(?P<member_id>.*)[\])]",
    ),
    KnownLine(
        "pending_expired",
        "classic",
        rf"Pending member (?P<member_id>.+?) in group {_GROUP} has been removed after session timeout expiration",
    ),
    KnownLine("empty", "classic", rf"Group {_GROUP} with generation {_GENERATION} is now empty{_STORED_IN}"),
    KnownLine("join", "consumer", rf"{_IN}Member (?P<member_id>.+?) joins {_CONSUMER_GROUP}"),
    KnownLine(
        "id_created",
        "consumer",
        rf"{_IN}{_UNKNOWN_ID} the consumer group\. {_NEW_ID} {_REJOIN}",
    ),
    KnownLine(
        "join",
        "consumer",
        rf"{_IN}{_STATIC} (?P<member_id>.+?) with instance id (?P<instance_id>.+?) joins {_CONSUMER_GROUP}",
    ),
    KnownLine(
        "static_return",
        "consumer",
        rf"{_IN}{_STATIC} with instance id (?P<instance_id>.+?) re-joins {_CONSUMER_GROUP}\. Created a new member "
        "(?P<member_id>.+?) to replace the existing member (?P<previous_member_id>.+?)",
    ),
    KnownLine(
        "static_away",
        "consumer",
        rf"{_IN}{_STATIC} (?P<member_id>.+?) with instance id (?P<instance_id>.+?) temporarily left the consumer group",
    ),
    KnownLine(
        "leave",
        "consumer",
        rf"{_IN}{_STATIC} (?P<member_id>.+?) with instance id (?P<instance_id>.+?) left the consumer group",
    ),
    KnownLine("leave", "consumer", rf"{_IN}Member (?P<member_id>.+?) left the consumer group"),
    KnownLine("failed", "consumer", rf"{_IN}Member (?P<member_id>.+?) fenced from the group because (?P<reason>.+?)"),
    KnownLine(
        "epoch_bumped",
        "consumer",
        rf"{_IN}Bumped group epoch to {_GENERATION}(?: with metadata hash -?\d+)?",
    ),
    KnownLine(
        "target_computed",
        "consumer",
        rf"{_IN}Computed a new target assignment for epoch {_GENERATION} with '(?P<assignor>.+?)' assignor "
        r"in \d+ms(?:: .*)?",
    ),
    KnownLine(
        "unloaded", "classic", rf"\[GroupId=(?P<group>.+)\] Unloading group metadata for generation {_GENERATION}"
    ),
    KnownLine(
        "unloaded", "consumer", rf"\[GroupId=(?P<group>.+)\] Unloaded group metadata for group epoch {_GENERATION}"
    ),
)
"""The lines in the order in which they are matched."""

LINE_BEGINNINGS: Final = "|".join(
    [
        "(?:Stabilized|Preparing to rebalance) group ",
        "Assignment received from leader ",
        "Dynamic [Mm]ember with unknown member id ",
        "Pending dynamic member with id ",
        "Static [Mm]ember with groupInstanceId=",
        r"\[Group [^\]]+\] Member ",
        r"Member(?: |\[)\S+.* in group \S+ has (?:left|failed)",
        "Group .+ (?:removed (?:dynamic )?members who haven't joined|with generation -?[0-9]+ is now empty)",
        r"Pending member \S+ in group ",
        r"\[GroupId [^\]]+\] (?:Bumped group epoch|Computed a new target assignment|Dynamic [Mm]ember with unknown)",
        r"\[GroupId [^\]]+\] (?:Static [Mm]ember|Member) .*(?:joins|left|fenced from)",
        r"\[GroupId=[^\]]+\] Unload(?:ing|ed) group metadata for ",
    ]
)
"""The beginnings of known lines. A line with such a beginning that is not one of ``KNOWN_LINES`` is malformed."""

GROUP_BEGINNINGS: Final = rf"{LINE_BEGINNINGS}|\[Group(?:Id)?[ =][^\]]+\]"
"""The beginnings of lines about groups, known or not."""
