"""What is said where: a moving line on a terminal, elsewhere a line for each stage; no name steers the terminal."""

import json
import time

import pytest
from rich.console import Console

from subreplay.cli.terminal import Terminal


@pytest.fixture
def terminal(capfd):
    return Terminal()


def test_elsewhere_than_on_a_terminal_a_stage_is_a_line_with_the_seconds_so_far(terminal, capfd):
    with terminal.progress("judging"):
        assert capfd.readouterr().err == "   0.0 s  judging\n"
    assert capfd.readouterr() == ("", "")


def test_on_a_terminal_a_stage_is_a_line_that_moves_with_its_seconds_and_goes(terminal, capfd):
    terminal.err = Console(stderr=True, force_terminal=True)
    with terminal.progress("judging [1/2]"):
        time.sleep(0.3)
    said = capfd.readouterr().err
    assert "judging [1/2]" in said
    assert "0:00:00" in said
    assert said.endswith("\x1b[2K")


def test_a_result_is_one_of_standard_output_whatever_moves(terminal, capfd):
    terminal.err = Console(stderr=True, force_terminal=True)
    with terminal.progress("judging"):
        terminal.print_line("found")
    assert capfd.readouterr().out == "found\n"


@pytest.mark.parametrize("on_terminal", [True, False])
def test_a_quiet_command_says_no_stage(terminal, capfd, on_terminal):
    terminal.err = Console(stderr=True, force_terminal=on_terminal)
    terminal.configure(quiet=True)
    with terminal.progress("judging"):
        pass
    assert capfd.readouterr() == ("", "")


def test_what_comes_from_data_is_neither_markup_nor_an_escape_sequence(terminal, capfd):
    terminal.print_line("[/red]\x1b[31m\u202e:smile:" + "x" * 300)
    terminal.warn("[bold]\x07\nsecond")
    out, err = capfd.readouterr()
    assert out == "[/red]\\x1b[31m\\u202e:smile:" + "x" * 300 + "\n"
    assert err == "[bold]\\x07\nsecond\n"


def test_json_mode_prints_one_object_and_nothing_else(terminal, capfd):
    terminal.configure(as_json=True)
    terminal.print_line("a line")
    terminal.print_failure("no space is left", 4)
    out, err = capfd.readouterr()
    assert json.loads(out) == {"schema_version": "1.0", "exit_code": 4, "error": "no space is left", "log": None}
    assert err == "subreplay: no space is left\n"
