"""Every policy under every profile it knows, and histories to try them on."""

import pytest
from hypothesis import strategies as st

from subreplay.errors import ConfigError
from subreplay.semantics.policies import REGISTRY, make_policy

PROFILES = ("documented", "pulsar-2.10", "pulsar-3.2", "pulsar-4.0", "pulsar-4.2", "pulsar-5.0")
FEW_POINTS = {"pulsar.key_shared.consistent_hash": {"points": 5}}


def policies():
    for name in REGISTRY:
        for profile in PROFILES:
            try:
                yield make_policy(name, profile, **FEW_POINTS.get(name, {}))
            except ConfigError:
                continue  # a policy of other brokers


EVERY = [pytest.param(policy, id=f"{policy.name}-{policy.profile}") for policy in policies()]

names = st.sampled_from(["a", "b", "c", "dup", "κ"])
bounds = st.tuples(st.integers(0, 65535), st.integers(0, 65535)).map(sorted)
joins = st.builds(lambda name, level, pair: f"+{name}@{level}[{pair[0]}-{pair[1]}]", names, st.integers(0, 2), bounds)
histories = st.lists(joins | names.map("-{}".format) | names.map("!{}".format), max_size=12).map(" ".join)
