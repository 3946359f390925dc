# Databricks notebook source
# MAGIC %md
# MAGIC # Find a violation
# MAGIC
# MAGIC A subscription broke its promise twice among 4,000 messages. Which promise, which message, at which consumer, by
# MAGIC what cause? From the verdict over the windows to the life of one message.
# MAGIC
# MAGIC On Databricks, install the wheel of `subreplay` on the cluster first. Elsewhere this file is a plain Python
# MAGIC program: `python notebooks/02_find_a_violation.py`.

# COMMAND ----------

from datetime import timedelta
from importlib.resources import as_file, files
from pathlib import Path

import pyarrow as pa

from subreplay.adapters import Options
from subreplay.audit.explain.position import Position
from subreplay.config import run as config
from subreplay.engine.spark import lake
from subreplay.engine.spark.engine import SparkEngine
from subreplay.engine.spark.session import open_session
from subreplay.pipeline import ingest, sources, story, trace
from subreplay.reports.page.html import to_html
from subreplay.reports.write import write_reports

# A folder that Spark can write. On Databricks, one in a volume: /Volumes/<catalog>/<schema>/<volume>/subreplay
folder = str(Path("build/violation").resolve())

# What the platform defines; elsewhere, the same by other means.
if "spark" not in globals():
    spark = open_session(config.Spark())
if "display" not in globals():

    def display(frame):
        frame.show(20, truncate=60)


# COMMAND ----------

# MAGIC %md
# MAGIC ## Break two promises
# MAGIC
# MAGIC The broker of the bundled recording kept all of them. So one delivery is moved to a consumer that does not own
# MAGIC its key, and one message is delivered once more, a second after it was acknowledged.

# COMMAND ----------

engine = SparkEngine(spark)
with as_file(files("subreplay.demo") / "recording") as recording:
    read = sources.read(engine, "pulsar-recording", recording, Options())

recorded = read.tables["deliveries"].table()
deliveries = recorded.to_pylist()
moved, again = deliveries[2_000], dict(deliveries[3_000])
moved["consumer"] = "c2" if moved["consumer"] != "c2" else "c3"
again |= {"delivered_at": again["acked_at"] + timedelta(seconds=1), "acked_at": None, "received_at": None}
broken = engine.of(pa.Table.from_pylist([*deliveries, again], recorded.schema))
read = sources.Read({**read.tables, "deliveries": broken}, read.rejected, read.told)
ingest.write(engine, read, f"{folder}/input", "delta", "the bundled recording, with two faults")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Audit it
# MAGIC
# MAGIC Windows of two seconds start every half second, so that what falls on the edge of one lies within the next.

# COMMAND ----------

run = config.parse(
    read.told.run
    | {
        "traffic": {"path": f"{folder}/input"},
        "output": {"tables": f"{folder}/tables", "report": f"{folder}/report"},
        "windows": {"width": "2s", "slide": "500ms"},
    },
    "notebook",
)
result = story.audit(engine, run)

print(f"{result.verdict}: {result.report.headline}")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Which rule, when, at which consumer
# MAGIC
# MAGIC Failing findings by window, rule, consumer and cause. Windows that tumble count each finding once.

# COMMAND ----------


def table(name):
    return lake.read(spark, run.output.tables, name, "delta")


failing = table("violations_by_window").select("window_start", "tumbling", "code", "consumer", "cause", "count")
display(failing.where("tumbling").drop("tumbling").orderBy("window_start", "code"))
display(failing.orderBy("window_start", "code"))

# COMMAND ----------

# MAGIC %md
# MAGIC The load of the same windows, to see whether anything else was unusual then:

# COMMAND ----------

loads = table("assignments").where("tumbling").select("window_start", "consumer", "messages", "keys", "skew")
display(loads.orderBy("window_start", "consumer"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## The findings in words
# MAGIC
# MAGIC Each names its message, its witness, and its cause: an event of the membership, or none.

# COMMAND ----------

found = table("violations").where("verdict = 'invalid'").orderBy("at", "code")
display(found.select("code", "explanation", "cause"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## The life of a message
# MAGIC
# MAGIC Published, owned, blocked, delivered, acknowledged, in order of time, with all findings about it: what
# MAGIC `subreplay explain --message` prints.

# COMMAND ----------

worst = found.first()
message = Position.parse(f"{worst.topic}:{worst.ledger}:{worst.entry}")
for line in trace.trace_message(engine, run, message, last=50):
    print(line)

# COMMAND ----------

# MAGIC %md
# MAGIC And that of its key, the latest twenty deliveries: `subreplay explain --key`. The key is given in the clear, and
# MAGIC shown as the run shows keys.

# COMMAND ----------

position = (moved["ledger"], moved["entry"])
messages = read.tables["messages"].select(["ledger", "entry", "key"]).table().to_pylist()
key = next(row["key"].decode() for row in messages if (row["ledger"], row["entry"]) == position)
for line in trace.trace_key(engine, run, key, last=20):
    print(line)

# COMMAND ----------

# MAGIC %md
# MAGIC ## The report as a page
# MAGIC
# MAGIC Its findings can be narrowed to a rule, a consumer or a window, in the page itself.

# COMMAND ----------

if "displayHTML" in globals():
    displayHTML(to_html(result.report))
else:
    print(write_reports(result.report, Path(run.output.report)).html)
