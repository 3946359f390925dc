// The answers: a card for each set-up, the table side by side, and the charts of the selected one.

import { build, buildChart, find } from "./dom.js";

const CHARTS = [
  ["load", "Load of each consumer over time"],
  ["utilisation", "Utilisation of the busiest consumer, with its limit"],
  ["skew", "Skew of each consumer over time"],
  ["moves", "Slots that move between consumers"],
];
const SHOWN = 100; // consumers in the table

export class Results {
  constructor(store, facts) {
    this.store = store;
    this.metrics = facts.metrics;
    this.most = facts.most.setups;
    find("cards").addEventListener("click", (event) => this.press(event.target.closest("button")));
    find("add-setup").addEventListener("click", () => this.addCopy());
  }

  press(button) {
    if (!button) return;
    const index = Number(button.closest(".card").dataset.index);
    const work = button.dataset.work;
    this.store.change((_, view) => {
      if (work === "select") view.selected = index;
      if (work === "pin") view.baseline = index;
      if (work === "remove") {
        view.state.scenarios.splice(index, 1);
        for (const name of ["selected", "baseline"]) {
          if (view[name] > index || view[name] >= view.state.scenarios.length) view[name] = Math.max(view[name] - 1, 0);
        }
      }
    });
    if (work) find("cards").querySelector(`[data-index="${index}"] [data-work="${work}"]`)?.focus();
  }

  /** Add a copy of a set-up (`of`: selected or baseline), and select it. Returns whether there was room for it. */
  addCopy(edit = () => {}, of = "selected") {
    let added = false;
    this.store.change((_, view) => {
      const setups = view.state.scenarios;
      if (setups.length >= this.most) return;
      const copy = structuredClone(setups[view[of]]);
      edit(copy, setups);
      if (setups.some((one) => one.name === copy.name)) copy.name = nextName(copy.name, setups);
      setups.push(copy);
      view.selected = setups.length - 1;
      added = true;
    });
    return added;
  }

  /** Show names and buttons of all set-ups; charts come with the answer. */
  showCards() {
    const { view } = this.store;
    const cards = find("cards"), setups = view.state.scenarios;
    find("add-setup").disabled = setups.length >= this.most;
    while (cards.children.length > setups.length) cards.lastChild.remove();
    while (cards.children.length < setups.length) cards.append(buildCard());
    setups.forEach((setup, index) => {
      const card = cards.children[index], is = (name) => view[name] === index;
      card.dataset.index = index;
      card.classList.toggle("selected", is("selected"));
      const [title, pin, remove] = card.querySelectorAll("button");
      title.textContent = setup.name;
      title.setAttribute("aria-pressed", is("selected"));
      pin.setAttribute("aria-pressed", is("baseline"));
      pin.textContent = is("baseline") ? "Baseline" : "Pin as baseline";
      remove.hidden = setups.length === 1;
      remove.setAttribute("aria-label", `Remove ${setup.name}`);
      card.querySelector(".about").textContent = `${setup.policy}, ${setup.profile ?? "latest"}`;
    });
  }

  show(found) {
    const cards = find("cards").children;
    found.cards.forEach((one, index) => {
      if (!cards[index]) return;
      const [note, error] = cards[index].querySelectorAll(".note, .error");
      note.textContent = one.note;
      error.textContent = one.error;
      cards[index].querySelector(".picture").replaceChildren(...(one.chart ? [buildChart(one.chart)] : []));
    });
    this.showTable(found);
    this.showDetail(found);
  }

  showTable({ cards, rows, selected, baseline }) {
    const mine = (i) => (i === selected ? "n mine" : "n");
    const head = build("tr", {}, build("td", {}), ...cards.map((card, i) => build("th", { scope: "col", class: mine(i) }, card.name, i === baseline ? build("small", {}, "baseline") : null)));
    const body = rows.map((row) => build("tr", {},
      build("th", { scope: "row" }, this.metrics[row.metric] ? build("abbr", { title: this.metrics[row.metric] }, row.label) : row.label),
      ...row.texts.map((text, i) => build("td", { class: `${mine(i)}${row.limited[i] ? " over" : ""}` },
        text, row.limited[i] ? " above the limit" : null, row.changes[i] ? build("small", {}, row.changes[i]) : null))));
    find("figures").replaceChildren(build("thead", {}, head), build("tbody", {}, ...body));
  }

  showDetail({ cards, detail, selected }) {
    find("detail-heading").textContent = `Load: ${cards[selected].name}`;
    const parts = CHARTS.filter(([name]) => detail.charts[name]).flatMap(([name, title]) =>
      [build("p", { class: "sub" }, title), buildChart(detail.charts[name], name === "moves")]);
    if (!detail.charts.utilisation && !cards[selected].error) {
      parts.push(build("p", { class: "hint" }, "Set the time per message to see how busy the consumers are."));
    }
    if (detail.hot_keys.length) {
      parts.push(build("p", { class: "sub" }, "Hottest keys, by their pseudonyms"),
        buildTable(["Key", "Messages", "Share", "Owner at the end"], detail.hot_keys, [1, 2]));
    }
    if (detail.consumers.length) {
      const rows = detail.consumers.slice(0, SHOWN).map(([name, token, ...others]) =>
        [build("span", {}, build("i", { class: `swatch ${token}` }), ` ${name}`), ...others]);
      const more = detail.consumers.length > SHOWN ? ` (the first ${SHOWN} of ${detail.consumers.length})` : "";
      parts.push(build("details", { id: "consumers", open: find("consumers")?.open ?? false }, build("summary", {}, `Every consumer${more}`),
        buildTable(["Consumer", "Messages", "Keys", "Share", "Note"], rows, [1, 2, 3])));
    }
    find("detail").replaceChildren(...parts);
  }
}

function buildCard() {
  return build("article", { class: "card" },
    build("h3", {}, build("button", { type: "button", "data-work": "select" })),
    build("p", { class: "about" }), build("div", { class: "picture" }), build("p", { class: "note" }), build("p", { class: "error" }),
    build("div", { class: "pair" }, build("button", { type: "button", "data-work": "pin" }),
      build("button", { type: "button", "data-work": "remove" }, "Remove")));
}

export function buildTable(columns, rows, numbers) {
  const css = (i) => (numbers.includes(i) ? "n" : "");
  return build("div", { class: "scroll" }, build("table", {},
    build("thead", {}, build("tr", {}, ...columns.map((name, i) => build("th", { scope: "col", class: css(i) }, name)))),
    build("tbody", {}, ...rows.map((row) => build("tr", {}, ...row.map((value, i) => build("td", { class: css(i) }, value)))))));
}

function nextName(name, setups) {
  const base = name.replace(/ \(\d+\)$/, "");
  for (let i = 2; ; i += 1) if (!setups.some((one) => one.name === `${base} (${i})`)) return `${base} (${i})`;
}
