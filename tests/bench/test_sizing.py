"""How large a cluster a day needs, by figures of a benchmark."""

import json
from pathlib import Path

import pytest

from tests.bench import sizing
from tests.bench.cores import MILLION, Stage, makespan, stages, waves

DOCS = Path(__file__).parents[2] / "docs"
FIGURES = {"core_seconds": 14.4, "shuffled_MB": 50.0, "hot_seconds": 7.2}


def test_a_day_takes_as_long_as_all_cores_or_as_its_busiest_partition():
    assert sizing.hours(FIGURES, 1_000, 4, 1 / 64) == pytest.approx(1.0)  # 14,400 core seconds, on four cores
    assert sizing.hours(FIGURES, 1_000, 16, 1 / 64) == pytest.approx(0.25)
    assert sizing.hours(FIGURES, 1_000, 16, 0.5) == pytest.approx(1.0)  # 500 million of one partition
    assert sizing.hours(FIGURES, 1_000, 64, 0.5) == pytest.approx(1.0)  # more cores are no help


def test_tables_say_what_a_million_costs_and_a_day():
    told = {"commit": "1a2b3c4", "machine": {"cores": 2, "cpu": "a test's"}, "figures": {MILLION: FIGURES}}
    lines = [*sizing.lines(told)]
    assert lines[0] == "Measured at commit 1a2b3c4 with 2 cores of a test's:"
    assert "| work of all tasks | 14.4 core seconds |" in lines
    assert "| 1 billion deliveries: the busiest topic partition has | 4 cores | 16 cores | 64 cores |" in lines
    assert lines[-2:] == ["| 10.0% of them | 1.0 h | 0.2 h | 0.2 h |", "| 50.0% of them | 1.0 h | 1.0 h | 1.0 h |"]


def test_the_chapter_says_what_the_figures_beside_it_say():
    told = json.loads((DOCS / "assets" / "figures.json").read_text(encoding="utf-8"))
    assert "\n".join(sizing.lines(told)) in (DOCS / "explanation" / "performance.md").read_text(encoding="utf-8")


def test_tasks_of_one_wave_share_cores_and_no_number_of_cores_makes_the_longest_shorter():
    first, beside, after = (
        Stage("a", 0, 4, (1.0, 3.0), 10),
        Stage("b", 1, 3, (2.0,), 0),
        Stage("c", 5, 6, (1.0,), 0),
    )
    assert [*waves([first, beside, after])] == [[first, beside], [after]]
    assert makespan((1.0, 3.0, 2.0), 1) == 6
    assert makespan((1.0, 3.0, 2.0), 2) == 3
    assert makespan((1.0, 3.0, 2.0), 64) == 3


def test_stages_are_read_from_an_event_log():
    task = '{"Event": "SparkListenerTaskEnd", "Stage ID": 7, "Task Info": {"Launch Time": 1000, "Finish Time": 3000},'
    task += ' "Task Metrics": {"Shuffle Write Metrics": {"Shuffle Bytes Written": 5}}}'
    info = '{"Stage ID": 7, "Stage Name": "collect", "Submission Time": 900, "Completion Time": 3100}'
    log = [task, task, '{"Event": "SparkListenerStageCompleted", "Stage Info": ' + info + "}", '{"Event": "Other"}']
    assert stages(log, 0) == [Stage("collect", 0.9, 3.1, (2.0, 2.0), 10)]
    assert stages(log, 1) == []
