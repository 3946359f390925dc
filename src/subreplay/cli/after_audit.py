"""What follows the report of an audit: alerts, files for Prometheus and for continuous integration, the exit code."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from subreplay import failures
from subreplay.cli.command import terminal

if TYPE_CHECKING:
    from subreplay.config.run import RunConfig
    from subreplay.engine.interface import Engine
    from subreplay.reports.assemble.run_changes import AuditedSubscription, PreviousRun
    from subreplay.reports.data import ReportData
    from subreplay.reports.overview_data import OverviewRow

    Audits: TypeAlias = Iterable[tuple[OverviewRow, ReportData | None]]

DryRunAlerts = Annotated[
    bool, typer.Option("--dry-run-alerts", help="Print the alerts of `alerts` instead of sending them.")
]
FailOnChoice = Literal["invalid", "unknown", "new"]
FailOn = Annotated[
    FailOnChoice,
    typer.Option(
        "--fail-on", metavar="<when>", help="What fails the command: invalid; unknown, too; or new (or worse) only."
    ),
]
Junit = Annotated[str | None, typer.Option("--junit", help="Write JUnit XML to this file: a test case for each rule.")]
Metrics = Annotated[
    str | None,
    typer.Option("--metrics", help="Write gauges as OpenMetrics text to this file; overrides output.metrics."),
]
_log = logging.getLogger(__name__)


@dataclass
class AfterAudit:
    """The outputs of an audit beside its tables and report. The engine is needed for ``prepare`` only."""

    run: RunConfig
    junit: str | None = None
    fail_on: FailOnChoice = "unknown"
    dry_run: bool = False
    _previous: Mapping[tuple[str, str], PreviousRun] = field(default_factory=dict)

    def prepare(self, engine: Engine) -> None:
        """Read what is known of the run before this one, and warn about secrets that cannot be read."""
        if not self._sends_alerts and self.fail_on != "new":
            return
        if self._sends_alerts and not self.dry_run:
            from subreplay.alerts.delivery import check_secrets

            for sentence in check_secrets(self.run.alerts):
                self._warn(sentence)
        from subreplay.pipeline.previous_runs import read_previous_runs

        with terminal.progress("reading the run before this one"):
            self._previous = read_previous_runs(engine, self.run)

    @property
    def _sends_alerts(self) -> bool:
        return self.dry_run or bool(self.run.alerts.targets)

    def finish(self, code: int, read_audits: Callable[[], Audits]) -> tuple[int, dict[str, Any]]:
        """Write the files of the audits, and send or print their alerts. ``code`` is the exit code of the verdict.

        Returns the exit code of the command, and what its JSON object says about alerts and files.
        """
        found: dict[str, Any] = {}
        if self._sends_alerts:
            found |= self._alert_safely(read_audits())
        if self.run.output.metrics is not None:
            from subreplay.reports.open_metrics import format_open_metrics

            text = format_open_metrics(read_audits(), time.time())
            found["metrics"] = self._write_file(self.run.output.metrics, text)
        if self.junit is not None:
            from subreplay.reports.junit import format_junit

            found["junit"] = self._write_file(self.junit, format_junit(read_audits()))
        return (code if self.fail_on == "unknown" else self._decide_exit_code(read_audits())), found

    def _decide_exit_code(self, audits: Audits) -> int:
        """Return the worst exit code of the audits that fail the command. One that ended with an error always does."""
        from subreplay.reports.overview_data import FAILED, WORST_FIRST

        failing = [
            one.row.exit_code
            for one in self._compare(audits)
            if one.row.verdict == FAILED or (one.has_new if self.fail_on == "new" else one.row.verdict == "invalid")
        ]
        return min(failing, key=WORST_FIRST.index, default=0)

    def _alert_safely(self, audits: Audits) -> dict[str, Any]:
        try:
            return self._alert([*self._compare(audits)])
        except Exception as error:  # the verdict and the exit code stay
            sentence = f"internal error in subreplay, please report it: {type(error).__name__}: {error}"
            self._warn(f"alert not sent: {sentence}")
            return {"alerts": {"sent": 0, "failed": [sentence]}}

    def _compare(self, audits: Audits) -> Iterator[AuditedSubscription]:
        from subreplay.reports.assemble.run_changes import AuditedSubscription, find_changes

        for row, report in audits:
            before = self._previous.get((row.subscription, row.topic))
            yield AuditedSubscription(row, find_changes(row, report, before))

    def _alert(self, audits: Iterable[AuditedSubscription]) -> dict[str, Any]:
        from subreplay.alerts import delivery, messages

        alerts = self.run.alerts
        date = None if self.run.date is None else self.run.date.isoformat()
        several = self.run.subscriptions is not None
        built = messages.build_alerts(audits, alerts.changes, alerts.reports, date, several)
        if self.dry_run:
            for alert in built:
                receivers = ", ".join(name for name, _ in delivery.select_targets(alerts, alert)) or "nobody"
                terminal.print_line(f"alert to {receivers}:")
                for line in alert.text.splitlines():
                    terminal.print_line(f"  {line}".rstrip())
            return {"alerts": [messages.to_webhook(alert) for alert in built]}
        if not built:
            return {"alerts": {"sent": 0, "failed": []}}
        with terminal.progress("sending alerts"):
            found = delivery.send_alerts(alerts, built)
        for failure in found.failures:
            self._warn(f"alert not sent: {failure}")
        return {"alerts": {"sent": found.sent, "failed": [*found.failures]}}

    def _warn(self, sentence: str) -> None:
        _log.warning("%s", sentence)
        terminal.warn(sentence)

    def _write_file(self, location: str, text: str) -> str:
        """Write a file that its readers see complete or not at all; returns its address for the JSON object."""
        from subreplay.reports.write import write_file

        try:
            return write_file(location, text, self.run.spark.conf)
        except OSError as error:
            raise failures.describe_os_error(error, location, "written") from error
