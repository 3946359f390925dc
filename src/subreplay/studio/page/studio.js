// Start the page: get the token and the facts, then evaluate the state whenever it changes.

import { Actions } from "./actions.js";
import { build, find } from "./dom.js";
import { Knobs } from "./knobs.js";
import { RangeBar } from "./ranges.js";
import { Denied, Refused, ask, evaluate, useToken } from "./requests.js";
import { Results } from "./results.js";
import { Store, readUrl, takeToken } from "./store.js";
import { Timeline } from "./timeline.js";

const PATIENCE = 300; // ms until a slow evaluation is announced

function report(text) {
  find("problem").hidden = !text;
  find("problem").textContent = text;
}

class Page {
  constructor(facts, view) {
    this.store = new Store(view, () => this.changed());
    this.results = new Results(this.store, facts);
    this.knobs = new Knobs(this.store, facts);
    this.ranges = new RangeBar(this.store);
    this.timeline = new Timeline(this.store, facts);
    this.actions = new Actions(this.store, this.results, this.timeline, facts, report);
    this.waiting = false;
    this.busy = false;
    find("undo").addEventListener("click", () => this.store.undo());
    find("redo").addEventListener("click", () => this.store.redo());
    addEventListener("keydown", (event) => this.press(event));
    addEventListener("hashchange", () => { const found = readUrl(); if (found) this.store.show(found); });
    this.show();
    this.evaluate();
  }

  press(event) {
    const typing = /^(text|number|password)$/.test(event.target.type ?? "");
    if (typing || !(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "z") return;
    event.preventDefault();
    if (event.shiftKey) this.store.redo();
    else this.store.undo();
  }

  changed() {
    this.actions.forgetReplay();
    this.show();
    this.evaluate();
  }

  show() {
    find("undo").disabled = !this.store.before.length;
    find("redo").disabled = !this.store.after.length;
    this.results.showCards();
    this.knobs.show();
    if (!find("ranges-field").hidden) this.ranges.show();
    this.timeline.show();
  }

  /** Evaluate the latest state. While one evaluation runs, only the newest state waits. */
  async evaluate() {
    if (this.busy) {
      this.waiting = true;
      return;
    }
    this.busy = true;
    find("results").setAttribute("aria-busy", "true");
    const began = performance.now();
    const slow = setTimeout(() => { find("results").classList.add("old"); find("status").textContent = "Computing …"; }, PATIENCE);
    try {
      const found = await evaluate(this.store.view);
      this.results.show(found);
      report("");
      find("status").textContent = `${Math.round(performance.now() - began)} ms`;
      find("results").classList.remove("old");
      document.body.dataset.evaluated = found.number;
    } catch (error) {
      if (error instanceof Refused) {
        report(error.message);
        find("results").classList.add("old");
        find("status").textContent = "The results are of an earlier state.";
      } else if (error.name !== "AbortError") throw error;
    } finally {
      clearTimeout(slow);
      this.busy = false;
    }
    if (this.waiting) {
      this.waiting = false;
      this.evaluate();
    } else {
      find("results").setAttribute("aria-busy", "false");
    }
  }
}

function describeTraffic(facts) {
  find("title").textContent = facts.title;
  document.title = `${facts.title}: ${facts.topic}`;
  const parts = [facts.topic, `${facts.messages} messages`, `${facts.keys} keys`, facts.hottest ? `hottest key ${facts.hottest}` : null, `${facts.first} to ${facts.last}`];
  find("traffic").replaceChildren(...parts.filter(Boolean).map((text) => build("span", {}, text)));
  find("patterns").innerHTML = facts.patterns;
}

async function start(token) {
  useToken(token);
  try {
    const facts = await ask("start");
    find("token-form").hidden = true;
    report("");
    describeTraffic(facts);
    const known = readUrl();
    const page = new Page(facts, known ?? { state: facts.state, selected: 0, baseline: 0 });
    if (!known && facts.is_sample) page.actions.showGuide(true);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    report(error.message);
    find("token-form").hidden = !(error instanceof Denied);
  }
}

find("use-token").addEventListener("click", () => {
  sessionStorage.setItem("token", find("token").value.trim());
  start(find("token").value.trim());
});
start(takeToken());
