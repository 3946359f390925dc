"""The pages of incidents: public reports with the command and the answer, and the tickets that findings look like.

They are made of ``upstream_faults.yaml`` of the package, of the cases in ``tests/incidents`` and of what people
reported (``tests/incidents/reports.yaml``). ``python -m tests.docs`` writes them.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from markdown.extensions.toc import slugify

from subreplay.audit.explain.upstream_faults import Circumstance, UpstreamFault, load_faults, make_ticket_url

ROOT: Final = Path(__file__).parents[2]
CASES: Final = ROOT / "tests" / "incidents"
SYSTEMS: Final = {"pulsar": "Pulsar", "kafka": "Kafka", "files": "Files"}
MOST_SHOWN: Final = 3  # sentences of an answer
INTRODUCTION: Final = """\
# Incidents

After reading this page you can tell whether somebody reported what you see. It lists public reports of Pulsar and Kafka
users. Each one leads to the command that answers it and to the answer. [Tickets](tickets.md) lists the upstream tickets
that a finding may look like, with the releases that fix them.

The reports are rebuilt as small inputs with invented names; a test runs each command. Two of them come with the
package: `subreplay demo hung-consumer` (Pulsar) and `subreplay demo offset-reset` (Kafka).
"""
OF_SYSTEM: Final = """\
# {name}: what people reported

After reading this page you know how subreplay answers each report: the command, the verdict, the findings and sentences
of the answer. In a clone, `tests/data/incidents.tar.xz` has the inputs, each in a folder with its run file.
"""
TICKETS: Final = """\
# Tickets that findings look like

After reading this page you know which upstream tickets subreplay recognises, and what fixes each one.

An audit names a ticket beside a finding, e.g. *looks like apache/pulsar#23870, fixed in 4.0.3*. It does so only where
the rule, the policy, the profile (a release line) and all circumstances of the entry fit. It is a hint, no proof: a
profile covers releases with and without the fix, and a run file does not say which client library was used. Releases
are those that upstream names.
"""


def pages() -> dict[str, str]:
    """Each page by its path below ``docs``."""
    reports = yaml.safe_load((CASES / "reports.yaml").read_text(encoding="utf-8"))
    listed, found = [INTRODUCTION], {}
    for system, name in SYSTEMS.items():
        cases = [case for case in _cases() if case.startswith(f"{system}/") and case in reports]
        titles = [reports[case]["title"] for case in cases]
        listed += [f"## {name}\n", *(f"- [{title}]({system}.md#{slugify(title, '-')})" for title in titles), ""]
        parts = [OF_SYSTEM.format(name=name), *("\n".join(_case(case, reports[case])) for case in cases)]
        found[f"incidents/{system}.md"] = "\n".join(parts)
    found["incidents/tickets.md"] = "\n".join([TICKETS, *("\n".join(_ticket(fault)) for fault in load_faults())])
    return {"incidents/index.md": "\n".join(listed), **found}


def _cases() -> list[str]:
    return sorted(path.relative_to(CASES).with_suffix("").as_posix() for path in CASES.glob("*/*.yaml"))


def _case(case: str, report: Mapping[str, Any]) -> Iterator[str]:
    """A report, the command, the answer."""
    expected = yaml.safe_load((CASES / f"{case}.yaml").read_text(encoding="utf-8"))
    yield f"## {report['title']}\n"
    reported = " ".join(_link(ticket) for ticket in report.get("tickets", ()))
    yield _filled(f"{report['saw']} {f'({reported})' if reported else ''}".strip()) + "\n"
    yield "```sh"
    yield from (f"subreplay {command}" for command in expected.get("commands") or _commands(case))
    yield "```\n"
    yield from (f"- {line}" for line in _answer(expected))
    yield ""


def _answer(expected: Mapping[str, Any]) -> Iterator[str]:
    """What the command answers, as the case holds it."""
    found = {code: count for code, count in expected.get("findings", {}).items() if count}
    if "verdict" in expected:
        yield f"Verdict: {expected['verdict']}" + (f" ({_counts(found)})" if found else "")
    elif found:
        yield f"Findings: {_counts(found)}"
    for text in expected.get("shows", ())[:MOST_SHOWN]:
        yield f"`{' '.join(text.split())}`"
    if not found and "verdict" not in expected and not expected.get("shows"):
        yield f"Exit code {', '.join(map(str, expected['exits']))}: nothing is wrong."


def _counts(found: Mapping[str, int]) -> str:
    return ", ".join(f"`{code}` {count:,}" for code, count in found.items())


def _commands(case: str) -> list[str]:
    """The commands of a case's ``run.sh``."""
    with tarfile.open(ROOT / "tests" / "data" / "incidents.tar.xz") as archive:
        script = archive.extractfile(f"incidents/{case}/run.sh")
        assert script is not None, case
        text = script.read().decode("utf-8")
    return [found.strip() for found in re.findall(r"(?:\$SR|\bsubreplay)\s+([a-z][^;\n]*)", text)]


def _ticket(fault: UpstreamFault) -> Iterator[str]:
    yield f"## {fault.title}\n"
    yield _filled(f"{_link(fault.ticket)} ({fault.attribution}). {fault.releases} {fault.advice}") + "\n"
    codes = ", ".join(f"`{code.name}`" for code in fault.codes)
    under = f"{_any(fault.policies)} with {_any(fault.profiles)}"
    yield _filled(f"Matches {codes} under {under}{_conditions(fault)}.") + "\n"
    yield _filled(f"Releases: {fault.evidence}") + "\n"


def _conditions(fault: UpstreamFault) -> str:
    """The circumstances of an entry, as clauses."""
    clauses = [Circumstance(name).meaning for name in fault.circumstances]
    clauses += [f"the cause contains {_any(tuple(part.strip() for part in fault.causes))}"] if fault.causes else []
    clauses += (
        [f"it is exempt: {' or '.join(exemption.sentence for exemption in fault.exemptions)}"]
        if fault.exemptions
        else []
    )
    return f", where {'; '.join(clauses)}" if clauses else ""


def _any(names: tuple[str, ...]) -> str:
    quoted = [f"`{name}`" for name in names]
    return " or ".join([", ".join(quoted[:-1]), quoted[-1]] if quoted[1:] else quoted)


def _link(ticket: str) -> str:
    return f"[{ticket}]({make_ticket_url(ticket)})"


def _filled(text: str, width: int = 120) -> str:
    """A paragraph with lines of at most ``width`` characters, words unbroken."""
    lines, line = [], ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return "\n".join([*lines, line])
