// Requests to the server of this page. A newer evaluation replaces an older one.

const page = crypto.randomUUID();
let token = "";
let number = 0;
let running = null;

export function useToken(text) {
  token = text;
}

export class Refused extends Error {}
export class Denied extends Refused {}

async function post(name, asked, signal) {
  let answer;
  try {
    answer = await fetch(`api/${name}`, {
      method: "POST", body: JSON.stringify(asked), signal,
      headers: { "Content-Type": "application/json", "X-Studio-Token": token },
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("The server does not answer. Is subreplay studio still running?");
  }
  if (answer.status === 409) throw new DOMException("replaced", "AbortError");
  const found = await answer.json().catch(() => ({ error: `The server answered with ${answer.status}.` }));
  if (answer.status === 403) throw new Denied(found.error);
  if (!answer.ok) throw new Refused(found.error);
  return found;
}

export const ask = (name, asked = {}) => post(name, asked);

/** Evaluate a view; the promise is rejected with AbortError if a newer evaluation replaces it. */
export function evaluate(view) {
  running?.abort();
  running = new AbortController();
  number += 1;
  return post("evaluate", { page, number, ...view }, running.signal);
}
