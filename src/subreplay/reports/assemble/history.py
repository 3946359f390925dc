"""Build the history of subscriptions from the rows of earlier daily runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date as Date
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa

from subreplay.audit.codes import Code
from subreplay.audit.rules.registry import RULES
from subreplay.reports.history_data import (
    HISTORY_VERSION,
    NO_RUN,
    DayResult,
    Episode,
    History,
    RuleHistory,
    SubscriptionHistory,
)

FINDING_DAYS: Final = pa.schema(
    [
        pa.field("subscription", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("date", pa.date32()),
        pa.field("code", pa.string()),
        pa.field("verdict", pa.string()),
        pa.field("count", pa.int64()),
    ]
)
"""The number of findings of a rule on a day that are not *valid*."""
_WORST_FIRST: Final = ("invalid", "unknown", "valid", NO_RUN)
_Key = tuple[str, str]  # subscription and topic
_Rows = Sequence[Mapping[str, Any]]


def build_history(runs: _Rows, findings: _Rows, incidents: _Rows, last: Date, days: int) -> History:
    """Build the history of ``days`` up to the day ``last``.

    ``runs`` and ``incidents`` are rows of these tables, and ``findings`` are ``FINDING_DAYS``.
    """
    dates = [last - timedelta(days=days - 1 - each) for each in range(days)]
    titles: dict[tuple[_Key, Date, str], str] = {}
    for row in sorted(incidents, key=lambda row: -int(row["number"])):  # the most severe incident last
        for code in row["codes"]:
            titles[_get_key(row), row["date"], code] = row["title"]
    by_rule: dict[_Key, dict[str, dict[Date, dict[str, int]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(lambda: defaultdict(int)))
    )
    for row in findings:
        by_rule[_get_key(row)][row["code"]][row["date"]][row["verdict"]] += row["count"]
    found, episodes = [], []
    for (subscription, topic), results in build_day_results(runs, dates).items():
        key = subscription, topic
        rules = tuple(
            RuleHistory(code, _find_title(code), tuple(_build_rule_day(by_day, day) for day in dates))
            for code, by_day in sorted(by_rule[key].items())
        )
        found.append(SubscriptionHistory(subscription, topic, results, rules))
        for rule in rules:
            for episode in _find_episodes(rule, results):
                began = Date.fromisoformat(episode[0].date)
                title = titles.get((key, began, rule.code), rule.title)
                episodes.append(_build_episode(key, rule, episode, results, title))
    return History(
        HISTORY_VERSION,
        dates[0].isoformat(),
        last.isoformat(),
        tuple(sorted(found, key=_rank_subscription)),
        tuple(sorted(_merge_episodes(episodes), key=_rank_episode)),
    )


def build_day_results(runs: _Rows, dates: Sequence[Date]) -> dict[_Key, tuple[DayResult, ...]]:
    """Build the result of each date for each subscription and topic, from rows of table ``runs``."""
    by_key: dict[_Key, dict[Date, DayResult]] = defaultdict(dict)
    wanted = {*dates}
    for row in runs:
        if row["date"] in wanted:
            result = DayResult(row["date"].isoformat(), row["verdict"], row.get("findings"))
            by_key[_get_key(row)][row["date"]] = result
    return {
        key: tuple(by_day.get(day, DayResult(day.isoformat())) for day in dates)
        for key, by_day in sorted(by_key.items())
    }


def _get_key(row: Mapping[str, Any]) -> _Key:
    return row["subscription"] or "", row["topic"] or ""


def _find_title(code: str) -> str:
    return RULES[Code[code]].title if code in Code.__members__ else code  # a later version may have other rules


def _build_rule_day(by_day: Mapping[Date, Mapping[str, int]], day: Date) -> DayResult:
    counts = by_day.get(day, {})
    worst = min(counts, key=_WORST_FIRST.index, default=NO_RUN)
    return DayResult(day.isoformat(), worst, sum(counts.values()) if counts else None)


def _find_episodes(rule: RuleHistory, runs: Sequence[DayResult]) -> Iterator[list[DayResult]]:
    """Yield the failing days of each episode. A day whose run proves nothing does not end an episode."""
    failing: list[DayResult] = []
    for day, run in zip(rule.days, runs, strict=True):
        if day.findings:
            failing.append(day)
        elif failing and run.verdict in ("valid", "invalid"):
            yield failing
            failing = []
    if failing:
        yield failing


def _build_episode(
    key: _Key, rule: RuleHistory, failing: Sequence[DayResult], runs: Sequence[DayResult], title: str
) -> Episode:
    judged = [run.date for run in runs if run.verdict != NO_RUN]
    began = failing[0].date
    after = [run.date for run in runs if run.date > failing[-1].date and run.verdict in ("valid", "invalid")]
    return Episode(
        *key,
        codes=(rule.code,),
        verdict=min((day.verdict for day in failing), key=_WORST_FIRST.index),
        began=began,
        from_first_run=began == judged[0],
        ended=after[0] if after else "",
        findings=sum(day.findings or 0 for day in failing),
        title=title,
    )


def _rank_subscription(found: SubscriptionHistory) -> tuple[int, int, str, str]:
    return _WORST_FIRST.index(found.latest.verdict), -found.count_days("invalid"), found.subscription, found.topic


def _merge_episodes(episodes: Iterable[Episode]) -> Iterator[Episode]:
    """Merge the episodes of an incident that began and ended together."""
    merged: dict[tuple[str, ...], Episode] = {}
    for each in episodes:
        name = each.subscription, each.topic, each.began, each.ended, each.title
        other = merged.get(name)
        merged[name] = each if other is None else replace(
            other,
            codes=(*other.codes, *each.codes),
            verdict=min(other.verdict, each.verdict, key=_WORST_FIRST.index),
            findings=other.findings + each.findings,
        )  # fmt: skip
    yield from merged.values()


def _rank_episode(episode: Episode) -> tuple[int, int, int, str, str, tuple[str, ...]]:
    """Rank the latest change first."""
    day = Date.fromisoformat(episode.ended or episode.began).toordinal()
    worst = _WORST_FIRST.index(episode.verdict)
    return -day, worst, -episode.findings, episode.subscription, episode.topic, episode.codes
