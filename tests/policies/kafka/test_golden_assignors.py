"""Every golden generation of the stateless and the server-side assignors, from its members and topics alone."""

import pytest

from subreplay.semantics.policies.kafka.range import RangeAssignor
from subreplay.semantics.policies.kafka.roundrobin import RoundRobinAssignor
from subreplay.semantics.policies.kafka.server_range import ServerRangeAssignor
from subreplay.semantics.policies.kafka.uniform import UniformAssignor
from tests.policies.kafka.golden import expected_owners, generations


@pytest.mark.parametrize("assignor", [RangeAssignor, RoundRobinAssignor, ServerRangeAssignor, UniformAssignor])
def test_every_partition_goes_to_the_member_that_the_real_class_chose(assignor):
    replayed, wrong = 0, []
    for case, generation, partitions, members in generations(assignor.name.removeprefix("kafka.")):
        owners = assignor("kafka-4.0").assign(partitions, members)
        replayed += 1
        if owners.tolist() != expected_owners(generation, partitions, members).tolist():
            wrong.append((case["case"], generation["generation"]))

    assert replayed > 600
    assert wrong == []
