"""The command line. Exit codes: 0 valid, 1 violations, 2 bad input or configuration, 3 unknown, 130 interrupted."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.resources import as_file, files
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console

from subreplay import __version__, config, pipeline
from subreplay.adapters import ADAPTERS, Ingested
from subreplay.conformance import fidelity as recorded
from subreplay.conformance import fidelity_text, golden
from subreplay.errors import ConfigError, InputError, SubreplayError
from subreplay.model import Verdict
from subreplay.reports.load import from_json
from subreplay.reports.text import render
from subreplay.reports.write import write_reports
from subreplay.spark import evidence
from subreplay.spark import explain as explain_spark
from subreplay.spark import ingest as ingest_spark
from subreplay.spark.session import open_session

EXIT = {Verdict.VALID: 0, Verdict.INVALID: 1, Verdict.UNKNOWN: 3}
# The base of what a wrong option raises: in the click that typer brings along or imports, depending on its version.
USAGE: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")
app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)
out = Console(width=None if sys.stdout.isatty() else 110, emoji=False)  # a log has no width of its own
err = Console(stderr=True, emoji=False)

ConfigFile = Annotated[Path, typer.Option("--config", help="The run, as YAML (see conf/default.yaml).")]
Date = Annotated[str | None, typer.Option("--date", help="Only this UTC day (YYYY-MM-DD).")]
Tables = Annotated[str | None, typer.Option("--tables", help="Input tables; overrides traffic.path.")]
Out = Annotated[str | None, typer.Option("--out", help="Folder for result tables and report; overrides output.")]
Format = Annotated[str, typer.Option("--format", help="delta or parquet.")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    try:
        code = app(args=None if arguments is None else list(arguments), standalone_mode=False, prog_name="subreplay")
    except SubreplayError as error:
        err.print(f"subreplay: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        return error.exit_code
    except typer.Exit as leaving:
        return int(leaving.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except USAGE as error:
        error.show()
        return 2
    except Exception:  # a run that broke off has found nothing: not 1, which Python would return
        traceback.print_exc()
        return EXIT[Verdict.UNKNOWN]
    return code if isinstance(code, int) else 0


@contextmanager
def _progress(step: str) -> Iterator[None]:
    """What is being done, on a terminal only."""
    quiet: AbstractContextManager[object] = nullcontext()
    with err.status(step) if err.is_terminal else quiet:
        yield


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False) -> None:
    if version:
        typer.echo(f"subreplay {__version__}")
        raise typer.Exit(0)


@app.command()
def audit(config_file: ConfigFile, date: Date = None, tables: Tables = None, out_dir: Out = None) -> int:
    """Check recorded deliveries against every promise of the subscription."""
    return _run(pipeline.audit, _load(config_file, date, tables, out_dir))


@app.command()
def whatif(config_file: ConfigFile, date: Date = None, tables: Tables = None, out_dir: Out = None) -> int:
    """Replay recorded traffic under other subscriptions and compare them side by side."""
    return _run(pipeline.whatif, _load(config_file, date, tables, out_dir, need_scenarios=True))


def _load(
    path: Path, date: str | None, tables: str | None, out_dir: str | None, need_scenarios: bool = False
) -> config.RunConfig:
    overrides = {"date": date, "traffic.path": tables}
    if out_dir is not None:
        overrides |= {"output.tables": f"{out_dir}/tables", "output.report": f"{out_dir}/report"}
    run = config.load(path, **overrides)
    if need_scenarios and not run.scenarios:
        raise ConfigError(f"{path}: scenarios is empty; a what-if needs at least one")
    return run


def _run(work: Callable[..., pipeline.Result], run: config.RunConfig) -> int:
    with _progress("starting Spark"):
        spark = open_session(run.spark)
    result = work(spark, run, _progress)
    paths = write_reports(result.report, Path(run.output.report))
    render(result.report, out)
    out.print(f"\nreport: {(paths.html or paths.text).resolve()}", markup=False, highlight=False, soft_wrap=True)
    return EXIT[result.verdict]


@app.command()
def ingest(
    folder: Annotated[Path, typer.Argument(help="What to read: the folder of a recording.")],
    to: Annotated[str, typer.Option("--to", help="Folder of the canonical tables.")],
    source: Annotated[str, typer.Option("--from", help=f"The adapter: {', '.join(ADAPTERS)}.")] = "pulsar-recording",
    form: Format = "delta",
) -> int:
    """Read somebody's files into the canonical tables; rows that do not fit go to quarantine."""
    if source not in ADAPTERS:
        raise ConfigError(f"--from {source}: no such adapter; there are: {', '.join(ADAPTERS)}")
    if form not in ("delta", "parquet"):
        raise ConfigError(f"--format {form}: write delta or parquet")
    with _progress("reading"):
        ingested = ADAPTERS[source](folder)
    with _progress("writing tables"):
        ingest_spark.write(open_session(config.Spark()), ingested, to, form, str(folder))
    run = ingested.run | {"traffic": {"path": to, "format": form}}
    run_file = Path(to) / "audit.yaml"
    text = yaml.safe_dump(run, sort_keys=False, allow_unicode=True)
    run_file.write_text(f"# Written by ingest: the subscription as it was recorded.\n{text}", encoding="utf-8")
    _print_counts(ingested)
    for subscription, topic in ingested.others:
        out.print(
            f"also recorded: {subscription} on {topic}; name it in a run of its own", highlight=False, soft_wrap=True
        )
    out.print(f"next: subreplay audit --config {run_file}", markup=False, highlight=False, soft_wrap=True)
    return 0


def _print_counts(ingested: Ingested) -> None:
    """Rows in = valid + quarantined, file by file, and the first rejected rows with their reasons."""
    for count in ingested.counts:
        parts = f"{count.valid:,} valid + {count.quarantined:,} quarantined"
        out.print(f"{count.file}: {count.rows_in:,} rows in = {parts}", highlight=False)
    for rejected in ingested.rejected[:10]:
        err.print(f"quarantined: {rejected}", style="yellow", markup=False, highlight=False, soft_wrap=True)
    if len(ingested.rejected) > 10:
        err.print(f"… and {len(ingested.rejected) - 10:,} more in table quarantine", style="yellow", highlight=False)
    rows = ", ".join(f"{name} {table.num_rows:,}" for name, table in ingested.tables.items())
    out.print(f"tables: {rows}", highlight=False)


@app.command()
def explain(
    config_file: ConfigFile,
    key: Annotated[str | None, typer.Option("--key", help="A key, as text.")] = None,
    message: Annotated[
        str | None, typer.Option("--message", help="A message: orders:5:120 or, in a batch, orders:5:120:7.")
    ] = None,
    last: Annotated[int, typer.Option("--last", min=1, max=10_000, help="How many deliveries, the latest.")] = 50,
    date: Date = None,
    tables: Tables = None,
    out_dir: Out = None,
) -> int:
    """Print the life of a message or a key: published, owned, held back, delivered, acknowledged, and its findings.

    Of a key, first the bytes hashed, the hash, the slot, and the owner in each epoch with the event that moved it.
    """
    if (key is None) == (message is None):
        raise typer.BadParameter("give either --key or --message")
    run = _load(config_file, date, tables, out_dir)
    place = None if message is None else evidence.Place.parse(message)
    lines: list[Iterable[str]] = []
    if key is not None:
        lines.append(explain_spark.lines(run, key, open_session))
    if key is not None and "traffic" in run.model_fields_set:
        lines.append(["", *evidence.of_key(open_session(run.spark), run, key, last)])
    if place is not None:
        lines.append(evidence.of_message(open_session(run.spark), run, place, last))
    for line in chain.from_iterable(lines):
        out.print(line, markup=False, highlight=False, soft_wrap=True)
    return 0


@app.command()
def report(
    json_file: Annotated[Path, typer.Argument(help="A report.json of an earlier run.")],
    out_dir: Annotated[Path, typer.Option("--out", help="Folder for the rendered files.")],
) -> int:
    """Render a report again from its JSON: page, text and terminal."""
    try:
        data = from_json(json_file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{json_file}: cannot be read: {error.strerror}") from error
    except (InputError, ValueError) as error:
        raise InputError(f"{json_file}: {error}") from error
    paths = write_reports(data, out_dir)
    render(data, out)
    out.print(f"\nreport: {(paths.html or paths.text).resolve()}", markup=False, highlight=False, soft_wrap=True)
    return 0


@app.command()
def conformance(
    paths: Annotated[list[Path], typer.Argument(help="Golden files (.jsonl, .jsonl.gz), or folders of them.")],
    profile: Annotated[str | None, typer.Option("--profile", help="Instead of the one of the version folder.")] = None,
) -> int:
    """Replay golden files of the real brokers and assignors; exit 1 if a case comes out otherwise."""
    if profile not in (None, *golden.PROFILE_OF.values()):
        raise ConfigError(f"--profile {profile}: no such profile; there are: {', '.join(golden.PROFILE_OF.values())}")
    codes = {0}
    for path in golden.golden_files(paths):
        try:
            with _progress(f"replaying {path.name}"):
                judged = golden.judge(path, profile)
        except InputError as error:  # the other files are judged all the same
            err.print(f"subreplay: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
            codes.add(error.exit_code)
            continue
        codes.add(EXIT[Verdict.INVALID if judged.failed else Verdict.VALID])
        line = f"{path.name}: {judged.passed} passed, {judged.failed} failed"
        out.print(f"{line} ({judged.profile})", markup=False, highlight=False, soft_wrap=True)
        for failure in judged.failures:
            told = f"  line {failure.line}, case {failure.case}: {failure.difference}"
            out.print(told, markup=False, highlight=False, soft_wrap=True)
    return max(codes)


@app.command()
def fidelity(
    paths: Annotated[list[Path], typer.Argument(help="Recordings of a real broker, or folders of them.")],
    profile: Annotated[
        str | None, typer.Option("--profile", help="Instead of the one of the broker's version.")
    ] = None,
) -> int:
    """Re-enact recordings and compare; exit 1 if entries go to other consumers. Permits are modelled, not recorded."""
    codes = {0}
    for folder in recorded.recordings(paths):
        try:
            with _progress(f"re-enacting {folder.name}"):
                result = recorded.fidelity(folder, profile)
        except InputError as error:  # the other recordings are judged all the same
            err.print(f"subreplay: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
            codes.add(error.exit_code)
            continue
        codes.add(EXIT[Verdict.VALID if result.passed else Verdict.INVALID])
        for line in fidelity_text.lines(result):
            out.print(line, markup=False, highlight=False, soft_wrap=True)
    return max(codes)


@app.command()
def demo(
    out_dir: Annotated[Path, typer.Option("--out", help="Folder for tables and report.")] = Path("build/demo"),
) -> int:
    """Ingest, audit and replay the bundled recording of a real broker."""
    bundled = files("subreplay.demo")
    with as_file(bundled / "recording") as recording:
        code = ingest(recording, f"{out_dir}/input")
    with as_file(bundled / "demo.yaml") as run_file:
        return code or audit(run_file, None, f"{out_dir}/input", str(out_dir))


if __name__ == "__main__":
    sys.exit(main())
