# Databricks notebook source
# MAGIC %md
# MAGIC # Find a violation
# MAGIC
# MAGIC A subscription broke its guarantees twice in 4,000 messages. This notebook goes from the verdict to the windows,
# MAGIC to the consumer and the cause, and to the history of one message.
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
from subreplay.engine.spark import frame_tables
from subreplay.engine.spark.engine import SparkEngine
from subreplay.engine.spark.session import open_session
from subreplay.pipeline import adapter_sources, ingest, story, trace
from subreplay.reports.page.html import to_html
from subreplay.reports.write import write_reports

# A folder that Spark can write. On Databricks, one in a volume: /Volumes/<catalog>/<schema>/<volume>/subreplay
folder = str(Path("build/violation").resolve())

# The platform defines spark and display. Elsewhere this cell defines them.
if "spark" not in globals():
    spark = open_session(config.Spark())
if "display" not in globals():

    def display(frame):
        frame.show(20, truncate=60)


# COMMAND ----------

# MAGIC %md
# MAGIC ## Break two guarantees
# MAGIC
# MAGIC The broker of the bundled recording kept all guarantees. The next cell moves one delivery to a consumer that
# MAGIC does not own its key, and delivers one message again a second after its acknowledgement.

# COMMAND ----------

engine = SparkEngine(spark)
with as_file(files("subreplay.demo") / "recording") as recording:
    read = adapter_sources.read(engine, "pulsar-recording", recording, Options())

recorded = read.tables["deliveries"].to_table()
deliveries = recorded.to_pylist()
moved, again = deliveries[2_000], dict(deliveries[3_000])
moved["consumer"] = "c2" if moved["consumer"] != "c2" else "c3"
again |= {"delivered_at": again["acked_at"] + timedelta(seconds=1), "acked_at": None, "received_at": None}
broken = engine.create_dataset(pa.Table.from_pylist([*deliveries, again], recorded.schema))
read = adapter_sources.Read({**read.tables, "deliveries": broken}, read.rejected, read.summary)
ingest.write(engine, read, f"{folder}/input", "delta", "the bundled recording, with two faults")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Audit it
# MAGIC
# MAGIC Windows of two seconds start every half second, so that an event at the edge of one window lies inside the next.

# COMMAND ----------

run = config.parse(
    read.summary.run
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
# MAGIC Failing findings by window, rule, consumer and cause. Tumbling windows count each finding once.

# COMMAND ----------


def table(name):
    return frame_tables.read_table(spark, run.output.tables, name, "delta")


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
# MAGIC ## The findings
# MAGIC
# MAGIC Each finding names its message, its evidence, and its cause: a membership event, or none.

# COMMAND ----------

found = table("violations").where("verdict = 'invalid'").orderBy("at", "code")
display(found.select("code", "explanation", "cause"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## The history of a message
# MAGIC
# MAGIC Published, owned, blocked, delivered, acknowledged, in order of time, with all findings about it:
# MAGIC the output of `subreplay explain --message`.

# COMMAND ----------

worst = found.first()
message = Position.parse(f"{worst.topic}:{worst.ledger}:{worst.entry}")
for line in trace.trace_message(engine, run, message, last=50):
    print(line)

# COMMAND ----------

# MAGIC %md
# MAGIC The history of its key, with the latest twenty deliveries: `subreplay explain --key`. Pass the key as plain
# MAGIC text; the output shows it as the run shows keys.

# COMMAND ----------

position = (moved["ledger"], moved["entry"])
messages = read.tables["messages"].select(["ledger", "entry", "key"]).to_table().to_pylist()
key = next(row["key"].decode() for row in messages if (row["ledger"], row["entry"]) == position)
for line in trace.trace_key(engine, run, key, last=20):
    print(line)

# COMMAND ----------

# MAGIC %md
# MAGIC ## The report as a page
# MAGIC
# MAGIC Filter the findings by rule, consumer or window in the page.

# COMMAND ----------

if "displayHTML" in globals():
    displayHTML(to_html(result.report))
else:
    print(write_reports(result.report, Path(run.output.report)).html)
