"""A broker's log tells how many messages an entry has, not whether its only one stands in a batch: the messages do."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tests.support.history import auto_split, findings_of, history

# an entry of one message, a batch of two, and two entries of one; the last is never delivered
TABLES = history("a1 a2,a3 a4 a5", "+C1 a1>C1 a1! a2>C1 a3>C1 a2! a3! a4>C1 a4? a4>C1*1 a4! +C2 a4>C2")


def in_batches(table: pa.Table, *entries: int) -> pa.Table:
    """The rows, of which these entries are batches of one."""
    batched = pc.is_in(table["entry"], value_set=pa.array(entries, pa.int64()))
    index = table.schema.get_field_index("batch_index")
    return table.set_column(
        index, table.schema.field(index), pc.if_else(batched, pa.scalar(0, pa.int32()), table["batch_index"])
    )


def test_an_unbatched_delivery_belongs_to_the_batch_of_one_in_the_messages() -> None:
    reported = TABLES | {"messages": in_batches(TABLES["messages"], 0, 2)}
    exact = reported | {"deliveries": in_batches(TABLES["deliveries"], 0, 2)}
    found = findings_of(auto_split(), reported)
    assert found == findings_of(auto_split(), exact)
    assert "DUP_DELIVERED_AFTER_ACK" in {code for code, _ in found} or found
    assert "UNKNOWN_MESSAGE" not in {code for code, _ in found}


def test_what_names_no_message_of_a_batch_of_several_is_of_none() -> None:
    cut = TABLES["deliveries"].filter(pc.equal(TABLES["deliveries"]["entry"], 1))
    index = cut.schema.get_field_index("batch_index")
    whole = cut.set_column(index, cut.schema.field(index), pa.array([-1] * len(cut), pa.int32()))
    found = findings_of(auto_split(), TABLES | {"deliveries": whole})
    assert {index for code, index in found if code == "UNKNOWN_MESSAGE"} == {(1, -1)}
