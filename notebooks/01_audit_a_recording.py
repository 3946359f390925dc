# Databricks notebook source
# MAGIC %md
# MAGIC # Audit a recording
# MAGIC
# MAGIC A real Pulsar 4.0.8 broker served one Key_Shared subscription: 4,000 messages and five consumers that join and
# MAGIC leave. Did the subscription keep its delivery guarantees? Who owned a key, and why did the key move?
# MAGIC
# MAGIC On Databricks, install the wheel of `subreplay` on the cluster first. Elsewhere this file is a plain Python
# MAGIC program: `python notebooks/01_audit_a_recording.py`.

# COMMAND ----------

from importlib.resources import as_file, files
from pathlib import Path

from subreplay.adapters import Options
from subreplay.config import run as config
from subreplay.engine.spark import frame_tables
from subreplay.engine.spark.engine import SparkEngine
from subreplay.engine.spark.session import open_session
from subreplay.pipeline import adapter_sources, explain, ingest, story
from subreplay.reports.page.html import to_html
from subreplay.reports.write import write_reports

# A folder that Spark can write. On Databricks, one in a volume: /Volumes/<catalog>/<schema>/<volume>/subreplay
folder = str(Path("build/notebook").resolve())

# The platform defines spark and display. Elsewhere this cell defines them.
if "spark" not in globals():
    spark = open_session(config.Spark())
if "display" not in globals():

    def display(frame):
        frame.show(20, truncate=60)


# COMMAND ----------

# MAGIC %md
# MAGIC ## Read it into tables
# MAGIC
# MAGIC An adapter reads files into three tables: `messages`, `membership` and `deliveries`. A row that is not usable
# MAGIC goes to `quarantine` with the reasons: rows in = valid + quarantined.

# COMMAND ----------

engine = SparkEngine(spark)
with as_file(files("subreplay.demo") / "recording") as recording:
    read = adapter_sources.read(engine, "pulsar-recording", recording, Options())
ingest.write(engine, read, f"{folder}/input", "delta", "the bundled recording")

display(spark.createDataFrame([(c.file, c.rows_in, c.valid, c.quarantined) for c in read.summary.counts],
                              "file string, rows_in long, valid long, quarantined long"))  # fmt: skip

# COMMAND ----------

# MAGIC %md
# MAGIC ## Describe the guarantees and check them
# MAGIC
# MAGIC The recording suggests its own run: the subscription, its policy and the broker's profile. A run is a mapping
# MAGIC with the keys of `conf/default.yaml`, or a YAML file for `config.load`. The scenarios are
# MAGIC other set-ups for the same traffic.

# COMMAND ----------

run = config.parse(
    read.summary.run
    | {
        "traffic": {"path": f"{folder}/input"},
        "output": {"tables": f"{folder}/tables", "report": f"{folder}/report"},
        "windows": {"width": "500ms"},
        "scenarios": [
            {"name": "as it was", "policy": "pulsar.key_shared.consistent_hash"},
            {"name": "auto-split", "policy": "pulsar.key_shared.auto_split"},
            {"name": "one active consumer", "policy": "pulsar.failover"},
        ],
    },
    "notebook",
)
result = story.audit(engine, run)

print(f"{result.verdict}: {result.report.headline}")

# COMMAND ----------

display(spark.createDataFrame([(c.code, c.status, c.count, c.title) for c in result.report.codes],
                              "code string, status string, count long, title string"))  # fmt: skip

# COMMAND ----------

# MAGIC %md
# MAGIC ## Look into the result tables
# MAGIC
# MAGIC The findings, each with its evidence and its cause:

# COMMAND ----------


def table(name):
    return frame_tables.read_table(spark, run.output.tables, name, "delta")


display(table("violations").select("code", "verdict", "explanation", "cause"))

# COMMAND ----------

# MAGIC %md
# MAGIC Every join and leave began an epoch and moved ranges of slots. This table shows what each event moved, and the
# MAGIC share of the traffic:

# COMMAND ----------

display(table("epochs").select("epoch", "from", "to", "cause", "members").orderBy("epoch"))
display(table("range_tables").select("epoch", "start", "end", "before", "consumer").orderBy("epoch", "start"))
display(table("moves").select("epoch", "cause", "before", "after", "slots", "share_of_traffic").orderBy("epoch"))

# COMMAND ----------

# MAGIC %md
# MAGIC The load of each consumer by window, and the scenarios side by side:

# COMMAND ----------

loads = table("assignments").select("window_start", "consumer", "messages", "share", "skew")
display(loads.orderBy("window_start", "consumer"))
display(table("scenarios").select("name", "policy", "consumers", "max_share", "skew", "traffic_moved"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Explain one key
# MAGIC
# MAGIC Its bytes, hash and slot, and its owner in each epoch with the event that moved it.

# COMMAND ----------

key = read.tables["messages"].to_table()["key"][0].as_py().decode()
for line in explain.explain_key(run, key, lambda: engine):
    print(line)

# COMMAND ----------

# MAGIC %md
# MAGIC ## The report as a page
# MAGIC
# MAGIC One file that works offline.

# COMMAND ----------

if "displayHTML" in globals():
    displayHTML(to_html(result.report))
else:
    print(write_reports(result.report, Path(run.output.report)).html)
