"""What Kafka's group coordinator writes at INFO about its groups: each known line, and the event that it tells.

Source: ``GroupCoordinator`` of Kafka 2.x and 3.x, ``GroupMetadataManager`` from 3.7 on. Classic groups are *Group g*,
groups of the consumer protocol (KIP-848) *GroupId g*. A group's or a client's name may hold any characters.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Line(NamedTuple):
    """A known line: the event it tells, the protocol of its group, and its text with the event's columns as groups."""

    event: str
    protocol: str
    pattern: str


_GROUP: Final = "(?P<group>.+?)"
_MEMBER: Final = r"(?:MemberMetadata\(memberId=)?(?P<member_id>.+?)(?:, groupInstanceId=.*)?"  # 2.x and 3.x print all
_STORED_IN: Final = r"(?: \(__consumer_offsets-\d+\))?"
_GENERATION: Final = r"(?P<generation>-?\d{1,10})"
_SIZE: Final = r"(?P<members>\d{1,9})"
_IN_STATE: Final = r"in (?P<state>\w+) state\. "
_STATIC: Final = r"Static [Mm]ember"
_UNKNOWN_ID: Final = r"Dynamic [Mm]ember with unknown member id joins"
_STATIC_JOIN: Final = rf"{_STATIC} with groupInstanceId=(?P<instance_id>.+?) and unknown member id joins group {_GROUP}"
_NEW_ID: Final = "Created a new member id (?P<member_id>.+?)"
_ASKED: Final = "(?:for this member )?and request(?:ing)? the member to rejoin with this id"
_ADDED: Final = "(?:for this member )?and add(?:ed|ing)?(?: the member)? to the group"
_CLIENT_REASON: Final = "(?:; client reason: (?P<client_reason>.*?))?"
_SPEAKS: Final = "(?:the )?consumer group(?: using the (?:consumer|classic) protocol)?"
_IN: Final = rf"\[GroupId {_GROUP}\] "

LINES: Final = (
    Line(
        "stabilized",
        "classic",
        rf"Stabilized group {_GROUP} generation {_GENERATION}{_STORED_IN}(?: with {_SIZE} members)?",
    ),
    Line(
        "assignment",
        "classic",
        rf"Assignment received from leader (?:(?P<member_id>.+?) )?for group {_GROUP} for generation {_GENERATION}"
        rf"(?:\. The group has {_SIZE} members, \d+ of which are static)?",
    ),
    Line(
        "preparing",
        "classic",
        rf"Preparing to rebalance group {_GROUP} in state (?P<state>\w+) with old generation {_GENERATION}{_STORED_IN} "
        rf"\(reason: (?P<reason>.*?){_CLIENT_REASON}\)",
    ),
    Line(
        "id_created",
        "classic",
        rf"{_UNKNOWN_ID} group {_GROUP} {_IN_STATE}{_NEW_ID} {_ASKED}",
    ),
    Line(
        "join",
        "classic",
        rf"{_UNKNOWN_ID} group {_GROUP} {_IN_STATE}{_NEW_ID} {_ADDED}",
    ),
    Line(
        "join",
        "classic",
        rf"Pending dynamic member with id (?P<member_id>.+?) joins group {_GROUP} {_IN_STATE}"
        r"Adding to the group now",
    ),
    Line(
        "join",
        "classic",
        rf"{_STATIC_JOIN} {_IN_STATE}{_NEW_ID} {_ADDED}",
    ),
    Line(
        "static_return",
        "classic",
        rf"{_STATIC_JOIN} {_IN_STATE}Replacing previously mapped member (?P<previous_member_id>.+?) "
        "with this groupInstanceId",
    ),
    Line(
        "leave",
        "classic",
        rf"\[Group {_GROUP}\] Member {_MEMBER} has left group through explicit `LeaveGroup` request"
        r"(?:; client reason: (?P<client_reason>.*))?",
    ),
    Line(
        "leave",
        "classic",
        r"Member\[group\.instance\.id (?:None|Some\((?P<instance_id>.+?)\)), member\.id (?P<member_id>.+?)\] in group "
        rf"{_GROUP} has left, removing it from the group",
    ),
    Line("leave", "classic", rf"Member (?P<member_id>.+?) in group {_GROUP} has left, removing it from the group"),
    Line("failed", "classic", rf"Member {_MEMBER} in group {_GROUP} has failed, removing it from the group"),
    Line(
        "failed",
        "classic",
        rf"Group {_GROUP} removed (?:dynamic )?members who haven't joined: (?:Set\(|\[)(?P<member_id>.*)[\])]",
    ),
    Line(
        "pending_expired",
        "classic",
        rf"Pending member (?P<member_id>.+?) in group {_GROUP} has been removed after session timeout expiration",
    ),
    Line("empty", "classic", rf"Group {_GROUP} with generation {_GENERATION} is now empty{_STORED_IN}"),
    Line("join", "consumer", rf"{_IN}Member (?P<member_id>.+?) joins {_SPEAKS}"),
    Line(
        "id_created",
        "consumer",
        rf"{_IN}{_UNKNOWN_ID} the consumer group\. {_NEW_ID} {_ASKED}",
    ),
    Line(
        "join",
        "consumer",
        rf"{_IN}{_STATIC} (?P<member_id>.+?) with instance id (?P<instance_id>.+?) joins {_SPEAKS}",
    ),
    Line(
        "static_return",
        "consumer",
        rf"{_IN}{_STATIC} with instance id (?P<instance_id>.+?) re-joins {_SPEAKS}\. Created a new member "
        "(?P<member_id>.+?) to replace the existing member (?P<previous_member_id>.+?)",
    ),
    Line(
        "static_away",
        "consumer",
        rf"{_IN}{_STATIC} (?P<member_id>.+?) with instance id (?P<instance_id>.+?) temporarily left the consumer group",
    ),
    Line(
        "leave",
        "consumer",
        rf"{_IN}{_STATIC} (?P<member_id>.+?) with instance id (?P<instance_id>.+?) left the consumer group",
    ),
    Line("leave", "consumer", rf"{_IN}Member (?P<member_id>.+?) left the consumer group"),
    Line("failed", "consumer", rf"{_IN}Member (?P<member_id>.+?) fenced from the group because (?P<reason>.+?)"),
    Line(
        "epoch_bumped",
        "consumer",
        rf"{_IN}Bumped group epoch to {_GENERATION}(?: with metadata hash -?\d+)?",
    ),
    Line(
        "target_computed",
        "consumer",
        rf"{_IN}Computed a new target assignment for epoch {_GENERATION} with '(?P<assignor>.+?)' assignor "
        r"in \d+ms(?:: .*)?",
    ),
    Line("unloaded", "classic", rf"\[GroupId=(?P<group>.+)\] Unloading group metadata for generation {_GENERATION}"),
    Line("unloaded", "consumer", rf"\[GroupId=(?P<group>.+)\] Unloaded group metadata for group epoch {_GENERATION}"),
)
"""In the order in which they are tried."""

OPENINGS: Final = "|".join(
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
"""How a known line begins: one that begins so and is none of ``LINES`` is malformed."""

ABOUT_GROUPS: Final = rf"{OPENINGS}|\[Group(?:Id)?[ =][^\]]+\]"
"""How a line about a group begins, known or not."""
