# Databricks notebook source
# MAGIC %md
# MAGIC # Try set-ups
# MAGIC
# MAGIC A real Pulsar 4.0.8 broker served one Key_Shared subscription: 4,000 messages and five consumers that join and
# MAGIC leave. How many consumers are enough, and what does a rolling restart move?
# MAGIC
# MAGIC On Databricks, install the wheel of `subreplay` on the cluster first. Elsewhere this file is a plain Python
# MAGIC program: `python notebooks/03_try_set_ups.py`. `subreplay studio` has the same as a page with controls.

# COMMAND ----------

from importlib.resources import files

import subreplay

recording = {"from": "pulsar-recording", "path": str(files("subreplay.demo") / "recording")}

# COMMAND ----------

# MAGIC %md
# MAGIC ## Load the traffic once
# MAGIC
# MAGIC The profile stays in memory, without readable keys. Each evaluation then takes a fraction of a second.

# COMMAND ----------

profile = subreplay.TrafficProfile.load(recording, recording, windows={"width": "500ms"})
print(profile)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Turn a knob
# MAGIC
# MAGIC The share of the busiest consumer, for more and more consumers under two policies.

# COMMAND ----------


def set_up(policy, count):
    members = [{"consumer": f"c{number:05}"} for number in range(1, count + 1)]
    return {"name": f"{count} under {policy}", "policy": policy, "members": members}


for policy in ("pulsar.key_shared.consistent_hash", "pulsar.key_shared.auto_split"):
    for count in (2, 4, 8):
        found = profile.evaluate(set_up(policy, count)).figures
        print(f"{found.name}: busiest consumer {found.max_share:.1%}, skew {found.skew:.2f}")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Ask the planner
# MAGIC
# MAGIC The fewest consumers whose busiest one stays below 70% of its time, if a message takes 8 ms. No set-up can
# MAGIC beat the bound.

# COMMAND ----------

plan = {"service": {"model": "fixed", "time": "8ms"}, "sizing": {"utilisation": 0.7}, "window": "500ms"}
with subreplay.plan("consumers", recording, plan=plan) as planned:
    answer = planned.report.plans[0]
print(answer.choice, answer.reason, answer.bound_meaning, sep="\n")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Compare a rolling restart with today
# MAGIC
# MAGIC The page of the comparison is the last value of the cell.

# COMMAND ----------

restart = set_up("pulsar.key_shared.consistent_hash", 6) | {"name": "rolling restart"}
for number, member in enumerate(restart["members"]):
    member |= {"leave": f"{3 + 2 * number}s", "restart": "500ms"}
today = {"name": "today", "policy": "pulsar.key_shared.consistent_hash", "members": "recorded"}
compared = profile.compare([today, set_up("pulsar.key_shared.consistent_hash", 6), restart])
print(*(f"{one.name}: {one.keys_moved} keys moved" for one in compared.report.scenarios), sep="\n")
profile.close()
compared
