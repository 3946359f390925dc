"""What goes from night to night: packed tightly, and only what is still open or may still be asked for."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from subreplay.adapters.canonical import build_table
from subreplay.audit.checkpoint import BASIS, OPEN, Checkpoint, decode_text, encode_text, pack_array, unpack_array
from subreplay.errors import InputError
from subreplay.rows.model.columns import NEVER, UNKNOWN, Ints, column
from subreplay.rows.model.key_masking import IN_THE_CLEAR, KeyMasking
from tests.support.history import START, STEP, SUBSCRIPTION, History, auto_split, history
from tests.support.pure import judge_of, judged_log, log_of

EXTREMES = st.sampled_from([NEVER, UNKNOWN, -1, 0]) | st.integers(UNKNOWN, NEVER)


@given(arrays(np.int64, st.tuples(st.integers(0, 5), st.integers(1, 5)), elements=EXTREMES))
def test_arrays_come_back_as_they_were_packed(array: Ints) -> None:
    assert (unpack_array(pack_array(array), *array.shape) == array).all()


@given(st.text())
def test_texts_come_back(text: str) -> None:
    assert decode_text(encode_text(text)) == text


def handed_on(tables: History, lookback: int, words: KeyMasking | None = IN_THE_CLEAR) -> dict[str, Ints]:
    """The arrays that a night hands on, whose day ends with the step 150 of a story, as far as ``words`` open them."""
    judge = replace(
        judge_of(auto_split(), tables), horizon=(START + 150 * STEP) * 1000, lookback=lookback, lacking=frozenset()
    )
    rows = judged_log(judge, log_of(tables["messages"], tables["deliveries"]))
    found = Checkpoint(words=words)
    found.take(rows.filter(column(rows, "checkpoint").is_valid()))
    return found.read_arrays()


def test_state_that_may_reveal_keys_is_decrypted_only_with_the_secret_of_its_run() -> None:
    """The holder of a slot is kept with its key, so it is not arrays of identities alone."""
    story = history("a1 b2", "+C1:1000 a1>C1 b2>C1")
    assert set(handed_on(story, NEVER, None)) == {OPEN, BASIS}
    assert {"instants.keys", "instants.slots", "log.streams"} <= set(handed_on(story, NEVER))
    with pytest.raises(
        InputError, match=r"encrypted with another keys\.secret\. Set keys\.secret to the secret of that run"
    ):
        handed_on(story, NEVER, KeyMasking.from_secret(False, "another"))


def test_a_session_that_is_over_and_a_key_that_is_closed_are_left_behind() -> None:
    """C1 has left; of C2's queue of a thousand messages the one it has is handed on, and one taken before it."""
    story = history("a1 b2 b3 n4 n5", "+C1:1000 a1>C1 a1! -C1 +C2:1000 b2>C2 b2! n4>C2 n4^ n4! n5>C2")
    found = handed_on(story, lookback=1)
    assert found["instants.sessions"].tolist() == [[1]]
    assert found["instants.untaken"].shape == (2, 4)
    keys = {int(key) for key in found["instants.key_ids"][:, 0]}
    assert len(keys) == 2  # b waits for a delivery, n for an acknowledgement
    assert len(handed_on(story, lookback=NEVER)["instants.key_ids"]) == 3


def test_the_state_of_many_keys_and_sessions_is_small() -> None:
    """Each key was delivered once and acknowledged; each session but the last is over."""
    keys, sessions, random = 2_000, 200, Random(7)
    reported = history("a1", " ".join(f"+C{i}:1000 -C{i}" for i in range(sessions)) + " +D:1000")
    (message,) = reported["messages"].to_pylist()
    begin = START + 1000 * STEP
    log = [
        message | {"entry": i, "sequence_id": i, "key": f"order-{i}".encode(), "publish_time": begin + i * 997}
        for i in range(keys)
    ]
    served = []
    for row in log:
        at = row["publish_time"] + random.randrange(1000, 3000)
        ends = {"delivered_at": at, "received_at": at + 500, "acked_at": at + random.randrange(1000, 100_000)}
        position = {name: row[name] for name in ("topic", "partition", "ledger", "entry", "batch_index")}
        reported_by = {
            "subscription": SUBSCRIPTION,
            "consumer": "D",
            "seq": 0,
            "redelivery_count": 0,
            "source": "observed",
        }
        served.append({"date": row["date"], **position, **reported_by, **ends})
    tables = reported | {"messages": build_table("messages", log), "deliveries": build_table("deliveries", served)}
    judge = replace(judge_of(auto_split(), tables), horizon=(begin + 10_000_000_000) * 1000, lookback=NEVER)
    rows = judged_log(judge, log_of(tables["messages"], tables["deliveries"]))
    checkpoint = column(rows, "checkpoint").drop_null().to_pylist()
    # 8 of them tell a message that was published twice from another one with its sequence id
    assert sum(len(row["data"]) for row in checkpoint) < 48 * keys
