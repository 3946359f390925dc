"""The terminal summary: readable at 100 columns, plain where it is not a terminal, never steered by names."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console

from subreplay.reports.data import ReportData
from subreplay.reports.text import render, to_text
from subreplay.reports.text_table import MAX_TABLE_ROWS
from tests.reports.made_reports import known_fault


def test_the_text_is_as_it_was(
    small: ReportData, bare: ReportData, dispatched: ReportData, snapshot: Callable[[str, str], None]
) -> None:
    snapshot("small.txt", to_text(small))
    snapshot("bare.txt", to_text(bare))
    snapshot("dispatched.txt", to_text(dispatched))


@pytest.mark.parametrize("name", ["small", "large", "hostile", "dispatched"])
def test_no_line_is_longer_than_a_hundred_columns(name: str, request: pytest.FixtureRequest) -> None:
    lines = to_text(request.getfixturevalue(name)).splitlines()
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("verdict", ["valid", "unknown", "invalid"])
def test_the_verdict_is_the_first_word_with_colour_and_without(small: ReportData, verdict: str) -> None:
    data = replace(small, verdict=verdict)
    assert to_text(data).split()[1] == verdict.upper()
    sink = io.StringIO()
    render(data, Console(file=sink, force_terminal=True, color_system="standard", width=100, legacy_windows=False))
    first = sink.getvalue().splitlines()[0]
    assert verdict.upper() in first
    assert "\x1b[1;3" in first  # bold and a colour


def test_a_file_or_pipe_gets_no_escape_sequences(hostile: ReportData) -> None:
    text = to_text(hostile)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert r"\x1b[31m" in text  # shown, not obeyed


def test_markup_in_a_name_is_text(small: ReportData) -> None:
    total = replace(small.totals[0], consumer="[red]c1[/red] :boom:")
    assert "[red]c1[/red] :boom:" in to_text(replace(small, totals=(total,)))


def test_a_rule_that_was_not_decided_has_no_count(small: ReportData) -> None:
    lines = {line.split()[0]: line for line in to_text(small).splitlines() if line.strip()}
    assert " – " in lines["CUM_ACK_MISUSE"]
    assert " – " in lines["PARTITION_ORDER"]
    assert " 0 " in lines["WRONG_OWNER"]


def test_many_consumers_are_counted_beyond_the_first(small: ReportData) -> None:
    many = tuple(replace(small.totals[0], consumer=f"worker-{i}") for i in range(MAX_TABLE_ROWS + 7))
    text = to_text(replace(small, totals=many))
    assert f"worker-{MAX_TABLE_ROWS - 1} " in text
    assert f"worker-{MAX_TABLE_ROWS} " not in text
    assert "and 7 more in report.json" in text


def test_sections_without_data_are_left_out(bare: ReportData, small: ReportData) -> None:
    assert "Dispatch replay" not in to_text(small)
    for title in ("Rules", "Load per consumer", "Scenarios over the same traffic", "Limits of the data"):
        assert title in to_text(small)
        assert title not in to_text(bare)


def test_a_finding_that_resembles_a_known_fault_names_its_ticket_and_what_to_do(small: ReportData) -> None:
    text = " ".join(to_text(known_fault(small)).split())
    assert "; looks like apache/pulsar#23870, fixed in 4.0.3" in text
    assert "Known upstream faults" not in to_text(small)
    told = text[text.index("Known upstream faults that findings look like") :]
    assert "KEY_TWO_OWNERS apache/pulsar#23870 Key_Shared delivers out of order <at times>. Affects" in told
    assert "Upgrade the brokers. https://github.com/apache/pulsar/issues/23870" in told
