// Elements without markup: every text becomes a text node, so that no key or value is ever markup.

const SVG = "http://www.w3.org/2000/svg";

/** Return an element. Properties: `class`, `on` (event handlers), `data`, and attributes. */
export function h(tag, properties = {}, ...children) {
  return filled(document.createElement(tag), properties, children);
}

/** Return an element of SVG. */
export function s(tag, properties = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), properties, children);
}

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, handler] of Object.entries(value)) element.addEventListener(event, handler);
    } else if (name === "data") {
      for (const [field, given] of Object.entries(value)) element.dataset[field] = given;
    } else if (name === "value") {
      element.value = value;
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
}

/** Replace the children of an element. The element with the focus keeps it, found by `data-key`. */
export function replace(element, ...children) {
  const active = document.activeElement;
  const key = element.contains(active) ? active.dataset.key : undefined;
  const scrolled = Array.from(element.querySelectorAll(".scroll"), (each) => each.scrollLeft);
  const fragment = document.createDocumentFragment();
  append(fragment, children);
  element.replaceChildren(fragment);
  element.querySelectorAll(".scroll").forEach((each, at) => { each.scrollLeft = scrolled[at] ?? 0; });
  if (key !== undefined) element.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({preventScroll: true});
}

/** Return a table. A column is `{name, cell, right}`, where `cell` gets a row. */
export function table(caption, columns, rows, none = "Nothing to show.") {
  if (rows.length === 0) return h("p", {class: "none"}, none);
  const heads = columns.map((column) => h("th", {scope: "col", class: column.right && "right"}, column.name));
  const lines = rows.map((row) => h("tr", {}, columns.map((column) => {
    const shown = column.cell(row);
    return h("td", {class: column.right && "right"}, shown === null || shown === undefined ? "–" : shown);
  })));
  // A table that is wider than the window scrolls by itself, also by keyboard.
  return h("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": caption},
    h("table", {}, h("caption", {}, caption), h("thead", {}, h("tr", {}, heads)), h("tbody", {}, lines)));
}

/** Return facts as a list of terms. */
export function facts(pairs) {
  return h("dl", {class: "facts"}, pairs.filter((pair) => pair !== null).map(([name, value]) =>
    h("div", {}, h("dt", {}, name), h("dd", {}, value === null || value === undefined ? "–" : value))));
}

/** Return a labelled choice. */
export function choice(name, label, options, chosen, changed) {
  return h("label", {class: "field"}, h("span", {}, label), h("select", {
    name, data: {key: name}, on: {change: (event) => changed(event.target.value)},
  }, options.map(([value, text]) => h("option", {value, selected: value === chosen}, text))));
}

/** Return a labelled field of text. */
export function field(name, label, value, more = {}) {
  return h("label", {class: "field"}, h("span", {}, label),
    h("input", {name, type: "text", autocomplete: "off", spellcheck: "false", value, data: {key: name}, ...more}));
}
