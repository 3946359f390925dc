"""Share groups for tests, in the words of ``tests.groups.consuming``: times in ms."""

import numpy as np

from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.kafka.assignor import Partitions, derive_topic_ids
from subreplay.simulation.kafka.share.share_parameters import ShareMemberModel, ShareParameters
from subreplay.simulation.kafka.share.share_replay import ShareReplay
from subreplay.simulation.pulsar.broker.dispatch_rules import MILLISECOND as MS
from subreplay.simulation.pulsar.clients.client_state import DeliveryOutcome
from subreplay.simulation.pulsar.service_model import Fixed
from tests.groups.consuming import TOPIC, build_events, build_log, to_ms


class Replayed:
    """A replay that has ended: its rows, and what the tests ask."""

    def __init__(self, members, log, partitions=1, actions=(), session=45_000, **settings):
        policy = make_policy("kafka.share", "kafka-4.4", session_timeout_us=session * 1_000)
        settings.setdefault("member", ShareMemberModel(Fixed(MS)))
        known = Partitions.from_counts({TOPIC: partitions}, topic_ids=derive_topic_ids([TOPIC]))
        events, parameters = list(build_events(members)), ShareParameters(**settings)
        self.replay = ShareReplay(policy, known, events, [build_log(log)], parameters, actions)
        self.rows = np.concatenate(list(self.replay.predict_deliveries())).view(np.recarray)
        self.lags = list(self.replay.take_lags())

    def deliveries(self, *names):
        """(consumer, partition, offset, delivery count, ms, outcome) of all deliveries, in order, or some of these."""
        rows = self.rows[self.rows.delivered_at >= 0]
        rows = rows[np.lexsort((rows.entry, rows["partition"], rows.delivered_at))]
        return [
            (
                self.replay.processes[row.member].event.consumer,
                int(row["partition"]),
                int(row.entry),
                int(row.redeliveries) + 1,
                to_ms(row.delivered_at),
                DeliveryOutcome(row.outcome).name,
            )
            for row in rows
        ]

    def pending(self):
        return [(int(r["partition"]), int(r.entry)) for r in self.rows if r.outcome == DeliveryOutcome.PENDING]
