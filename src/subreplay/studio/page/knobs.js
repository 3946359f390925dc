// The controls of the selected set-up.

import { build, find, setField } from "./dom.js";
import { chooseNear, formatDuration, parseDuration } from "./durations.js";
import * as setups from "./setups.js";

const MOST_ROWS = 200; // consumers with fields of their own

export class Knobs {
  constructor(store, facts) {
    this.store = store;
    this.facts = facts;
    for (const group of ["pulsar", "kafka"]) {
      const names = facts.policies.filter((policy) => policy.name.startsWith(group));
      const options = names.map((policy) => build("option", { value: policy.name }, policy.name.slice(group.length + 1)));
      find("policy").append(build("optgroup", { label: group === "kafka" ? "Kafka" : "Pulsar" }, ...options));
    }
    find("hashing").append(...["", ...facts.schemes].map((scheme) => build("option", { value: scheme }, scheme || "as recorded")));
    find("window").append(...facts.widths.map((width) => build("option", { value: width }, width)));
    find("partitions").placeholder = `as recorded (${facts.recorded_partitions})`;
    find("count-number").max = facts.most.consumers;
    find("away").value = formatDuration(chooseNear(facts.span_us / 60));
    find("pause").value = formatDuration(chooseNear(facts.span_us / 30));
    this.listen();
  }

  listen() {
    const { store } = this;
    const on = (id, type, work) => find(id).addEventListener(type, () => work(find(id)));
    find("knobs").addEventListener("submit", (event) => event.preventDefault());
    find("knobs").addEventListener("change", () => store.endGroup());
    on("name", "change", (field) => field.value.trim() && store.change((setup, view) => {
      const others = view.state.scenarios.filter((one) => one !== setup);
      setup.name = setups.chooseName(field.value.trim(), others);
    }));
    on("policy", "change", (field) => store.change((setup) => setups.setPolicy(setup, field.value, this.facts.policies, this.facts.recorded_names)));
    on("profile", "change", (field) => store.change((setup) => { setup.profile = field.value; }));
    on("recorded", "change", (field) => store.change((setup) => {
      if (field.checked) setup.members = "recorded";
      else setups.listRecorded(setup, this.facts.recorded_names);
    }));
    on("count", "input", (field) => store.change((setup) => setups.setCount(setup, Number(field.value)), "count"));
    on("count-number", "input", (field) => {
      const count = Math.round(Number(field.value));
      const fits = count >= 1 && count <= this.facts.most.consumers;
      field.setAttribute("aria-invalid", !fits);
      if (fits) store.change((setup) => setups.setCount(setup, count), "count-number");
    });
    on("even-ranges", "click", () => store.change((setup) => setups.setEvenRanges(setup)));
    on("partitions", "input", (field) => store.change((setup) => setOrDelete(setup, "partitions", Math.round(Number(field.value)) || null), "partitions"));
    on("hashing", "change", (field) => store.change((setup) => setOrDelete(setup, "hashing", field.value || null)));
    on("service", "input", (field) => {
      const us = parseDuration(field.value);
      field.setAttribute("aria-invalid", field.value.trim() !== "" && us === null);
      if (us !== null || !field.value.trim()) store.change((_, view) => setService(view.state, us), "service");
    });
    on("limit", "input", (field) => store.change((_, view) => setLimit(view.state, Number(field.value) / 100), "limit"));
    on("window", "change", (field) => store.change((_, view) => { view.state.windows = { ...view.state.windows, width: field.value }; }));
    find("members").addEventListener("change", (event) => this.changeMember(event.target));
    find("members-details").addEventListener("toggle", () => this.showMembers());
  }

  changeMember(field) {
    const index = Number(field.dataset.index);
    this.store.change((setup, view) => {
      if (field.dataset.field === "weight") return setWeight(view.state, index, setup.members.length, Number(field.value));
      if (field.dataset.field === "priority") return setOrDelete(setup.members[index], "priority", Math.max(0, Math.round(Number(field.value))) || null);
      if (field.value.trim()) setup.members[index].consumer = field.value.trim();
    });
  }

  /** Show the selected set-up in the controls. */
  show() {
    const { view, setup } = this.store;
    const known = this.facts.policies.find((policy) => policy.name === setup.policy);
    const listed = setups.isListed(setup);
    find("knobs-heading").textContent = setup.name;
    setField(find("name"), setup.name);
    setField(find("policy"), setup.policy);
    const profile = find("profile");
    profile.replaceChildren(...(known?.profiles ?? [setup.profile]).map((name) => build("option", { value: name }, name)));
    profile.value = setup.profile ?? known?.profiles[0];
    find("recorded-label").hidden = !this.facts.recorded_names.length;
    find("recorded-hint").hidden = listed;
    find("recorded").checked = !listed;
    for (const id of ["count", "count-number"]) find(id).disabled = !listed;
    const count = listed ? setup.members.length : 0;
    find("count").max = Math.max(64, count);
    setField(find("count"), count || 1);
    setField(find("count-number"), count || "");
    find("members-details").hidden = !listed;
    find("ranges-field").hidden = !(known?.has_ranges && listed);
    setField(find("partitions"), setup.partitions ?? "");
    setField(find("hashing"), setup.hashing ?? "");
    setField(find("service"), readService(view.state));
    const limit = Math.round(readLimit(view.state) * 100);
    setField(find("limit"), limit);
    find("limit-text").textContent = `${limit}%`;
    this.showWindow(view.state.windows?.width);
    this.showMembers();
  }

  showWindow(width) {
    const field = find("window");
    if (width && ![...field.options].some((option) => option.value === width)) field.append(build("option", { value: width }, width));
    field.value = width ?? "";
  }

  showMembers() {
    const { setup, view } = this.store;
    const list = find("members");
    if (!find("members-details").open || !setups.isListed(setup) || list.contains(document.activeElement)) return;
    const weights = view.state.plan?.ranges?.weights ?? [];
    const heads = ["Name", "Weight", "Priority"].map((name) => build("small", {}, name));
    list.replaceChildren(build("div", { "aria-hidden": "true" }, ...heads), ...setup.members.slice(0, MOST_ROWS).map((member, index) => build("div", {},
      build("input", { type: "text", value: member.consumer, "data-index": index, "data-field": "name", "aria-label": `Name of consumer ${index + 1}`, maxlength: 80 }),
      build("input", { type: "number", min: 1, value: weights[index] ?? 1, "data-index": index, "data-field": "weight", "aria-label": `Weight of ${member.consumer}` }),
      build("input", { type: "number", min: 0, value: member.priority ?? 0, "data-index": index, "data-field": "priority", "aria-label": `Priority of ${member.consumer}` }))));
    if (setup.members.length > MOST_ROWS) list.append(build("p", { class: "hint" }, `The first ${MOST_ROWS} of ${setup.members.length}.`));
  }
}

function setOrDelete(section, name, value) {
  if (value === null) delete section[name];
  else section[name] = value;
}

export function readService(state) {
  const service = state.plan?.service;
  return service?.model === "fixed" || (service && !service.model) ? String(service.time ?? "") : service ? "as in the run file" : "";
}

export function setService(state, us) {
  state.plan = { ...state.plan };
  setOrDelete(state.plan, "service", us === null ? null : { model: "fixed", time: formatDuration(us) });
}

export const readLimit = (state) => state.plan?.sizing?.utilisation ?? 0.7;

export function setLimit(state, limit) {
  state.plan = { ...state.plan, sizing: { ...state.plan?.sizing, utilisation: limit } };
}

function setWeight(state, index, count, weight) {
  const weights = Array.from({ length: count }, (_, i) => state.plan?.ranges?.weights?.[i] ?? 1);
  weights[index] = Math.max(1, Math.round(weight) || 1);
  state.plan = { ...state.plan, ranges: { weights } };
  if (weights.every((one) => one === 1)) delete state.plan.ranges;
}
