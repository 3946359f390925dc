// The planner, the dispatch replay, and what leaves the page: link, run file, Python, report.

import { build, download, find } from "./dom.js";
import { chooseNear, parseDuration } from "./durations.js";
import { buildTable } from "./results.js";
import { Refused, ask } from "./requests.js";
import { readService, setLimit, setService } from "./knobs.js";
import * as setups from "./setups.js";

const POLL = 400; // ms between looks at a replay

export class Actions {
  constructor(store, results, timeline, facts, report) {
    Object.assign(this, { store, results, timeline, facts, report, replayed: null, finished: null });
    const on = (id, work) => find(id).addEventListener("click", () => this.attempt(work));
    on("copy-link", () => this.copy(location.href, "The link is copied. It contains the set-ups, and no token."));
    on("save-run-file", async () => download("whatif.yaml", (await this.ask("run-file", { dispatch: this.finished !== null })).text, "application/yaml"));
    on("copy-python", async () => this.copy((await this.ask("python")).text, "The program is copied."));
    on("download-page", async () => download("whatif.html", (await this.ask("page", this.finished === null ? {} : { replay: this.finished })).text, "text/html"));
    on("replay", () => this.replay());
    on("cancel-replay", () => this.cancelReplay());
    on("open-guide", () => this.showGuide(find("guide").hidden));
    on("close-guide", () => this.showGuide(false));
    document.querySelectorAll("[data-plan]").forEach((button) => button.addEventListener("click", () => this.attempt(() => this.plan(button.dataset.plan, button))));
    document.querySelectorAll("[data-guide]").forEach((button) => button.addEventListener("click", () => this.attempt(() => this.guide(button.dataset.guide))));
    find("replay").disabled = !facts.can_replay;
    if (!facts.can_replay) find("replay-state").textContent = "A kept profile has no messages to replay. Start the studio with --config or --messages.";
  }

  async attempt(work) {
    try {
      this.report("");
      await work();
    } catch (error) {
      if (error instanceof Refused) this.report(error.message);
      else throw error;
    }
  }

  ask(name, more = {}) {
    const { state, selected } = this.store.view;
    return ask(name, { state, selected, ...more });
  }

  async copy(text, done) {
    try {
      await navigator.clipboard.writeText(text);
      find("status").textContent = done;
    } catch {
      const field = build("textarea", { rows: 6, readonly: true, "aria-label": "Text to copy" });
      field.value = text;
      find("plan").hidden = false;
      find("plan").replaceChildren(build("p", {}, "The browser does not let the page copy. Copy the text:"), field);
      field.select();
    }
  }

  /** The state changed: a finished replay is of another state. */
  forgetReplay() {
    this.finished = null;
    find("replay-table").classList.add("old");
  }

  async plan(question, button) {
    const state = structuredClone(this.store.view.state);
    if (["consumers", "latency"].includes(question) && !readService(state)) {
      find("service").focus();
      throw new Refused("Set the time per message first (under Application): the answer depends on it.");
    }
    state.plan ??= {};
    if (question === "latency") {
      if (parseDuration(find("p99").value) === null) throw new Refused("The latency is not a duration; write a number and a unit, such as 2s.");
      state.plan.sizing = { ...state.plan.sizing, p99: find("p99").value };
    }
    if (question === "rollout") {
      const times = this.timeline.readRestart();
      if (!times) throw new Refused("The times of the rolling restart are no durations; write a number and a unit, such as 30s.");
      state.plan.rollout = { away: find("away").value, pause: find("pause").value };
    }
    const box = find("plan");
    box.hidden = false;
    box.replaceChildren(build("p", {}, "Planning …"));
    if (button) button.disabled = true;
    try {
      const selected = this.store.view.selected;
      const found = await ask("plan", { state, selected, question: question === "latency" ? "consumers" : question });
      this.showPlan(found);
      return found;
    } catch (error) {
      box.hidden = true;
      throw error;
    } finally {
      if (button) button.disabled = false;
    }
  }

  showPlan(found) {
    const apply = build("button", { type: "button", onclick: () => this.applyPlan(found) }, "Apply to the selected set-up");
    find("plan").replaceChildren(
      build("p", {}, build("strong", {}, found.choice)), ...[found.reason, found.price, found.bound].filter(Boolean).map((text) => build("p", {}, text)),
      ...(found.setups.length ? [apply] : []),
      build("details", {}, build("summary", {}, "Assumptions"), build("ul", {}, ...found.assumed.map((text) => build("li", {}, text)))));
  }

  applyPlan(found) {
    const [planned] = found.setups;
    if (!planned) return;
    this.store.change((setup) => {
      const ordered = new Map((setups.isListed(setup) ? setup.members : []).map((member) => [member.consumer, member.priority]));
      Object.assign(setup, planned, { name: setup.name });
      setup.members.forEach((member) => { if (ordered.get(member.consumer)) member.priority = ordered.get(member.consumer); });
    });
    find("status").textContent = "Applied to the selected set-up.";
  }

  async replay() {
    const started = await this.ask("replay", { dispatch: true });
    this.replayed = started.replay;
    find("cancel-replay").hidden = false;
    find("replay-table").classList.add("old");
    const asked = JSON.stringify(this.store.view.state);
    while (this.replayed === started.replay) {
      const found = await ask("replay-state", { replay: started.replay });
      if (this.replayed !== started.replay) return;
      if (found.state === "running") {
        find("replay-state").textContent = `${found.seconds} s: ${found.stage}`;
        await new Promise((done) => setTimeout(done, POLL));
        continue;
      }
      find("cancel-replay").hidden = true;
      this.replayed = null;
      if (found.state === "failed") throw new Refused(`The replay failed: ${found.error}`);
      if (found.state === "done") this.showReplay(found, asked === JSON.stringify(this.store.view.state) ? started.replay : null);
      else find("replay-state").textContent = "Cancelled.";
    }
  }

  showReplay({ setups: replays, seconds }, number) {
    this.finished = number;
    find("replay-state").textContent = `Done in ${seconds} s.` + (number === null ? " The set-ups have changed since." : "");
    const table = find("replay-table");
    table.hidden = false;
    table.classList.toggle("old", number === null);
    const labels = replays[0]?.rows.map(([label]) => label) ?? [];
    const rows = labels.map((label, i) => [label, ...replays.map((one) => one.rows[i][1])]);
    const built = buildTable(["", ...replays.map((one) => one.name)], rows, replays.map((_, i) => i + 1));
    table.replaceChildren(...built.firstChild.children);
  }

  async cancelReplay() {
    this.replayed = null;
    await ask("replay-cancel");
    find("cancel-replay").hidden = true;
    find("replay-state").textContent = "Cancelled.";
  }

  showGuide(shown) {
    find("guide").hidden = !shown;
    find("open-guide").setAttribute("aria-expanded", shown);
  }

  async guide(step) {
    const { store, results, facts } = this;
    if (step === "size") {
      if (!readService(store.view.state)) {
        const each = (facts.span_us / Number(facts.messages.replaceAll(",", ""))) * 2;
        store.change((setup, view) => {
          setService(view.state, chooseNear(each));
          setLimit(view.state, 0.7);
        });
      }
      await this.plan("consumers");
      find("plan").scrollIntoView({ block: "center" });
      return;
    }
    const edit = {
      partitions: (copy) => { copy.name = "more partitions"; copy.partitions = (copy.partitions ?? facts.recorded_partitions) * 2; },
      restart: (copy) => {
        copy.name = "rolling restart";
        if (!setups.isListed(copy)) setups.listRecorded(copy, facts.recorded_names);
        const each = facts.span_us / (copy.members.length * 3);
        setups.restartAll(copy, chooseNear(each / 2), chooseNear(each), facts.span_us);
      },
    }[step];
    if (!results.addCopy(edit, "baseline")) throw new Refused("There are six set-ups already. Remove one first.");
    find("figures").scrollIntoView({ block: "center" });
  }
}
