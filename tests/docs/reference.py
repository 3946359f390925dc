"""Pages that are made of the package: rules, tables, the run file, commands.

``python -m tests.docs`` writes them, and the page of incidents; a test compares what is committed.
"""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import typer

from subreplay.audit.codes import EVERY, Code, Exemption, Rule
from subreplay.audit.rules.registry import RULES
from subreplay.audit.sums import COUNTS
from subreplay.audit.window_sums import ASSIGNMENTS, VIOLATIONS_BY_WINDOW
from subreplay.cli.main import app
from subreplay.cli.terminal import JSON_VERSIONS
from subreplay.config.run_file_keys import RunFileKey, read_default_file, read_keys
from subreplay.config.run_file_schema import format_run_file_schema
from subreplay.pipeline.dispatch import PREDICTED_AUDITED
from subreplay.pipeline.run_times import RUN_TIMES
from subreplay.reports.assemble.incidents import INCIDENTS
from subreplay.reports.assemble.result_tables import EPOCHS, RANGES, RUNS, _build_flat_schema
from subreplay.reports.data import MoveView, ScenarioView
from subreplay.rows.model import tables
from subreplay.rows.model.table_descriptions import describe_column, describe_table, read_descriptions
from subreplay.whatif.dispatch_replay import PREDICTED
from subreplay.whatif.traffic.profile_storage import BLOCKS
from tests.docs import predictions

ADDED: Final = {"subscription": pa.string(), "topic": pa.string(), "date": pa.date32(), "attempt": pa.string()}
"""Columns that every result table has."""
INPUTS: Final[Mapping[str, pa.Schema]] = tables.INPUTS
RESULTS: Final[Mapping[str, pa.Schema]] = {
    "violations": tables.VIOLATIONS,
    "incidents": INCIDENTS,
    "violations_by_window": VIOLATIONS_BY_WINDOW,
    "finding_counts": COUNTS,
    "withdrawn": tables.RETRACTED_FINDINGS,
    "audited": tables.AUDITED,
    "assignments": ASSIGNMENTS,
    "epochs": EPOCHS,
    "range_tables": RANGES,
    "moves": _build_flat_schema(MoveView),
    "scenarios": _build_flat_schema(ScenarioView),
    "predicted": PREDICTED,
    "predicted_audited": PREDICTED_AUDITED,
    "quarantine": tables.QUARANTINE,
    "runs": pa.schema([*RUNS, pa.field("keys_check", pa.string()), pa.field("keys_shown", pa.bool_()), *RUN_TIMES]),
    "state": tables.STATE,
    "loads": tables.LOADS,
    "profile": BLOCKS,
}
KINDS: Final = {
    "keyed": "Key_Shared",
    "bucketed": "stream consumers",
    "unordered": "Key_Shared out of order",
    "active": "Exclusive and Failover",
    "filtered": "readers of hash ranges",
    "shared": "Shared",
    "group": "Kafka groups",
    "share group": "Kafka share groups",
}
FAMILIES: Final = {
    "liveness": "Waiting: who blocks whom",
    "undelivered": "Loss: what was never delivered",
    "order": "Order",
    "ownership": "Ownership: who may receive a message",
    "holding": "Two consumers at once",
    "redelivery": "Redelivery and duplicates",
    "dead_letters": "Dead letters",
    "shared_records": "Records of a Kafka share group",
    "commits": "Commits of a Kafka group",
    "assignments": "Assignments of a Kafka group",
    "flow": "Time and permits",
    "publication": "What producers did",
    "partitions": "Choice of partitions",
    "ranges": "Sticky ranges",
}


def pages() -> dict[str, str]:
    """Each generated page by its path below ``docs``."""
    return {
        "reference/rules.md": "\n".join(_rules()),
        "reference/tables.md": "\n".join(_tables(INPUTS, _INPUT_TABLES)),
        "reference/result-tables.md": "\n".join(_tables(RESULTS, _RESULT_TABLES)),
        "reference/run-file.md": "\n".join(_run_file()),
        "reference/commands.md": "\n".join(_commands()),
        "explanation/predicted-runs.md": predictions.page(),
        "assets/run-file.schema.json": format_run_file_schema(),
    }


# Rules

_RULES: Final = """\
# Rules

After reading this page you know what each rule of an audit means, under which subscription types it fails a run, and
what it needs. A finding is a case of a rule, a row of table [`violations`](result-tables.md#violations).

*Fails* means that the policy promises otherwise: one finding makes the verdict *invalid*. *Allowed* means that findings
are shown and do not fail. Elsewhere the rule is *not applicable*, as it is where the data lack what it needs.
[Verdict and exit codes](exit-codes.md) explains each status.
"""


def _rules() -> Iterator[str]:
    families: dict[str, list[Rule]] = defaultdict(list)
    for rule in RULES.values():
        families[_family(rule)].append(rule)
    assert families.keys() == FAMILIES.keys()
    yield _RULES
    yield "| rule | what it finds | fails under |\n|---|---|---|"
    for family in FAMILIES:
        for rule in families[family]:
            yield f"| [`{rule.code.name}`](#{rule.code.name.lower()}) | {rule.title} | {_kinds(rule.promised)} |"
    for family, title in FAMILIES.items():
        yield f"\n## {title}\n"
        for rule in families[family]:
            yield from _rule(rule)
    yield "## Why a finding does not fail\n"
    yield "Each of these reasons stands beside the finding. *Inconclusive* ones make the verdict unknown.\n"
    yield "| reason | applies to | inconclusive |\n|---|---|---|"
    for reason in Exemption:
        if reason.codes:
            codes = ", ".join(f"`{code.name}`" for code in sorted(reason.codes))
            yield f"| {_sentence(reason.sentence)} | {codes} | {'yes' if reason.inconclusive else ''} |"
    yield ""


def _family(rule: Rule) -> str:
    """The part of the page that has a rule: the module that defines it, or waiting."""
    if rule.code in (Code.STUCK, Code.STARVED):
        return "liveness"
    for name in FAMILIES:
        module = __import__(f"subreplay.audit.rules.{name}", fromlist=["RULES"])
        if rule in module.RULES:
            return name
    raise AssertionError(rule.code.name)


def _rule(rule: Rule) -> Iterator[str]:
    yield f"### {rule.code.name}\n"
    yield f"**{rule.title}.** {rule.meaning}\n"
    if rule.promised:
        only = f" ({', '.join(f'`{name}`' for name in sorted(rule.only))})" if rule.only else ""
        yield f"- Fails under: {_kinds(rule.promised)}{only}."
    if rule.allowed:
        yield f"- Allowed under: {_kinds(rule.allowed)}."
    for profile, status in sorted(rule.profiles.items()):
        yield f"- Under `{profile}`: {status.value}."
    if rule.needs:
        lacking = "; ".join(need.value for need in sorted(rule.needs, key=lambda need: need.name))
        yield f"- Not applicable, or unknown, when: {lacking}."
    if " " in rule.sentence:
        yield f"- A finding reads: `{rule.sentence}`"
    if rule.cause:
        yield f"- Cause: {rule.cause}."
    yield f"- Source: {rule.source}.\n"


def _kinds(kinds: Iterable[str]) -> str:
    kinds = set(kinds)
    if kinds == EVERY:
        return "every type"
    return ", ".join(name for kind, name in KINDS.items() if kind in kinds) or "never"


def _sentence(text: str) -> str:
    text = text.replace("|", "\\|")
    return f"{text[:1].upper()}{text[1:]}."


# Tables

_INPUT_TABLES: Final = """\
# Input tables

After reading this page you know which columns subreplay reads, which of them it requires, and what each one means.

There are three input tables. They are Delta tables or folders of Parquet files below `traffic.path`, or come from
elsewhere by a [mapping](../guides/columns.md). A what-if needs `messages` only; an audit needs all three, but
`membership` may be inferred. Times are UTC with microseconds. A column that is not required may be missing or null.
Rules that need it are then *not applicable*.

Every column has a legal range. A row outside of it goes to [`quarantine`](result-tables.md#quarantine) with column,
value, rule and remedy. Write null for what never happened, not a date such as 9999-12-31.
"""
_RESULT_TABLES: Final = """\
# Result tables

After reading this page you know which tables a run writes, what one row of each is, and what each column means.

Result tables are Delta tables, in the folder or schema that `output.tables` names. A what-if writes the same tables as
`whatif_…`. A run replaces exactly its own rows: those of its subscription, topic and date. [Read the rows of whole
runs](../guides/audit-every-day.md#read-the-tables) shows how to query while runs write.

Count findings of each rule at each consumer:

```sql
SELECT code, consumer, count(*), min(at), max(waited) FROM violations WHERE verdict = 'invalid' GROUP BY code, consumer
```
"""


def _tables(schemas: Mapping[str, pa.Schema], introduction: str) -> Iterator[str]:
    yield introduction
    yield "| table | one row is |\n|---|---|"
    yield from (f"| [`{name}`](#{name}) | {read_descriptions()['tables'][name]['row']} |" for name in schemas)
    for name, schema in schemas.items():
        yield f"\n## {name}\n"
        yield f"{describe_table(name)}\n"
        inputs = schemas is INPUTS
        yield f"| column | type |{' required |' if inputs else ''} meaning |\n|---|---|{'---|' if inputs else ''}---|"
        for column, kind in columns(name).items():
            required = (" yes |" if not schema.field(column).nullable else " |") if inputs else ""
            yield f"| `{column}` | {_type(kind)} |{required} {meaning(name, column)} |"
    yield ""


def columns(table: str) -> dict[str, pa.DataType]:
    """The columns of a table, in order, with their types."""
    added = {} if table in INPUTS else {"topic": ADDED["topic"]} if table == "profile" else ADDED
    schema = INPUTS.get(table) or RESULTS[table]
    return dict(zip(schema.names, schema.types, strict=True)) | added


def meaning(table: str, column: str) -> str:
    """What a column of a table means."""
    found = describe_column(table, column)
    assert found is not None, f"table_descriptions.yaml does not say what column {column} of table {table} means"
    return found


def undefined_columns() -> list[str]:
    """Columns that ``table_descriptions.yaml`` explains and no table has."""
    return [
        f"{table}.{column}"
        for table, said in read_descriptions()["tables"].items()
        for column in said["columns"]
        if column not in columns(table)
    ]


def _type(kind: pa.DataType) -> str:
    """A type as SQL users call it."""
    if pa.types.is_struct(kind):
        return f"struct of {', '.join(f'`{field.name}`' for field in kind)}"
    if pa.types.is_list(kind):
        return f"list of {_type(kind.value_type)}"
    names = {"int8": "int", "int16": "int", "int32": "int", "int64": "bigint", "bool": "boolean", "date32[day]": "date"}
    return "timestamp" if pa.types.is_timestamp(kind) else names.get(str(kind), str(kind))


# The run file

_RUN_FILE: Final = """\
# Run file

After reading this page you can write a run file: every key, its default, its unit and its legal values.

A run file is YAML. It names only what differs from the defaults. An unknown key is an error with a hint, and nothing in
a file is ever evaluated. `subreplay config` prints all keys as one commented file.

An editor with the YAML language server completes keys and marks mistakes while you type. Begin the file with this line,
or name your own copy of the schema, which `subreplay config --schema` prints:

```yaml
# yaml-language-server: $schema=https://subreplay.github.io/subreplay/assets/run-file.schema.json
```

A file that the schema accepts can still contradict itself, such as a consumer that leaves before it joins.
`subreplay audit --explain-config` checks the whole file, and prints what the run would read, judge and write.

```yaml
subscription:
  name: billing
  policy: pulsar.key_shared.consistent_hash
  profile: pulsar-4.0
traffic:
  path: tables
scenarios:
  - {name: on 3.2, policy: pulsar.key_shared.consistent_hash, profile: pulsar-3.2}
```

Examples in the repository: `conf/examples/nightly_audit.yaml`, `conf/examples/what_if.yaml`,
`conf/examples/dispatch.yaml`, `conf/examples/failover.yaml`, `conf/examples/explain_documented.yaml`,
`conf/examples/kafka_assignors.yaml`, `conf/examples/kafka_dispatch.yaml`, `conf/examples/share_group.yaml`.
"""


def _run_file() -> Iterator[str]:
    yield _RUN_FILE
    for key in read_keys(read_default_file().splitlines()):
        if isinstance(key, RunFileKey):
            yield from _key(".".join(key.path), len(key.path) - 1, key.default, list(key.remarks))
        else:  # the example of all keys of a scenario
            yield "```yaml\nscenarios:\n" + "\n".join(f"  {each}".rstrip() for each in key.lines) + "\n```\n"


def _key(name: str, depth: int, default: str | None, remarks: list[str]) -> Iterator[str]:
    yield f"{'##' if depth == 0 else '###'} {name}\n"
    if default is not None:
        yield f"Default: `{default}`\n"
    listed: list[str] = []
    prose: list[str] = []
    for remark in remarks:
        (listed if remark.startswith("  ") else prose).append(remark)
        if remark.startswith("  ") or not listed:
            continue
        yield from _list(listed)  # prose that follows a list
        listed = []
        last = prose.pop()
        prose = [last]
    if prose:
        yield _prose(prose) + "\n"
    yield from _list(listed)


def _prose(lines: list[str]) -> str:
    return re.sub(r"(?<![\w`])([a-z_]+\.[A-Za-z_.]+[A-Za-z_])(?![\w`*])", r"`\1`", " ".join(lines)).replace("|", "\\|")


def _list(lines: list[str]) -> Iterator[str]:
    if lines:
        yield "```text\n" + inspect.cleandoc("\n".join(lines)) + "\n```\n"


# Commands

_COMMANDS: Final = """\
# Commands

After reading this page you know every command and option. Results go to standard output; progress and errors go to
standard error. Most commands take `--quiet`, `--verbose` and `--json`. See [exit codes](exit-codes.md).

A command with a report prints its summary in at most 40 lines: the answer first, the path of the page last. `--full`
prints the whole report, which is also in `report.txt`. The text is as wide as the terminal, from 60 to 200 columns
(`COLUMNS` sets another width); columns of a table that do not fit are named. `--no-color`, or `NO_COLOR=1` in the
environment, prints plain text; so does output to a file or a pipe.

Shell completion: `subreplay --install-completion`.

Every object that `--json` prints begins with `schema_version`, and `command` unless it reports an error. Versions are
semantic: within a major version fields are added, never removed or changed.

<!-- versions -->

`audit`, `whatif` and `plan` print this object with `--json`. Durations are nanoseconds, shares are fractions of one.

| field | content |
|---|---|
| `verdict`, `exit_code`, `headline`, `detail` | the result, and the sentences below the headline |
| `incidents` | of an audit, as in `report.json`: what happened, when, who, whose doing, what to do next |
| `inputs`, `quarantine` | rows of each input table, and why rows were rejected |
| `findings` | `code`, `status` and `count` of each rule |
| `recommendation` | of a what-if or a plan: `scenario`, `choice`, `reason`, `price`, `finalists` |
| `scenarios` | the [figures](metrics.md) of each scenario and its consumers; `dispatch` is its replay, or null |
| `plans` | of a plan: the answers with value, bound, gap and tables |
| `tables`, `report`, `log` | what was written where |
"""


def _commands() -> Iterator[str]:
    versions = ", ".join(f"`{name}` {version}" for name, version in JSON_VERSIONS.items())
    yield _COMMANDS.replace("<!-- versions -->", f"Versions of this release: {versions}.")
    program: Any = typer.main.get_command(app)
    yield "| command | what it does |\n|---|---|"
    for name, command in program.commands.items():
        first = inspect.cleandoc(command.help).split("\n\n")[0].replace("\n", " ")
        yield f"| [`subreplay {name}`](#subreplay-{name}) | {first} |"
    for name, command in program.commands.items():
        yield f"\n## subreplay {name}\n"
        yield _help(command, f"subreplay {name}")
        if hasattr(command, "commands"):
            one = next(iter(command.commands))
            yield f"All questions take the same options, here those of `subreplay {name} {one}`:\n"
            yield _help(command.commands[one], f"subreplay {name} {one}")


def _help(command: Any, called: str) -> str:
    context = command.make_context(called, [], resilient_parsing=True, terminal_width=100, max_content_width=100)
    return "```text\n" + "\n".join(line.rstrip() for line in command.get_help(context).splitlines()) + "\n```\n"
