"""The command line without Spark: usage, exit codes, messages, and the documented explanations to the letter."""

import json
import logging
import os
import re
import signal
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from subreplay import __version__
from subreplay.adapters import ADAPTERS
from subreplay.audit.explain.position import Position
from subreplay.cli import main
from subreplay.cli.terminal import Terminal
from subreplay.engine.spark import session
from subreplay.errors import InputError
from subreplay.pipeline import engines, story
from subreplay.reports import text as reports_text
from subreplay.reports import write as reports_write
from subreplay.reports.write import ReportPaths
from subreplay.rows.model.rows import Verdict
from tests.reports import made_reports
from tests.support.no_spark import Session
from tests.support.snapshots import snapshot

ROOT = Path(__file__).parents[1]
COMMANDS = ("audit", "whatif", "ingest", "explain", "report", "demo", "config")


@pytest.fixture
def spoken(capsys, monkeypatch):
    """Run a command; what it returned, and what it said on stdout and stderr."""
    monkeypatch.setattr(session, "open_session", no_session)

    def run(*arguments: object) -> tuple[int, str, str]:
        code = main.main([str(a) for a in arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture(autouse=True)
def nobody_has_a_session(monkeypatch):
    """Whatever ran before in this process."""
    monkeypatch.setattr(engines, "has_session_elsewhere", lambda: False)
    monkeypatch.setattr(session, "find_active_session", lambda: None)


def no_session(options: object) -> None:
    raise AssertionError("this needs no Spark session")


@pytest.fixture
def run_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("conf") / "run.yaml"

    def write(text: str = "") -> Path:
        path.write_text(text, encoding="utf-8")
        return path

    return write


# usage


def test_help_names_every_command_and_every_exit_code(spoken):
    code, out, _ = spoken("--help")
    assert code == 0
    assert all(f" {command} " in out for command in COMMANDS)
    assert (
        "0 valid, 1 violations, 2 bad input or configuration, 3 unknown, 4 the environment failed, 130 interrupted"
    ) in " ".join(out.split())


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(spoken, command):
    code, out, _ = spoken(command, "--help")
    assert (code, f"Usage: subreplay {command}" in out) == (0, True)


def test_version(spoken):
    assert spoken("--version") == (0, f"subreplay {__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--colour"], "No such option: --colour"),
        (["autid"], "No such command 'autid'"),
        (["audit"], "Missing option '--config'"),
        (["audit", "--confg", "run.yaml"], "No such option: --confg"),
        (["explain", "--config", "run.yaml"], "pass either --key or --message"),
        (["explain", "--config", "run.yaml", "--key", "a", "--message", "t:1:2"], "pass either --key or --message"),
        (["report", "--out", "x"], "Missing argument"),
        (["config", "surplus"], "Got unexpected extra argument"),
    ],
)
def test_wrong_usage_is_2_and_shows_usage(spoken, arguments, complaint):
    code, out, err = spoken(*arguments)
    assert (code, out) == (2, "")
    assert "Usage: subreplay" in err
    assert complaint in err


def test_an_option_without_its_value_is_2(spoken):
    assert spoken("audit", "--config") == (2, "", "Error: Option '--config' requires an argument.\n")


def test_no_command_shows_help(spoken):
    code, out, err = spoken()
    assert code == 2
    assert "Usage: subreplay" in out + err


# bad input and configuration: 2, and what to do


def test_a_missing_run_file(spoken):
    code, out, err = spoken("audit", "--config", "nowhere.yaml")
    assert (code, out) == (2, "")
    assert err == "subreplay: nowhere.yaml: cannot be read: No such file or directory; check the name\n"


def test_an_unknown_key(spoken, run_file):
    code, _, err = spoken("audit", "--config", run_file("subscription: {polcy: x}"))
    assert (code, err) == (2, f"subreplay: {run_file()}:1: unknown key subscription.polcy; did you mean 'policy'?\n")


def test_a_bad_policy(spoken, run_file):
    code, _, err = spoken("audit", "--config", run_file("subscription: {policy: pulsar.keyshared}"))
    assert code == 2
    assert f"{run_file()}:1: subscription: unknown policy 'pulsar.keyshared'. Use one of the nearest names: " in err


def test_a_long_message_is_not_cut_into_lines(spoken, run_file):
    _, _, err = spoken("audit", "--config", run_file(f"windows: {{{'w' * 200}: 1}}"))
    assert err.count("\n") == 1


def test_markup_in_a_message_is_text(spoken, run_file):
    _, _, err = spoken("audit", "--config", run_file("windows: {'[bold]': 1}"))
    assert "unknown key windows.[bold]" in err


def test_a_date_that_does_not_exist(spoken, run_file):
    code, _, err = spoken("audit", "--config", run_file(), "--date", "2026-02-30")
    assert (code, err) == (2, "subreplay: --date '2026-02-30': day is out of range for month\n")


def test_a_what_if_without_scenarios(spoken, run_file):
    code, _, err = spoken("whatif", "--config", run_file())
    assert (code, err) == (2, f"subreplay: {run_file()}: scenarios is empty; a what-if needs at least one\n")


def test_an_unknown_adapter(spoken, tmp_path):
    code, _, err = spoken("ingest", tmp_path, "--to", tmp_path, "--from", "carrier-pigeon")
    assert code == 2
    assert err == f"subreplay: --from carrier-pigeon: no such adapter; there are: {', '.join(ADAPTERS)}\n"


def test_an_unknown_format(spoken, tmp_path):
    code, _, err = spoken("ingest", tmp_path, "--to", tmp_path, "--format", "csv")
    assert (code, err) == (2, "subreplay: --format csv: write delta or parquet\n")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"junk", "not a report: "),
        (b"\xff\xfe", "'utf-8' codec can't decode"),
        (b"[]", "cannot read a report of schema version none"),
        (b"{}", "cannot read a report of schema version None"),
    ],
)
def test_what_is_no_report(spoken, tmp_path, content, complaint):
    path = tmp_path / "report.json"
    if content is not None:
        path.write_bytes(content)
    code, _, err = spoken("report", path, "--out", tmp_path / "again")
    assert code == 2
    assert err.startswith(f"subreplay: {path}: {complaint}")
    assert not (tmp_path / "again").exists()


# verdicts


@dataclass
class Stub:
    """A pipeline that has done its work."""

    verdict: Verdict
    report: object = None

    def __call__(self, engine: object, run: object, progress: object) -> story.Result:
        self.run = run
        return story.Result(self.verdict, self.report)  # type: ignore[arg-type]


@pytest.fixture
def finished(monkeypatch, here):
    """Replace the pipeline by one that finds ``verdict``; the report is written to nowhere."""
    written: list[Path] = []

    def write(report: object, folder: Path) -> ReportPaths:
        written.append(folder)
        return ReportPaths(folder / "report.html", folder / "report.json", folder / "report.txt")

    def install(verdict: Verdict, command: str = "audit") -> Stub:
        stub = Stub(verdict)
        monkeypatch.setattr(story, command, stub)
        monkeypatch.setattr(reports_write, "write_reports", write)
        monkeypatch.setattr(reports_text, "render", lambda report, console, **more: written.append(Path("terminal")))
        stub.written = written  # type: ignore[attr-defined]
        return stub

    return install


@pytest.mark.parametrize(("verdict", "code"), [(Verdict.VALID, 0), (Verdict.INVALID, 1), (Verdict.UNKNOWN, 3)])
def test_the_verdict_is_the_exit_code_and_the_report_comes_first(spoken, finished, run_file, verdict, code):
    stub = finished(verdict)
    returned, out, _ = spoken("audit", "--config", run_file())
    assert returned == code
    assert stub.written == [Path("build/report"), Path("terminal")]
    assert out == f"report: {Path('build/report/report.html').resolve()} (figures: report.json)\n"


def test_options_win_over_the_run_file(spoken, finished, run_file):
    stub = finished(Verdict.VALID)
    text = "traffic: {path: a, format: parquet}\noutput: {tables: b, report: c}\ndate: 2026-01-01\n"
    spoken("audit", "--config", run_file(text), "--date", "2026-11-21", "--tables", "in", "--out", "o")
    assert (stub.run.traffic.path, stub.run.traffic.format) == ("in", "parquet")
    assert (stub.run.output.tables, stub.run.output.report, str(stub.run.date)) == (
        "o/tables",
        "o/report",
        "2026-11-21",
    )


def test_a_what_if_that_worked_is_0(spoken, finished, run_file):
    finished(Verdict.VALID, "whatif")
    assert spoken("whatif", "--config", run_file("scenarios: [{name: a, policy: pulsar.shared}]"))[0] == 0


def test_interrupted_is_130(spoken, run_file, monkeypatch):
    def interrupt(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(story, "audit", interrupt)
    assert spoken("audit", "--config", run_file())[0] == 130


@pytest.fixture
def broken_off(spoken, run_file, monkeypatch, here):
    """An audit on Spark, whose session ends in an error when it starts; what was said, and what stands in the log
    file."""

    def run(error: BaseException, *options: str) -> tuple[int, str, str, str]:
        def break_off(spark: object) -> None:
            raise error

        monkeypatch.setattr(session, "open_session", break_off)
        code, out, err = spoken("audit", "--config", run_file("engine: spark"), *options)
        return code, out, err, (here / "build/report/subreplay.log").read_text(encoding="utf-8")

    return run


def test_a_bug_exits_with_4_and_one_sentence_with_the_path_of_the_traceback(broken_off, here):
    code, _, err, log = broken_off(KeyError("batch_index"))
    assert code == 4
    assert err.splitlines()[1:] == [
        "subreplay: this is a bug in subreplay, please report it with the log: KeyError: 'batch_index'",
        f"log: {here / 'build/report/subreplay.log'}",
    ]
    assert log.startswith("Traceback")
    assert log.endswith("KeyError: 'batch_index'\n\n")


def test_a_failure_is_a_json_object_in_json_mode(broken_off, here):
    code, out, _, _ = broken_off(OSError(28, "No space left on device", "/data/part-0"), "--json")
    assert code == 4
    assert json.loads(out) == {
        "schema_version": "1.0",
        "exit_code": 4,
        "error": "/data/part-0: cannot be read or written: No space left on device; free some space",
        "log": str(here / "build/report/subreplay.log"),
    }


def test_a_log_file_does_not_follow_a_symbolic_link(spoken, run_file, here):
    (here / "precious").write_text("unchanged")
    (here / "build/report").mkdir(parents=True)
    (here / "build/report/subreplay.log").symlink_to(here / "precious")
    code, _, err = spoken("audit", "--config", run_file(""))
    assert code == 4
    assert "build/report/subreplay.log: this is a symbolic link, which a log file does not follow. Remove it" in err
    assert (here / "precious").read_text() == "unchanged"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("cancelled", [True, False])
def test_a_signal_ends_a_command(spoken, finished, run_file, monkeypatch, number, code, cancelled):
    finished(Verdict.VALID)

    def interrupted(engine: object, run: object, progress: object) -> None:
        try:
            os.kill(os.getpid(), number)
            signal.pause()
        except KeyboardInterrupt:
            raise RuntimeError("the job was cancelled") if cancelled else KeyboardInterrupt from None

    monkeypatch.setattr(story, "audit", interrupted)
    returned, _, err = spoken("audit", "--config", run_file())
    said = err.splitlines()[-1]
    assert (returned, said) == (code, "subreplay: interrupted; each table is either unchanged or complete")


@pytest.mark.parametrize(
    ("error", "code"),
    [(KeyboardInterrupt(), 130), (InputError("no table"), 2), (OSError(28, "full", "/data"), 4), (KeyError("x"), 4)],
)
def test_a_page_of_an_earlier_run_is_not_taken_for_that_of_one_that_broke_off(broken_off, here, error, code):
    assert "earlier run" not in broken_off(error)[2]
    (here / "build/report/report.html").write_text("<html>", encoding="utf-8")
    returned, _, err, _ = broken_off(error)
    assert returned == code
    assert ". build/report/report.html is the page of an earlier run\n" in err


def test_a_report_folder_that_cannot_be_written_is_known_before_the_run(spoken, run_file):
    code, _, err = spoken("audit", "--config", run_file(), "--out", "/proc/nowhere")
    assert code == 4
    assert err.startswith("subreplay: /proc/nowhere/report: cannot be written: ")


def test_what_libraries_log_and_warn_of_goes_to_the_log_file(spoken, finished, run_file, here, monkeypatch):
    finished(Verdict.VALID)

    def noisy(options: object) -> Session:
        os.write(1, b"io.delta#delta added as a dependency\n")
        os.write(2, b"WARN NativeCodeLoader\n")
        logging.getLogger("py4j").error("lost")
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        return Session()

    monkeypatch.setattr(session, "open_session", noisy)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        _, out, err = spoken("audit", "--config", run_file("engine: spark"))
    log = (here / "build/report/subreplay.log").read_text(encoding="utf-8")
    assert all(
        word in log for word in ("added as a dependency", "NativeCodeLoader", "py4j: lost", "DeprecationWarning")
    )
    assert [line.split("  ")[-1] for line in err.splitlines()] == ["starting Spark", "writing the report"]
    assert out == f"report: {here}/build/report/report.html (figures: report.json)\n"


def test_quiet_says_the_verdict_and_where_the_report_is(spoken, finished, run_file, here):
    stub = finished(Verdict.INVALID)
    stub.report = made_reports.report(3, 2, 3, 4, 10.0)
    code, out, err = spoken("audit", "--config", run_file(), "--quiet")
    assert (code, err) == (1, "")
    assert out.splitlines() == [
        f"{stub.report.verdict.upper()}  {stub.report.headline}",
        f"report: {here}/build/report/report.html",
    ]


@pytest.fixture
def printed(spoken, run_file, monkeypatch):
    """What an audit with a made-up report prints, with these options and this environment."""

    def run(*options: str, **environment: str) -> list[str]:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(story, "audit", Stub(Verdict.INVALID, made_reports.report(9, 9, 3, 4, 10.0)))
        code, out, _ = spoken("audit", "--config", run_file(), *options)
        assert code == 1
        return out.splitlines()

    return run


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_terminal_shows_the_answer_first_the_path_last_and_at_most_forty_lines(printed, here, width):
    lines = printed(COLUMNS=str(width))
    path = f"report: {here}/build/report/report.html (figures: report.json)"
    assert lines[0].startswith("✗ INVALID  ")
    assert lines[-1] == path
    assert max(map(len, lines[:-1])) <= width
    assert len(lines) - 1 + -(-len(path) // width) <= 40


def test_the_whole_report_is_printed_on_request(printed, here):
    lines = printed("--full", COLUMNS="100")
    assert len(lines) > 60
    assert {"Rules", "Headline facts", "Input", "Limits of the data"} <= set(lines)
    assert "\n".join(lines[:-2]) + "\n" == (here / "build/report/report.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(("no_color", "variable"), [(True, ""), (False, "1")])
def test_colours_can_be_switched_off(capsys, monkeypatch, here, no_color, variable):
    colour = re.compile(r"\x1b\[[\d;]*3\d")
    monkeypatch.setenv("FORCE_COLOR", "1")
    paths = ReportPaths(here / "report.html", here / "report.json", here / "report.txt")
    terminal = Terminal()
    terminal.print_report(made_reports.report(3, 2, 3, 4, 10.0), paths)
    assert colour.search(capsys.readouterr().out)
    monkeypatch.setenv("NO_COLOR", variable)
    terminal.configure(no_color=no_color)
    terminal.print_report(made_reports.report(3, 2, 3, 4, 10.0), paths)
    terminal.warn("a warning")
    said = capsys.readouterr()
    assert "✗ INVALID" in said.out
    assert not colour.search(said.out + said.err)


def test_json_output_contains_verdict_counts_and_paths(spoken, finished, run_file, here):
    stub = finished(Verdict.INVALID)
    stub.report = made_reports.report(3, 2, 3, 4, 10.0)
    code, out, _ = spoken("audit", "--config", run_file(), "--json")
    reported = json.loads(out)
    assert (code, reported["exit_code"], reported["verdict"]) == (1, 1, stub.report.verdict)
    assert reported["findings"][0].keys() == {"code", "status", "count"}
    assert reported["inputs"][0].keys() >= {"table", "rows_in", "valid", "quarantined"}
    assert reported["report"]["html"] == f"{here}/build/report/report.html"
    assert reported["log"] == f"{here}/build/report/subreplay.log"


def test_the_object_of_a_what_if_has_the_figures_of_its_scenarios(spoken, finished, run_file, here):
    stub = finished(Verdict.VALID)
    audit = made_reports.report(3, 2, 3, 4, 10.0)
    stub.report = made_reports.replayed(replace(audit, run=replace(audit.run, kind="whatif")))
    _, out, _ = spoken("audit", "--config", run_file(), "--json")
    printed = json.loads(out)
    assert printed["recommendation"]["choice"] == stub.report.recommendation.choice
    first, second = printed["scenarios"][:2]
    view, replay = stub.report.scenarios[0], stub.report.dispatch[0]
    assert (first["name"], first["max_share"], first["keys_moved"]) == (view.name, view.max_share, view.keys_moved)
    assert first["dispatch"]["to_delivered"]["p99_ns"] == replay.to_delivered.p99_ns
    assert first["dispatch"]["drain"]["took_ns"] == replay.drain.took_ns
    assert second["dispatch"] is None
    assert not {"load", "flows"} & first.keys()


def test_verbose_names_the_log_file(spoken, finished, run_file, here):
    finished(Verdict.VALID)
    _, _, err = spoken("audit", "--config", run_file(), "--verbose")
    assert f"log: {here}/build/report/subreplay.log" in err.splitlines()


def test_a_missing_package_is_named_with_the_command_that_installs_it(broken_off):
    code, _, err, _ = broken_off(ModuleNotFoundError("No module named 'pyspark'", name="pyspark"))
    assert code == 4
    assert (
        "subreplay: this command needs package pyspark, which is not installed: pip install 'subreplay[spark]'"
        in err.splitlines()
    )


def test_every_key_with_its_default_is_printed(spoken):
    code, out, _ = spoken("config")
    assert (code, out) == (0, (ROOT / "conf/default.yaml").read_text(encoding="utf-8"))


# explain: documented results, to the letter


def example(name: str) -> Path:
    return ROOT / "conf" / "examples" / f"{name}.yaml"


@pytest.mark.row("P-KS-AUTO-3")
@pytest.mark.row("P-KS-ST-1")
def test_explaining_the_documented_key(spoken):
    code, out, err = spoken("explain", "--key", "Order-3459134", "--config", example("explain_documented"))
    assert (code, err) == (0, "")
    assert "murmur3 3112179635 " in out
    assert "slot    6067 of 0..65535" in out
    assert "epoch 4: C4 joined at 00:00:03.000000: C3\n" in out
    snapshot("explain_documented.txt", out)


def test_explaining_failover(spoken):
    code, out, _ = spoken("explain", "--key", "any", "--config", example("failover"))
    assert code == 0
    snapshot("explain_failover.txt", out)


@pytest.mark.parametrize("key", ["", "ключ", "[red]not markup[/red]", "a b"])
def test_explaining_any_key(spoken, key):
    code, out, _ = spoken("explain", "--key", key, "--config", example("failover"))
    assert code == 0
    assert out.startswith(f"key     {key}\nbytes   {key.encode().hex(' ')} ({len(key.encode())} bytes of UTF-8)\n")


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("persistent://public/default/orders:5:120", ("persistent://public/default/orders", -1, 5, 120, None)),
        (
            "persistent://public/default/orders-partition-3:5:120:7",
            ("persistent://public/default/orders", 3, 5, 120, 7),
        ),
        ("orders:0:7", ("orders", -1, 0, 7, None)),
    ],
)
def test_a_message_is_named_by_topic_ledger_and_entry(text, position):
    found = Position.parse(text)
    assert (found.scope.topic, found.scope.partition, found.ledger, found.entry, found.batch_index) == position
    assert str(found) == text


def test_what_is_no_message(spoken, run_file):
    code, said, err = spoken("explain", "--config", run_file(), "--message", "5:120")
    assert (code, said) == (2, "")
    assert err.startswith("subreplay: --message 5:120: write TOPIC:LEDGER:ENTRY or TOPIC:LEDGER:ENTRY:BATCH_INDEX, ")
