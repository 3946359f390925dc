"""How large a cluster a day needs, by figures of a benchmark."""

import json
from pathlib import Path

import pytest

from tests.bench import figures, sizing
from tests.bench.cores import DRIVER, MILLION, WHOLE, Ran, Stage, by_stage, idle, makespan, part, stages, waves

DOCS = Path(__file__).parents[2] / "docs"
FIGURES = {"core_seconds": 14.4, "shuffled_MB": 50.0, "hot_seconds": 7.2}


def test_a_day_takes_as_long_as_all_cores_or_as_its_busiest_partition():
    assert sizing.hours(FIGURES, 1_000, 4, 1 / 64) == pytest.approx(1.0)  # 14,400 core seconds, on four cores
    assert sizing.hours(FIGURES, 1_000, 16, 1 / 64) == pytest.approx(0.25)
    assert sizing.hours(FIGURES, 1_000, 16, 0.5) == pytest.approx(1.0)  # 500 million of one partition
    assert sizing.hours(FIGURES, 1_000, 64, 0.5) == pytest.approx(1.0)  # more cores are no help


def test_tables_say_what_a_million_costs_and_a_day():
    reported = {"commit": "1a2b3c4", "machine": {"cores": 2, "cpu": "a test's"}, "figures": {MILLION: FIGURES}}
    lines = [*sizing.lines(reported)]
    assert lines[0] == "Measured at commit 1a2b3c4 with 2 cores of a test's:"
    assert "| work of all tasks | 14.4 core seconds |" in lines
    assert "| 1 billion deliveries: the busiest topic partition has | 4 cores | 16 cores | 64 cores |" in lines
    assert lines[-2:] == ["| 10.0% of them | 1.0 h | 0.2 h | 0.2 h |", "| 50.0% of them | 1.0 h | 1.0 h | 1.0 h |"]


def test_the_chapter_says_what_the_figures_beside_it_say():
    reported = json.loads((DOCS / "assets" / "figures.json").read_text(encoding="utf-8"))
    text = (DOCS / "explanation" / "performance.md").read_text(encoding="utf-8")
    assert "\n".join(sizing.lines(reported)) in text


def test_the_driver_table_has_the_largest_audit_by_stage_and_the_share_without_tasks():
    names, small = ("first", "later", "tasks_4", "tasks_16", "tasks_64"), f"{DRIVER}0.5 M: {WHOLE}"
    row = dict(zip(names, (3.0, 1.0, 9.0, 3.0, 1.0), strict=True))
    reported = {
        "figures": {small: dict.fromkeys(names, 9.0), f"{DRIVER}4 M: judging": row, f"{DRIVER}4 M: {WHOLE}": row}
    }
    assert [*sizing.driver_lines(reported)] == [
        "| 4 M | no task, first | no task, later | tasks, 4 cores | tasks, 16 cores | tasks, 64 cores |",
        "|---|--:|--:|--:|--:|--:|",
        "| judging | 3.0 s | 1.0 s | 9.0 s | 3.0 s | 1.0 s |",
        "| the whole audit | 3.0 s | 1.0 s | 9.0 s | 3.0 s | 1.0 s |",
        "| share of it in which no task runs | | | 10% | 25% | 50% |",
    ]


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


def test_no_task_runs_between_stages_and_before_and_after_them():
    ran = [Stage("a", 2, 5, (3.0,), 1), Stage("b", 3, 4, (1.0,), 2), Stage("c", 7, 9, (2.0, 1.0), 4)]
    assert idle(0, 10, ran) == 2 + 2 + 1
    assert idle(4, 8, ran) == 2  # a is still running, c has begun
    assert idle(20, 21, ran) == 1
    assert part(0, 6, ran) == Ran(6, 3, [[3.0, 1.0]], 3)
    assert part(6, 10, ran) == Ran(4, 2, [[2.0, 1.0]], 4)


def test_the_bench_prints_seconds_without_tasks_by_stage_of_the_story(monkeypatch):
    monkeypatch.setattr(figures, "_told", {})
    first, later = {"judging": Ran(5, 4, [[1.0]], 0)}, {"judging": Ran(5, 2, [[3.0, 3.0], [2.0]], 0)}
    _, line = by_stage("4 M", first, later)
    assert " ".join(line.split()) == "judging 4.0 2.0 8.0 5.0 5.0 5.0 5.0"
    assert figures.found()["figures"][f"{DRIVER}4 M: judging"] == {
        "first": 4, "later": 2, "tasks_1": 8, "tasks_2": 5, "tasks_4": 5, "tasks_16": 5, "tasks_64": 5,
    }  # fmt: skip


def test_a_stage_lasts_from_its_first_task_to_its_last():
    task = '{"Event": "SparkListenerTaskEnd", "Stage ID": 7, "Task Info": {"Launch Time": 1000, "Finish Time": 3000},'
    task += ' "Task Metrics": {"Shuffle Write Metrics": {"Shuffle Bytes Written": 5}}}'
    info = '{"Stage ID": 7, "Stage Name": "collect", "Submission Time": 900, "Completion Time": 3100}'
    log = [task, task, '{"Event": "SparkListenerStageCompleted", "Stage Info": ' + info + "}", '{"Event": "Other"}']
    assert stages(log) == [Stage("collect", 1.0, 3.0, (2.0, 2.0), 10)]
