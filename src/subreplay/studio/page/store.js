// The state of the page with undo and redo. The state is the fragment of the URL: a link is all that a colleague needs.

const MOST_STEPS = 200;
const SETTLED = 500; // ms

function encode(value) {
  const bytes = new TextEncoder().encode(JSON.stringify(value));
  let text = "";
  for (let i = 0; i < bytes.length; i += 8192) text += String.fromCharCode(...bytes.subarray(i, i + 8192));
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

function decode(text) {
  const bytes = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.charCodeAt(0));
  return JSON.parse(new TextDecoder().decode(bytes));
}

/** Return the state in the URL; null if there is none, or if it is damaged. */
export function readUrl() {
  const found = new URLSearchParams(location.hash.slice(1)).get("s");
  try {
    const view = found ? decode(found) : null;
    return view && Array.isArray(view.state?.scenarios) && view.state.scenarios.length ? view : null;
  } catch {
    return null;
  }
}

/** Take the token out of the URL, so that a copied link does not contain it, and keep it for this tab. */
export function takeToken() {
  const parameters = new URLSearchParams(location.hash.slice(1));
  const token = parameters.get("token");
  if (token) {
    sessionStorage.setItem("token", token);
    parameters.delete("token");
    history.replaceState(null, "", `#${parameters}`);
  }
  return sessionStorage.getItem("token") ?? "";
}

export class Store {
  constructor(view, changed) {
    this.view = view;
    this.changed = changed;
    this.before = [];
    this.after = [];
    this.group = null;
    this.write();
  }

  get setup() {
    return this.view.state.scenarios[this.view.selected];
  }

  /** Change the state. Changes of one group, such as the steps of a drag, are undone together. */
  change(edit, group = null) {
    const next = structuredClone(this.view);
    edit(next.state.scenarios[next.selected], next);
    if (JSON.stringify(next) === JSON.stringify(this.view)) return;
    if (group === null || group !== this.group) this.before.push(this.view);
    if (this.before.length > MOST_STEPS) this.before.shift();
    this.group = group;
    this.after = [];
    this.show(next);
  }

  /** End a group: the next change is undone separately. */
  endGroup() {
    this.group = null;
  }

  undo() {
    if (!this.before.length) return;
    this.after.push(this.view);
    this.group = null;
    this.show(this.before.pop());
  }

  redo() {
    if (!this.after.length) return;
    this.before.push(this.view);
    this.group = null;
    this.show(this.after.pop());
  }

  show(view) {
    this.view = view;
    this.write();
    this.changed();
  }

  /** Write the state to the URL, once more after a drag: browsers refuse or skip very many changes of it. */
  write() {
    const write = () => history.replaceState(null, "", `#s=${encode(this.view)}`);
    clearTimeout(this.timer);
    this.timer = setTimeout(write, SETTLED);
    try {
      write();
    } catch (error) {
      if (error.name !== "SecurityError") throw error;
    }
  }
}
