// The joins, leaves, crashes and restarts of the selected set-up.

import { build, find, setField } from "./dom.js";
import { formatDuration, parseDuration, roundDuration } from "./durations.js";
import * as setups from "./setups.js";

const MOST_LANES = 60, MOST_EVENTS = 120;
const SAYS = { join: "joins at", leave: "leaves at", crash: "crashes at" };

export class Timeline {
  constructor(store, facts) {
    this.store = store;
    this.span = facts.span_us;
    document.querySelectorAll("[data-add]").forEach((button) => button.addEventListener("click", () =>
      store.change((setup) => setups.addEvent(setup, button.dataset.add, roundDuration(this.span / 2)))));
    find("clear-events").addEventListener("click", () => store.change((setup) => setups.clearEvents(setup)));
    find("rolling").addEventListener("click", () => {
      const times = this.readRestart();
      if (times) store.change((setup) => setups.restartAll(setup, times.away, times.pause, this.span));
    });
    find("events").addEventListener("input", (event) => this.edit(event.target));
    find("events").addEventListener("click", (event) => this.remove(event.target));
  }

  /** The times of a rolling restart; null if a field is no duration. */
  readRestart() {
    const times = {};
    for (const id of ["away", "pause"]) {
      times[id] = parseDuration(find(id).value);
      find(id).setAttribute("aria-invalid", times[id] === null);
    }
    return times.away === null || times.pause === null ? null : times;
  }

  show() {
    const { setup } = this.store;
    const listed = setups.isListed(setup);
    document.querySelectorAll("[data-add], #rolling, #clear-events").forEach((button) => { button.disabled = !listed; });
    const events = setups.listEvents(setup);
    this.showLanes(listed && events.length ? setup.members : []);
    const shown = events.slice(0, MOST_EVENTS);
    const list = find("events");
    const names = shown.map((one) => `${one.index} ${one.kind}`).sort().join();
    if (names !== this.names) {
      this.names = names;
      list.replaceChildren(...shown.map((one) => this.buildRow(one)));
      if (events.length > shown.length) list.append(build("li", {}, `and ${events.length - shown.length} more`));
    }
    for (const one of shown) {
      const row = list.querySelector(`[data-row="${one.index} ${one.kind}"]`);
      row.querySelector("b").textContent = one.consumer;
      setField(row.querySelector("input[type=range]"), one.at);
      setField(row.querySelector("[data-part=at]"), formatDuration(one.at));
      const back = row.querySelector("[data-part=back]");
      if (back) setField(back, one.back === null ? "" : formatDuration(one.back));
    }
  }

  buildRow({ index, kind, consumer }) {
    const field = (part, label, hint) => build("input", { type: "text", "data-part": part, "aria-label": label, placeholder: hint });
    const step = Math.max(1000, 10 ** Math.floor(Math.log10(this.span / 200)));
    return build("li", { "data-row": `${index} ${kind}`, "data-index": index, "data-kind": kind },
      build("div", { class: "pair" }, build("b", {}, consumer), SAYS[kind], field("at", `When ${consumer} ${kind}s`),
        build("button", { type: "button", "aria-label": `Remove: ${consumer} ${kind}s` }, "×")),
      build("input", { type: "range", min: step, max: this.span, step, "data-part": "slide", "aria-label": `When ${consumer} ${kind}s, as a slider` }),
      kind === "join" ? null : build("label", {}, "returns after", field("back", `How long ${consumer} is away`, "never")));
  }

  edit(field) {
    const row = field.closest("li");
    const { index, kind } = row.dataset;
    const us = field.dataset.part === "slide" ? Number(field.value) : parseDuration(field.value);
    const empty = field.dataset.part === "back" && !field.value.trim();
    if (field.type === "text") field.setAttribute("aria-invalid", us === null && !empty);
    if (us === null && !empty) return;
    this.store.change((setup) => {
      const member = setup.members[Number(index)];
      if (empty) delete member.restart;
      else if (field.dataset.part === "back") member.restart = formatDuration(us);
      else member[kind] = formatDuration(Math.max(us, 1000));
    }, `event ${index} ${kind} ${field.dataset.part}`);
  }

  remove(button) {
    const row = button.closest("li");
    if (button.tagName !== "BUTTON" || !row) return;
    this.store.change((setup) => setups.removeEvent(setup, Number(row.dataset.index), row.dataset.kind));
  }

  showLanes(members) {
    const lanes = members.slice(0, MOST_LANES).map((member) => {
      const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      svg.setAttribute("viewBox", "0 0 1000 12");
      svg.setAttribute("preserveAspectRatio", "none");
      svg.setAttribute("aria-hidden", "true");
      for (const [name, low, high] of [["all", 0, 1], ...setups.listConnected(member, this.span).map(([low, high]) => ["here", low, high])]) {
        const box = document.createElementNS("http://www.w3.org/2000/svg", "rect");
        for (const [key, value] of Object.entries({ class: name, x: low * 1000, y: 2, width: (high - low) * 1000, height: 8 })) box.setAttribute(key, value);
        svg.append(box);
      }
      return build("div", {}, build("span", { title: member.consumer }, member.consumer), svg);
    });
    find("lanes").replaceChildren(...lanes);
  }
}
