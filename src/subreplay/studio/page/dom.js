// Small helpers to build elements. Text is always set as text, so hostile names are harmless.

export const find = (id) => document.getElementById(id);

/** Build an element with attributes and children; a child that is no element becomes text. */
export function build(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

/** Set the value of a field unless somebody is typing in it. */
export function setField(field, value) {
  if (document.activeElement === field && field.type !== "range" && field.type !== "checkbox") return;
  if (field.value !== String(value)) field.value = value;
}

/** Build a chart from the SVG text that the server drew with the report's components. */
export function buildChart(svg, narrow = false) {
  const chart = build("div", { class: narrow ? "chart narrow" : "chart" });
  chart.innerHTML = svg; // escaped by the server; the policy of the page runs no script in it
  return chart;
}

/** Offer a text as a file. */
export function download(name, text, type) {
  const link = build("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
