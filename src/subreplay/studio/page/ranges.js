// Sticky ranges as one bar, whose borders are dragged, or moved with the arrow keys.

import { build, find } from "./dom.js";
import { SLOTS, readBorders, setBorders } from "./setups.js";

const STEPS = { ArrowLeft: -64, ArrowRight: 64, PageDown: -2048, PageUp: 2048, Home: -SLOTS, End: SLOTS };

export class RangeBar {
  constructor(store) {
    this.store = store;
    this.bar = find("ranges");
    this.dragged = null;
    this.bar.addEventListener("keydown", (event) => this.press(event));
    this.bar.addEventListener("pointerdown", (event) => this.grab(event));
    this.bar.addEventListener("pointermove", (event) => this.drag(event));
    for (const type of ["pointerup", "pointercancel"]) {
      this.bar.addEventListener(type, () => { this.dragged = null; this.store.endGroup(); });
    }
  }

  show() {
    const { setup } = this.store;
    const borders = readBorders(setup);
    if (!borders) {
      this.bar.replaceChildren(build("span", { class: "part" }, "Several ranges for a consumer: see the run file."));
      return;
    }
    const ends = [0, ...borders, SLOTS];
    const parts = setup.members.length, there = this.bar.querySelectorAll(".part").length;
    if (parts !== there || this.bar.querySelectorAll(".border").length !== borders.length) {
      this.bar.replaceChildren(
        ...setup.members.map((_, i) => build("span", { class: "part" }, build("i", { class: `k${i % 30}` }), build("b", {}))),
        ...borders.map((_, i) => build("button", { type: "button", class: "border", role: "slider", "data-index": i, "aria-valuemin": 1, "aria-valuemax": SLOTS - 1 })));
    }
    this.bar.querySelectorAll(".part").forEach((part, i) => {
      part.style.left = `${(ends[i] / SLOTS) * 100}%`;
      part.style.width = `${((ends[i + 1] - ends[i]) / SLOTS) * 100}%`;
      part.lastChild.textContent = setup.members[i].consumer;
      part.title = `${setup.members[i].consumer}: slots ${ends[i]} to ${ends[i + 1] - 1}`;
    });
    this.bar.querySelectorAll(".border").forEach((border, i) => {
      border.style.left = `${(borders[i] / SLOTS) * 100}%`;
      border.setAttribute("aria-valuenow", borders[i]);
      border.setAttribute("aria-label", `Border between ${setup.members[i].consumer} and ${setup.members[i + 1].consumer}`);
    });
  }

  move(index, slot) {
    this.store.change((setup) => {
      const borders = readBorders(setup);
      const low = (borders[index - 1] ?? 0) + 1, high = (borders[index + 1] ?? SLOTS) - 1;
      borders[index] = Math.min(Math.max(Math.round(slot), low), high);
      setBorders(setup, borders);
    }, `border ${index}`);
  }

  press(event) {
    const step = STEPS[event.key];
    if (!step || !event.target.dataset.index) return;
    event.preventDefault();
    const index = Number(event.target.dataset.index);
    this.move(index, readBorders(this.store.setup)[index] + step);
  }

  grab(event) {
    if (!event.target.dataset.index) return;
    this.dragged = Number(event.target.dataset.index);
    event.target.focus();
    this.bar.setPointerCapture(event.pointerId);
    event.preventDefault();
  }

  drag(event) {
    if (this.dragged === null) return;
    const box = this.bar.getBoundingClientRect();
    this.move(this.dragged, ((event.clientX - box.left) / box.width) * SLOTS);
  }
}
