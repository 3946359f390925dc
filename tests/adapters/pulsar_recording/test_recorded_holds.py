"""When an application of a recording held its messages, by the acts of its plan."""

import json

import pytest

from subreplay.adapters.pulsar_recording.recorded_holds import Hold, read_holds

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND


@pytest.mark.parametrize(
    ("acts", "until"),
    [
        (["release"], 2),
        (["dropped"], 2),  # a cut connection: the client comes back without what it held
        (["lost", "leave"], 2),
        ([], None),
    ],
)
def test_a_hold_ends_with_a_release_a_cut_connection_or_the_consumer(tmp_path, acts, until):
    rows = [
        {"event": event, "consumer": "c", "t_ns": START + at * SECOND}
        for at, event in enumerate(("join", "hold", *acts))
    ]
    (tmp_path / "membership.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    assert read_holds(tmp_path) == {"c": Hold(START + SECOND, None if until is None else START + until * SECOND)}
