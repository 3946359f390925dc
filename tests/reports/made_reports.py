"""Reports made up for the tests of their renderers: the same in every run."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta, timezone

from subreplay.reports.assemble.drain_limits import build_drain, select_longest
from subreplay.reports.assemble.recommendations import recommend_scenario
from subreplay.reports.assemble.whatif_answers import find_best_scenarios
from subreplay.reports.data import (
    SCHEMA_VERSION,
    Answer,
    Band,
    ConsumerTotal,
    Coverage,
    EngineInfo,
    EpochView,
    Fact,
    HotKey,
    InputCount,
    LoadPoint,
    MoveView,
    RangeMap,
    Recommendation,
    ReportData,
    RunInfo,
    ScenarioConsumer,
    ScenarioView,
    SlotShare,
)
from subreplay.reports.dispatch_data import (
    BacklogPoint,
    Blocked,
    Bound,
    DispatchView,
    DuplicateCause,
    Latency,
    Outcomes,
)
from subreplay.reports.finding_data import CodeSummary, FindingPoint, FindingView, KnownFault
from subreplay.reports.formatting import format_span
from subreplay.reports.history_data import (
    HISTORY_VERSION,
    NO_RUN,
    DayResult,
    Episode,
    History,
    RuleHistory,
    SubscriptionHistory,
)
from subreplay.reports.incident_data import IncidentView, RuleCount
from subreplay.reports.overview_data import OVERVIEW_VERSION, Overview, OverviewRow
from subreplay.reports.plan_data import PlanBar, PlanBars, PlanTable, PlanText, PlanView
from subreplay.reports.timeline_data import Lane, LaneEvent, LaneStretch, RunTimeline, TimelinePoint

START = datetime(2026, 5, 1, 12, 0, 0, tzinfo=timezone.utc)
SLOTS = 65_536
EVIL = "<script>alert(1)</script>"


def at(seconds: float) -> str:
    """The instant that many seconds into the data."""
    return (START + timedelta(seconds=seconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def us(seconds: float) -> int:
    return int((START + timedelta(seconds=seconds)).timestamp()) * 1_000_000 + round(seconds % 1 * 1e6)


def ring(rng: random.Random, points: dict[str, list[int]], members: tuple[str, ...]) -> tuple[Band, ...]:
    """Bands of a consistent hash ring: each point owns the slots up to it, the first also those past the last."""
    marks = sorted((slot, name) for name in members for slot in points[name])
    bands, low = [], 0
    for slot, name in marks:
        if slot >= low:
            bands.append(Band(low, slot, name))
            low = slot + 1
    if low < SLOTS:
        bands.append(Band(low, SLOTS - 1, marks[0][1]))
    return tuple(bands)


def run_info(seconds: float, **changes: object) -> RunInfo:
    run = RunInfo(
        run_id="2026-05-01-orders", kind="audit", title="Nightly audit of orders", subscription="billing",
        topic="persistent://shop/prod/orders", partitions=0, date="2026-05-01", window_start=at(0),
        window_end=at(seconds), policy="pulsar.key_shared.consistent_hash", profile="pulsar-4.0",
        options=(("points", "100"), ("allow_out_of_order", "false")), config_digest="sha256:9f1c0d52a7",
        versions=(("subreplay", "0.1.0"),), keys_shown=False, seed=7, engine=EngineInfo("local", "0.1.0", 2),
    )  # fmt: skip
    return replace(run, **changes)  # type: ignore[arg-type]


def range_map(rng: random.Random, consumers: int, epochs: int, points: int, seconds: float, scope: str) -> RangeMap:
    """Consumers join one after the other; then one leaves and comes back, again and again."""
    names = [f"c{i + 1}" for i in range(consumers)]
    spots = {name: sorted(rng.randrange(SLOTS) for _ in range(points)) for name in names}
    members: list[str] = []
    views, clock = [], -2.0
    for index in range(epochs):
        if len(members) < consumers and index < consumers:
            cause = f"{names[index]} joined" if index else "first consumer c1 joined"
            members.append(names[index])
        elif len(members) == consumers:
            gone = rng.choice(names)
            members.remove(gone)
            cause = f"{gone} crashed" if rng.random() < 0.3 else f"{gone} left"
        else:
            back = next(name for name in names if name not in members)
            members.append(back)
            cause = f"{back} joined"
        step = 0.6 if index < consumers - 1 else (seconds - consumers * 0.6) / (epochs - consumers + 1)
        end = seconds if index == epochs - 1 else min(clock + step * rng.uniform(0.6, 1.4), seconds - (epochs - index))
        bands = ring(rng, spots, tuple(members))
        owned = Counter(dict.fromkeys(members, 0))
        for band in bands:
            owned[band.consumer] += band.end - band.start + 1
        shares = tuple(SlotShare(name, slots / SLOTS) for name, slots in owned.items())
        thin = len(bands) > 120
        views.append(EpochView(index, at(clock), at(end), us(clock), us(end), cause, tuple(members),
                               () if thin else bands, len(bands) if thin else 0, shares))  # fmt: skip
        clock = end
    return RangeMap(scope, "slot", 0, SLOTS - 1, tuple(views), 0)


def loads(rng: random.Random, names: list[str], windows: int, step: float) -> tuple[LoadPoint, ...]:
    weight = {name: rng.uniform(0.5, 1.9) for name in names}
    points = []
    for index in range(windows):
        here = [n for n in names if rng.random() > 0.04] or names
        counts = {n: int(400 * weight[n] * rng.uniform(0.8, 1.2) * (1 + 0.6 * (index > windows * 0.6))) for n in here}
        total = sum(counts.values())
        points += [
            LoadPoint(at(index * step), at((index + 1) * step), n, c, c * 310, c // 7, c / total, c / total * len(here))
            for n, c in counts.items()
        ]
    return tuple(points)


def totals(points: tuple[LoadPoint, ...], names: list[str]) -> tuple[ConsumerTotal, ...]:
    sums = {name: sum(p.messages for p in points if p.consumer == name) for name in names}
    whole = sum(sums.values())
    return tuple(
        ConsumerTotal(name, n, n * 310, n // 9, n / whole, n / whole * len(names), i * 3, i % 3)
        for i, (name, n) in enumerate(sums.items())
    )


def moves(rng: random.Random, mapped: RangeMap) -> tuple[MoveView, ...]:
    out = []
    for view in mapped.epochs[1:]:
        who = view.cause.split()[0]
        others = [name for name in view.members if name != who][:8]
        for other in others:
            pair = (other, who) if "joined" in view.cause else (who, other)
            slots, messages = rng.randrange(50, 2500), rng.randrange(0, 4000)
            out.append(MoveView(mapped.scope, view.index, view.start, view.cause, *pair, slots, slots / SLOTS,
                                slots // 20, messages, messages / 90_000))  # fmt: skip
    return tuple(out)


def scenario(name: str, policy: str, profile: str, shares: list[float], note: str = "") -> ScenarioView:
    whole, messages = sum(shares), 120_000
    rows = tuple(
        ScenarioConsumer(f"c{i + 1}", int(messages * s / whole), int(messages * s / whole) * 310, 900,
                         s / whole, s / whole * len(shares))
        for i, s in enumerate(shares)
    )  # fmt: skip
    top, perfect = max(shares) / whole, 1 / len(shares)
    return ScenarioView(
        name, policy, profile, len(shares), messages, top, perfect, top / perfect, top / perfect * 1.31, 8_200, 0.061,
        1 / 0.061, 4, 0.35, 0.21 + perfect / 3, 2_100, 0 if len(shares) > 1 else 12,
        "" if len(shares) > 1 else "12 while no consumer was connected", rows, note,
        order="key" if "key_shared" in policy else "partition",
    )  # fmt: skip


def scenarios(rng: random.Random) -> tuple[ScenarioView, ...]:
    def draw(count: int, spread: float) -> list[float]:
        return [rng.uniform(1 - spread, 1 + spread) for _ in range(count)]

    return (
        scenario("as recorded", "pulsar.key_shared.consistent_hash", "pulsar-4.0", draw(5, 0.4)),
        scenario("1,000 points", "pulsar.key_shared.consistent_hash", "pulsar-4.0", draw(5, 0.1)),
        scenario("auto split", "pulsar.key_shared.auto_split", "pulsar-4.0", [1, 1, 2, 2, 2]),
        scenario("10 consumers", "pulsar.key_shared.consistent_hash", "pulsar-4.0", draw(10, 0.5)),
        scenario("one consumer", "pulsar.exclusive", "pulsar-4.0", [1], "baseline: a single owner"),
    )


def codes(seconds: float, many: int = 8) -> tuple[CodeSummary, ...]:
    def found(i: int) -> FindingView:
        one, other = f"c{i % 3 + 1}", f"c{(i + 1) % 3 + 1}"
        moment = seconds * (i + 1) / (many + 2)
        first, later, key = at(moment - 1)[11:23], at(moment)[11:23], f"3fa9{i:02x}"
        return FindingView(
            at(moment),
            f"5:{120 + i} of key {key} reached {other} at {later} while 5:{117 + i} was unacked at {one}",
            scope="orders",
            key=key,
            consumer=other,
            cause=f"epoch {i + 1}: {one} left at {first}",
            witness=(f"5:{117 + i} → {one} at {first}, never acked", f"5:{120 + i} → {other} at {later}"),
            window=at(moment // 5 * 5),
        )

    return (
        CodeSummary("KEY_TWO_OWNERS", "A key was at two consumers at once",
                    "While a consumer still held a message of the key, another got the next one.", "violated",
                    "invalid", 1_204, tuple(found(i) for i in range(many))),
        CodeSummary("KEY_ORDER", "A key was delivered out of order",
                    "A later message of a key reached a consumer before an earlier one.", "allowed", "valid", 37,
                    tuple(found(i) for i in range(min(many, 3))), "disorder after a nack is legal on this profile"),
        CodeSummary("WRONG_OWNER", "A message was not at its owner",
                    "A message went to another consumer than the one that owns its slot.", "clean", "valid", 0, ()),
        CodeSummary("REDELIVERED", "Redeliveries", "How often messages were delivered again.", "counted", "valid",
                    512, (found(1),)),
        CodeSummary("CUM_ACK_MISUSE", "A cumulative ack was used", "Not allowed on Key_Shared.", "unknown", "unknown",
                    0, (), "the deliveries carry no ack type"),
        CodeSummary("PARTITION_ORDER", "Order of a partition", "Messages of a partition in order.", "not applicable",
                    "valid", 0, (), "Key_Shared promises order per key only"),
    )  # fmt: skip


LENGTH = 60  # seconds of the small report, whose incidents the others have as well
DETAIL = (
    "Since 12:00:06 UTC, for 48 s. Most affected: c2, c3 and c1, after c1 left without closing its connection. "
    "Attributed to: broker."
)


def incident(
    number: int,
    code: str,
    title: str,
    detail: str,
    span: tuple[float, float],
    findings: int,
    consumers: tuple[str, ...],
    attribution: str,
    next_step: str,
    evidence: tuple[str, ...],
    verdict: str = "invalid",
    cause: str = "",
) -> IncidentView:
    """An incident of one rule; ``span`` is in seconds."""
    start, end = span
    example = FindingView(
        at(start), f"{evidence[0].split(' → ')[0]} is the worst of {findings:,} findings", "orders", "3fa900",
        consumers[0], cause, evidence, attribution=attribution,
    )  # fmt: skip
    rules = (RuleCount(code, title, verdict, findings),)
    return IncidentView(
        number, title, detail, verdict, code, rules, at(start), at(end), us(start), us(end),
        format_span(us(end) - us(start)), end == LENGTH, findings, consumers, 0, ("orders",), 0,
        (cause,) if cause else (), 0, attribution, example, next_step,
    )  # fmt: skip


THRESHOLDS = (("stalled after", "30 s"), ("stuck after", "30 s"), ("starved after", "2 s"), ("late after", "off"))


def incidents() -> tuple[IncidentView, ...]:
    """Seven incidents, of which the page shows five openly; the last one is inconclusive."""
    first, *others = (
        incident(1, "KEY_TWO_OWNERS", "1,204 messages of 311 keys were at two consumers at once after c1 left",
                 "c1 left at 12:00:06.000 with 41 unacknowledged messages. c2 and c3 received later messages of the "
                 "same keys before c1's messages were acknowledged.", (6, 54), 1_204, ("c2", "c3", "c1"), "broker",
                 "Upgrade the brokers to 4.0.3, or let consumers finish before they close.",
                 ("5:117 → c1 at 12:00:05.000, never acked", "5:120 → c2 at 12:00:06.000"), cause="c1 left"),
        incident(2, "STUCK", "c3 stopped acknowledging: 480 messages wait until the data end",
                 "Last acknowledgement by c3 at 12:00:30.002; it has 13 unacknowledged messages, its whole receiver "
                 "queue. 480 messages wait, the oldest since 12:00:31.", (30, LENGTH), 13, ("c3",),
                 "consumer application", "Restart c3 and set an acknowledgement timeout.",
                 ("5:130 → c3 at 12:00:30.000, never acked",)),
        incident(3, "LATE", "38 delayed messages were delivered up to 4.2 s after they were due",
                 "All are on c2, between two joins.", (21, 27), 38, ("c2",), "broker",
                 "Compare the delivery times with the broker's log.",
                 ("5:96 due at 12:00:21.000 → c2 at 12:00:25.200",)),
        incident(4, "DUP_DELIVERY", "22 messages were delivered twice although they were acknowledged",
                 "A cursor reset at 12:00:40 explains 20 of them.", (40, 42), 22, ("c1", "c2"), "operator",
                 "Check who reset the cursor at 12:00:40.", ("5:3 → c1 at 12:00:01.000, acked; again → c2",)),
        incident(5, "MIXED_BATCH", "Producer shop-7 put messages of 4 keys into one batch, 9 times",
                 "Key_Shared needs one key per batch.", (12, 57), 9, ("c1",), "producer",
                 "Set BatcherBuilder.KEY_BASED in shop-7.", ("batch 5:44 has keys 3fa900, 3fa901, 3fa902, 3fa903",)),
        incident(6, "UNROUTABLE", "3 messages had no owner for 1.2 s",
                 "No consumer was connected between two connections of c1.", (1.2, 2.4), 3, ("c1",), "",
                 "Nothing: the consumers joined afterwards.", ("5:1 published at 12:00:01.200",)),
        incident(7, "CUM_ACK_MISUSE", "Cannot tell whether c2 used cumulative acknowledgements",
                 "The deliveries contain no acknowledgement type.", (0, LENGTH), 1, ("c2",), "",
                 "Record the acknowledgement type.", ("5:1 → c2 at 12:00:01.000",), verdict="unknown"),
    )  # fmt: skip
    fault = KnownFault(
        "apache/pulsar#23870", "https://github.com/apache/pulsar/issues/23870", "Key_Shared delivers out of order",
        "looks like apache/pulsar#23870, fixed in 4.0.3", "Affects 4.0.0 to 4.0.2; fixed in 4.0.3.",
        "Upgrade the brokers.", 8,
    )  # fmt: skip
    return (replace(first, known_faults=(fault,)), *others)


def timeline(mapped: RangeMap, windows: int, step: float) -> RunTimeline:
    """Messages pile up from the middle on; each consumer joins, and c1 crashes and comes back."""
    names = list(dict.fromkeys(name for epoch in mapped.epochs for name in epoch.members))
    points, waiting = [], 0
    for i in range(windows):
        delivered = 400 if i < windows // 2 else 180
        waiting += 400 - delivered
        again = 40 if i == windows // 2 else 0
        points.append(TimelinePoint(us(i * step), us((i + 1) * step), 400, delivered, again, waiting))
    lanes = []
    for i, name in enumerate(names):
        joined, end = us(i * 0.6), us(windows * step)
        events, connected = [LaneEvent(joined, "join", "joined")], [(joined, end)]
        if name == "c1":
            left, back = us(windows * step * 0.3), us(windows * step * 0.4)
            events += [LaneEvent(left, "crash", "disconnected"), LaneEvent(back, "join", "joined")]
            connected = [(joined, left), (back, end)]
        stretches = tuple(
            LaneStretch(one.start_us, one.end_us, one.number, one.code == "STUCK")
            for one in incidents()
            if name in one.consumers
        )
        lanes.append(Lane(name, 1, tuple(connected), tuple(events), 0, stretches))
    return RunTimeline(tuple(points), tuple(lanes), len(names))


def known_fault(data: ReportData, url: str = "https://github.com/apache/pulsar/issues/23870") -> ReportData:
    """The report, whose first finding looks like a ticket."""
    ticket = "apache/pulsar#23870"
    incident = KnownFault(
        ticket, url, "Key_Shared delivers out of order <at times>", f"looks like {ticket}, fixed in 4.0.3",
        "Affects 4.0.0 to 4.0.2; fixed in 4.0.3.", "Upgrade the brokers.", 1,
    )  # fmt: skip
    first, *others = data.codes
    worst = (replace(first.worst[0], tickets=(ticket,)), *first.worst[1:])
    return replace(data, codes=(replace(first, worst=worst, incidents=(incident,)), *others))


def finding_points(rng: random.Random, names: list[str], windows: int, step: float) -> tuple[FindingPoint, ...]:
    often = {"KEY_TWO_OWNERS": 0.3, "KEY_ORDER": 0.1, "REDELIVERED": 0.5}
    return tuple(
        FindingPoint(at(i * step), code, rng.choice(names), rng.randrange(1, 60))
        for i in range(windows)
        for code, chance in often.items()
        if rng.random() < chance
    )


MS, SECOND = 1_000_000, 1_000_000_000


def blocked(rng: random.Random, names: list[str], hashes: int) -> tuple[Blocked, ...]:
    """Consumers that wait for the one that joined before them, or hashes that drain from it."""
    rows = []
    for i in range(hashes or len(names) - 1):
        who, holder = names[(i + 1) % len(names)], names[i % len(names)]
        place = f"hash {rng.randrange(SLOTS):,}" if hashes else ""
        why = "the hash drains" if hashes else "it joined recently"
        rows.append(Blocked(who, place, holder, why, at(12.5 + i), rng.randrange(1, 9_000) * MS, 1 + i % 3, 7 * i + 1,
                            not i))  # fmt: skip
    return tuple(rows)


def dispatch(rng: random.Random, name: str, consumers: int, seconds: float, slow: float = 1.0) -> DispatchView:
    """A backlog that grows until the end of the data and is drained afterwards."""
    names = [f"c{i + 1}" for i in range(consumers)]
    waits, hashes = blocked(rng, names, 0), blocked(rng, names, 40)
    share = [min(i / 40, (60 - i) / 20) for i in range(61)]
    backlog = tuple(
        BacklogPoint(at(i * seconds / 40), int(4_000 * slow * s), int(900 * min(s * 3, 1)))
        for i, s in enumerate(share)
    )  # fmt: skip
    bounds = (Bound("consumer", "c2", 1_900, int(seconds * slow * SECOND * 0.4)),
              Bound("hash", "31,007", 420, int(seconds * slow * SECOND * 0.1)))  # fmt: skip
    found = codes(seconds)[:2]
    return DispatchView(
        name, "pulsar.key_shared.consistent_hash", "pulsar-4.0", "lognormal, median 3 ms, sigma 0.5", 7,
        (("receiver queue", "1,000 messages"), ("negative acks", "1% after 60 s")),
        Latency(120_000, int(4 * MS * slow), int(900 * MS * slow), int(7 * SECOND * slow)),
        Latency(119_400, int(9 * MS * slow), int(1_400 * MS * slow), int(9 * SECOND * slow)),
        backlog, max(p.waiting + p.unacked for p in backlog), at(seconds),
        build_drain(4_900, int(seconds * slow * SECOND * 0.5), bounds),
        sum(w.blocked_ns for w in waits), select_longest(waits), len(waits), select_longest(hashes), len(hashes),
        Outcomes(120_000, 119_400, 200, 30, 0, 41, 0, 329), 512, 20,
        (DuplicateCause("nack", 300), DuplicateCause("disconnect", 212)),
        tuple(replace(c, source="predicted", count=c.count // 4) for c in found),
        tuple(FindingPoint(at(i), found[0].code, names[i % len(names)], 5) for i in range(10)),
    )  # fmt: skip


CANNOT = (
    "Whether a message was processed: the data has acknowledgements, not what the application did.",
    "Who owned a key between a subscribe call and its completion: only the broker knows.",
)


def report(
    consumers: int, epochs: int, points: int, windows: int, seconds: float, many: int = 8, valid: bool = False
) -> ReportData:
    """An audit; a ``valid`` one has no scenarios, and findings only of rules that count."""
    rng = random.Random(11)
    names = [f"c{i + 1}" for i in range(consumers)]
    mapped = range_map(rng, consumers, epochs, points, seconds, "orders")
    load = loads(rng, names, windows, seconds / windows)
    hot = tuple(
        HotKey(f"3fa9{i:02x}c1d0", 9_000 // (i + 1), 0.083 / (i + 1), 997 * i, names[i % consumers]) for i in range(10)
    )
    data = ReportData(
        schema_version=SCHEMA_VERSION,
        run=run_info(seconds),
        verdict="invalid",
        headline="1,204 messages reached a consumer while another still held an earlier message of the same key.",
        inputs=(
            InputCount("messages", 120_003, 120_000, 3, "3 without a publish time"),
            InputCount("membership", epochs, epochs, 0),
            InputCount("deliveries", 121_400, 121_400, 0),
        ),
        facts=(
            Fact("At the expected owner", "119,412 of 120,000", "outside transitions"),
            Fact("Longest wait of a key", "4.2 s", "key 3fa902, while c2 held 5:119"),
            Fact("Delivered again", "512", "of 120,000 messages"),
            Fact("Perfect balance would be", words_percent(1 / consumers), "of the messages each"),
        ),
        range_maps=(mapped,),
        range_maps_left_out=0,
        load=load,
        totals=totals(load, names),
        moves=moves(rng, mapped),
        moves_left_out=0,
        hot_keys=hot,
        codes=codes(seconds, many),
        findings_over_time=finding_points(rng, names, windows, seconds / windows),
        scenarios=scenarios(rng),
        cannot_tell=CANNOT,
        detail=DETAIL,
        incidents=incidents(),
        timeline=timeline(mapped, windows, seconds / windows),
        coverage=Coverage(120_000, 121_400, consumers, epochs, 0.9995, "", THRESHOLDS),
    )
    if not valid:
        return data
    clean = tuple(replace(c, status="clean", count=0, worst=()) if c.status in ("violated", "unknown") else c
                  for c in data.codes)  # fmt: skip
    kept = f"Every guarantee of {data.run.policy} under {data.run.profile} was kept."
    counted = tuple(point for point in data.findings_over_time if point.code != "KEY_TWO_OWNERS")
    return replace(data, verdict="valid", headline=kept, codes=clean, findings_over_time=counted, scenarios=(),
                   detail="", incidents=())  # fmt: skip


def words_percent(share: float) -> str:
    return f"{share:.0%}"


def replayed(data: ReportData) -> ReportData:
    rng = random.Random(5)
    views = (dispatch(rng, "as recorded", 3, 60), dispatch(rng, "10 consumers", 10, 60, 0.2))
    answers = find_best_scenarios(data.scenarios, views)
    recommendation = recommend_scenario(data.scenarios, views)
    return replace(data, dispatch=views, answers=answers, recommendation=recommendation)


def planned(data: ReportData) -> ReportData:
    """The answer of a plan: how many consumers are needed."""
    sizes = [(n, 16.0 / n) for n in range(2, 9)]
    rows = tuple((str(n), f"{busy * 12.5:.0f}%", f"{busy:.2f}×") for n, busy in sizes)
    bars = tuple(
        PlanBar(f"{n} consumers", busy / 8, None, f"{busy * 12.5:.0f}%", f"{n} consumers: busy {busy:.2f}", n == 4)
        for n, busy in sizes
    )
    view = PlanView(
        "consumers", "4 consumers", "busiest consumer", 0.5, 0.45, 0.11, "busy", "50% busy", "45% busy", "5 consumers",
        0.4, ("Service takes 2 s.", "The traffic is that of 2026-05-01."), ("With 20% more traffic: 5 consumers.",),
        (PlanTable("Consumers and how busy they are", ("consumers", "busiest", "skew"), (True, True, True), rows,
                   tuple(n == 4 for n, _ in sizes)),),
        (PlanText("Set the replicas", ("replicas: 4",)),),
        PlanBars("How busy the busiest consumer is", "share of the time", "", bars, 0.8, "80% busy"),
    )  # fmt: skip
    run = replace(data.run, kind="whatif", title="Consumers for billing")
    return replace(data, run=run, plans=(view,), scenarios=(), codes=(), findings_over_time=(), detail="", incidents=(),
                   coverage=None, headline="4 consumers are enough.")  # fmt: skip


def trend(letters: str) -> tuple[DayResult, ...]:
    """The results of days up to the first of May, by the first letter of each verdict."""
    days = [(START - timedelta(days=len(letters) - 1 - place)).date().isoformat() for place in range(len(letters))]
    verdicts = {"v": ("valid", 0), "u": ("unknown", 0), "i": ("invalid", 480), ".": (NO_RUN, None)}
    return tuple(DayResult(day, *verdicts[letter]) for day, letter in zip(days, letters, strict=True))


def overview() -> Overview:
    """Four subscriptions, the worst first."""
    rows = (
        OverviewRow("audit-log", "persistent://shop/prod/audit", "team-core", "failed", 4,
                    "The membership is missing."),
        OverviewRow("billing", "persistent://shop/prod/orders", "team-billing", "invalid", 1,
                    "480 of 600 messages were not delivered: consumer a blocks the subscription.", 600, 120, 480, 480,
                    479 * SECOND, 0.0, 1.0, "billing/report.html", 2,
                    "480 of 600 messages were not delivered: consumer a blocks the subscription",
                    trend("vvvv.vvvvvvuvvvvvvvvvvvvvvviii")),
        OverviewRow("shipping", "persistent://shop/prod/orders", "team-shipping", "unknown", 3,
                    "3 of 100 rows of deliveries are in quarantine.", 100, 97, 0, 0, 20 * MS, 0.012, 1.31,
                    "s/report.html", 0, "", trend("vvvviivvvvvvvvvvvvvvvvvvvvvvvu")),
        OverviewRow("search", "persistent://shop/prod/catalogue", "", "valid", 0, "Every guarantee was kept.", 120_000,
                    121_400, 0, 0, 4 * MS, 0.0117, 1.05, "search/report.html", 0, "",
                    trend("....................vvvvvvvvvv")),
    )  # fmt: skip
    return Overview(OVERVIEW_VERSION, "Subscriptions of shop/prod", "2026-05-01", rows)


def daily_history() -> History:
    """Thirty days of two subscriptions, of which one fails since three days."""
    days = trend("vvvv.vvvvvvuvvvvvvvvvvvvvvviii")
    rule = RuleHistory("STALLED", "No consumer makes progress", trend("." * 27 + "iii"))
    topic = "persistent://shop/prod/orders"
    episode = Episode("billing", topic, ("STALLED",), "invalid", days[-3].date, False, "", 1_440,
                      "480 of 600 messages were not delivered: consumer a blocks the subscription")  # fmt: skip
    subscriptions = (
        SubscriptionHistory("billing", topic, days, (rule,)),
        SubscriptionHistory("search", topic, trend("v" * 30), ()),
    )
    return History(HISTORY_VERSION, days[0].date, days[-1].date, subscriptions, (episode,))


def poisoned(data: ReportData) -> ReportData:
    evil = EVIL + "\x1b[31m\u202e"
    finding = FindingView(at(3), evil, evil, evil, evil, evil, (evil,))
    bad_map = replace(
        data.range_maps[0],
        scope=evil,
        epochs=tuple(
            replace(
                e,
                cause=evil,
                members=(evil, *e.members),
                bands=tuple(replace(b, consumer=evil) for b in e.bands),
                shares=(SlotShare(evil, 1.0),),
            )
            for e in data.range_maps[0].epochs
        ),
    )
    pair = ((evil, evil),)
    return replace(
        data,
        headline=evil,
        detail=evil,
        incidents=tuple(
            replace(
                i, title=evil, detail=evil, code=evil, rules=(RuleCount(evil, evil, "invalid", 1),), lasted=evil,
                consumers=(evil,), scopes=(evil,), causes=(evil,), attribution=evil, example=finding, next_step=evil,
                known_faults=(KnownFault(evil, f"javascript:{evil}", evil, evil, evil, evil, 1),),
            )
            for i in data.incidents
        ),
        run=replace(data.run, title=evil, subscription=evil, topic=evil, options=pair, versions=pair),
        range_maps=(bad_map,),
        facts=(Fact(evil, evil, evil),),
        inputs=(InputCount(evil, 1, 1, 0, evil),),
        load=tuple(replace(p, consumer=evil) for p in data.load if p.consumer == "c1"),
        totals=(replace(data.totals[0], consumer=evil, note=evil),),
        answers=(Answer(evil, "skew", evil, evil, (evil,), 2),),
        recommendation=Recommendation(evil, evil, evil, evil, (evil,)),
        moves=tuple(replace(m, before=evil, after=evil, cause=evil) for m in data.moves),
        hot_keys=tuple(replace(k, key=evil, consumer=evil) for k in data.hot_keys),
        codes=tuple(replace(c, code=evil, title=evil, meaning=evil, note=evil, worst=(finding,)) for c in data.codes),
        findings_over_time=tuple(replace(p, code=evil, consumer=evil) for p in data.findings_over_time),
        scenarios=tuple(
            replace(s, name=evil, policy=evil, note=evil, unowned=1, unowned_why=evil,
                    per_consumer=(replace(s.per_consumer[0], consumer=evil, note=evil),))
            for s in data.scenarios
        ),
        cannot_tell=(evil,),
        timeline=data.timeline and replace(
            data.timeline,
            lanes=tuple(
                replace(lane, name=evil, events=tuple(replace(one, text=evil) for one in lane.events))
                for lane in data.timeline.lanes
            ),
        ),
        dispatch=tuple(
            replace(
                v, name=evil, policy=evil, profile=evil, service=evil, settings=pair, note=evil,
                drain=replace(v.drain, limit=evil, bounds=(Bound("hash", evil, 1, 1),)),
                blocked_consumers=(Blocked(evil, evil, evil, evil, evil, 1, 1, 1, True),), blocked_hashes=(),
                duplicates=(DuplicateCause(evil, 1),),
                codes=tuple(replace(c, code=evil, title=evil, meaning=evil, worst=(finding,)) for c in v.codes),
                findings_over_time=tuple(replace(p, code=evil, consumer=evil) for p in v.findings_over_time),
            )
            for v in data.dispatch
        ),
    )  # fmt: skip
