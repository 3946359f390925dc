"""Command ``studio``: change a set-up on a local page and see at once what it does to recorded traffic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from subreplay.cli.command import open_engine_for, terminal
from subreplay.cli.runs import (
    ConfigOrMessages,
    Date,
    Engine,
    Messages,
    MessagesFormat,
    Quiet,
    Verbose,
    build_sections_of_messages,
)
from subreplay.errors import ConfigError, EnvironmentFailed

if TYPE_CHECKING:
    from subreplay.studio.state import StudioRun


def studio(
    config_file: ConfigOrMessages = None,
    messages: Messages = None,
    profile: Annotated[
        Path | None, typer.Option("--profile", help="A folder that `subreplay profile` wrote; messages are not read.")
    ] = None,
    table_format: MessagesFormat = None,
    date: Date = None,
    host: Annotated[str, typer.Option("--host", help="The address to listen at. Others can connect only then.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="The port; 0: a free one.")] = 0,
    public_url: Annotated[
        str | None,
        typer.Option("--public-url", help="The address at which a proxy serves the page and authenticates its users."),
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
    engine: Engine = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> int:
    """Open a local page: turn a knob, and see what another set-up does to your traffic.

    Without --config, --messages and --profile the page shows the bundled recording.
    """
    terminal.configure(quiet=quiet, verbose=verbose)
    if sum(given is not None for given in (config_file, messages, profile)) > 1:
        raise typer.BadParameter("pass one of --config, --messages and --profile")
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise EnvironmentFailed("studio needs starlette and uvicorn. Install them: pip install 'subreplay[studio]'")
    if public_url is None and host not in ("127.0.0.1", "localhost", "::1"):
        terminal.warn(f"--host {host}: everyone who can connect to this machine and has the address can use the page")
    run = build_run(config_file, messages, profile, table_format)
    if date is not None:
        run = replace(run, sections={**run.sections, "date": date})
    config = run.parse({}, engine=engine)
    with open_engine_for(config, meanwhile="subreplay.pipeline.story") as opened_engine:
        from subreplay.pipeline.attempts import run_tables
        from subreplay.pipeline.source import read_profile, read_traffic
        from subreplay.studio.serve import create_server
        from subreplay.studio.workbench import Workbench

        with terminal.progress("reading the traffic"):
            tables = run_tables(opened_engine, config, "whatif_", kept=True)
            read = read_profile if profile is not None else read_traffic
            is_sample = not any((config_file, messages, profile))
            workbench = Workbench(run, read(opened_engine, config, tables), is_sample)
            first = workbench.describe()["state"]
        with terminal.progress("evaluating the first state"):  # loads what later evaluations need
            workbench.evaluate(first, 0, 0)
        server = create_server(workbench, host, port, public_url)
        terminal.print_line(f"studio: {server.url}")
        terminal.print_line("Press Ctrl+C to stop.")
        if open_browser and public_url is None:
            import webbrowser

            webbrowser.open(server.url)
        server.run()
    return 0


def build_run(
    config_file: Path | None, messages: str | None, profile: Path | None, table_format: str | None
) -> StudioRun:
    """Build the run of a run file, of messages, of a profile, or of the bundled recording."""
    from subreplay.config.yaml_text import read_yaml
    from subreplay.studio.state import StudioRun

    if config_file is not None:
        sections = read_yaml(config_file).values
        if not isinstance(sections, Mapping):
            raise ConfigError(f"{config_file}: a run is a mapping of keys")
        return StudioRun(dict(sections), str(config_file))
    if messages is not None:
        sections = build_sections_of_messages(messages, table_format)
        return StudioRun({**sections, "scenarios": sections["scenarios"][:1]}, messages)  # there is room for copies
    if profile is not None:
        return StudioRun({"traffic": {"profile": str(profile)}}, str(profile))
    recording = {"from": "pulsar-recording", "path": str(files("subreplay.demo") / "recording")}
    sample = {
        "traffic": {"messages": recording, "membership": recording},
        "subscription": {"name": "sub", "policy": "pulsar.key_shared.consistent_hash", "profile": "pulsar-4.0"},
        "windows": {"width": "500ms"},
        "report": {"title": "A Key_Shared subscription on Pulsar 4.0.8"},
    }
    return StudioRun(sample, "the bundled recording")
