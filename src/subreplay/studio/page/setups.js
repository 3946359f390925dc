// What the controls do to a set-up, which is an entry of `scenarios` in a run file.

import { formatDuration, parseDuration, roundDuration } from "./durations.js";

export const SLOTS = 65536;
const EVENTS = ["join", "leave", "crash"];

export const isListed = (setup) => Array.isArray(setup.members);

/** Name the consumers after some others: their numbers go on, else c00001, c00002, … as in a plan. */
function nameMore(members, count) {
  const names = new Set(members.map((member) => member.consumer));
  const [, head, digits] = /^(.*?)(\d+)$/.exec(members.at(-1)?.consumer ?? "c00000") ?? [null, "c", "00000"];
  const found = [];
  for (let number = Number(digits) + 1; found.length < count; number += 1) {
    const name = `${head}${String(number).padStart(digits.length, "0")}`;
    if (!names.has(name)) found.push(name);
  }
  return found;
}

export function setCount(setup, count) {
  const members = isListed(setup) ? setup.members : [];
  const more = nameMore(members, Math.max(count - members.length, 0));
  setup.members = [...members.slice(0, count), ...more.map((consumer) => ({ consumer }))];
  if (setup.members.some((member) => member.ranges)) setEvenRanges(setup);
}

/** Replace the recorded members by a list of consumers with their names, which are connected all the time. */
export function listRecorded(setup, names) {
  if (names.length) setup.members = names.map((consumer) => ({ consumer }));
  else setCount(setup, 4);
}

/** Give every consumer a range of the same size. */
export function setEvenRanges(setup) {
  const count = setup.members.length;
  setBorders(setup, Array.from({ length: count - 1 }, (_, i) => Math.round(((i + 1) * SLOTS) / count)));
}

/** Return the first slot of each range but the first; null unless every consumer has one range, side by side. */
export function readBorders(setup) {
  if (!isListed(setup) || setup.members.some((member) => member.ranges?.length !== 1)) return null;
  const ranges = setup.members.map((member) => member.ranges[0]);
  const joined = ranges.every(([low], i) => low === (i ? ranges[i - 1][1] + 1 : 0));
  return joined && ranges.at(-1)[1] === SLOTS - 1 ? ranges.slice(1).map(([low]) => low) : null;
}

export function setBorders(setup, borders) {
  const ends = [0, ...borders, SLOTS];
  setup.members.forEach((member, i) => {
    member.ranges = [[ends[i], ends[i + 1] - 1]];
  });
}

export function setPolicy(setup, policy, policies, recorded) {
  const known = policies.find((one) => one.name === policy);
  setup.policy = policy;
  if (!known.profiles.includes(setup.profile)) setup.profile = known.profiles[0];
  delete setup.options;
  delete setup.dispatch;
  if (!isListed(setup)) {
    if (known.has_ranges) listRecorded(setup, recorded);
    else return;
  }
  if (known.has_ranges && !readBorders(setup)) setEvenRanges(setup);
  if (!known.has_ranges) setup.members.forEach((member) => delete member.ranges);
}

/** List the changes of a set-up in order of time. */
export function listEvents(setup) {
  if (!isListed(setup)) return [];
  const found = setup.members.flatMap((member, index) =>
    EVENTS.filter((kind) => member[kind] && (kind !== "join" || parseDuration(member.join) > 0)).map((kind) => ({
      index, kind, consumer: member.consumer, at: parseDuration(member[kind]) ?? 0,
      back: kind !== "join" && member.restart ? parseDuration(member.restart) : null,
    })));
  return found.sort((one, two) => one.at - two.at || one.index - two.index);
}

export function clearEvents(setup) {
  setup.members.forEach((member) => ["join", "leave", "crash", "restart"].forEach((name) => delete member[name]));
}

/** Add a change at an instant of a consumer that has none of this kind yet. A join adds a consumer. */
export function addEvent(setup, kind, at) {
  if (kind === "join") {
    setCount(setup, setup.members.length + 1);
    setup.members.at(-1).join = formatDuration(at);
    return;
  }
  const free = setup.members.find((member) => !member.leave && !member.crash && (parseDuration(member.join) ?? 0) < at);
  if (free) free[kind] = formatDuration(at);
}

export function removeEvent(setup, index, kind) {
  const member = setup.members[index];
  delete member[kind];
  if (kind !== "join") delete member.restart;
}

/** Restart one consumer after another, each away for a time and with a pause behind it. */
export function restartAll(setup, away, pause, span) {
  clearEvents(setup);
  const whole = setup.members.length * (away + pause);
  const start = Math.max(1000, roundDuration(Math.max((span - whole) / 2, span / 20)));
  setup.members.forEach((member, i) => {
    member.leave = formatDuration(start + i * (away + pause));
    member.restart = formatDuration(away);
  });
}

/** When a consumer is connected, as parts of the traffic's span. */
export function listConnected(member, span) {
  const join = parseDuration(member.join) ?? 0;
  const end = parseDuration(member.leave ?? member.crash);
  const parts = [[join, end ?? span]];
  if (end !== null && member.restart) parts.push([end + parseDuration(member.restart), span]);
  return parts.map(([low, high]) => [Math.min(low, span) / span, Math.min(high, span) / span]).filter(([low, high]) => high > low);
}

/** Choose a name that no other set-up has. */
export function chooseName(wanted, setups) {
  const names = new Set(setups.map((setup) => setup.name));
  for (let i = 1; ; i += 1) {
    const name = i === 1 ? wanted : `${wanted} (${i})`;
    if (!names.has(name)) return name;
  }
}
