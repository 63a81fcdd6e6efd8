// Entries as a table, and one entry as a whole: its value as text, JSON or hexadecimal.

import {h, replace, facts, table} from "./dom.js";
import {age, bytesOf, inForm, number, short, size, time, typedAs} from "./words.js";

const FORMS = [["text", "Text"], ["json", "JSON"], ["hex", "Hex"]];
const AT_ONCE = {text: 65536, json: 65536, hex: 16384};

/** Return the number of bytes of a value, without decoding base64. */
export function bytesIn(value) {
  if (value === null) return 0;
  if (typeof value !== "string") return Math.floor(value.b64.replace(/=+$/, "").length * 3 / 4);
  return value.length > 4096 ? value.length : bytesOf(value).length;
}

/** Return a table of entries. `linked` makes the address of a key. */
export function entriesTable(caption, entries, {withKey, linked}) {
  return table(caption, [
    {name: "Time (UTC)", cell: (entry) => h("time", {datetime: new Date(entry.timestamp_ms).toISOString(), title: `${age(entry.timestamp_ms)} ago`}, time(entry.timestamp_ms))},
    {name: "Seq", cell: (entry) => String(entry.seq), right: true},
    ...(withKey ? [{name: "Key", cell: (entry) => h("a", {href: linked(entry.key)}, h("code", {}, short(entry.key, 80)))}] : []),
    {name: "Size", cell: (entry) => (entry.value === null ? "" : size(bytesIn(entry.value))), right: true},
    {name: "Value", cell: (entry) => h("button", {
      type: "button", class: "value", data: {key: `e${typedAs(entry.key).slice(0, 100)} ${entry.seq}`}, on: {click: () => show(entry)},
    }, entry.value === null ? h("em", {}, "tombstone") : entry.value === "" ? h("em", {}, "empty") : short(entry.value))},
  ], entries, "No entry fits.");
}

/** Show an entry as a whole, in a dialog. */
export function show(entry) {
  let form = startForm(entry.value), most = AT_ONCE[form];
  const text = h("pre", {tabindex: "0", "aria-label": "Value"}), more = h("div", {class: "buttons"});
  const tabs = h("div", {class: "tabs", role: "group", "aria-label": "Form of the value"}, FORMS.map(([name, label]) =>
    h("button", {type: "button", data: {form: name}, on: {click: () => chosen(name)}}, label)));
  const dialog = h("dialog", {class: "entry", "aria-labelledby": "entry-title", on: {close: () => dialog.remove()}},
    h("h2", {id: "entry-title"}, `Entry ${entry.seq}`),
    facts([
      ["Key", h("code", {}, short(entry.key, 960))],
      ["Seq", number(entry.seq)],
      ["Time", `${time(entry.timestamp_ms)} UTC (${age(entry.timestamp_ms)} ago)`],
      ["Value", entry.value === null ? "tombstone: the key is deleted" : size(bytesIn(entry.value))],
      entry.snapshot ? ["Snapshot", "the entry is a logical snapshot of its key"] : null,
      ...(entry.headers ?? []).map((header) => [`Header ${short(header.name, 60)}`, h("code", {}, short(header.value, 960))]),
    ]),
    entry.value === null ? null : [tabs, text, more],
    h("p", {class: "buttons"}, h("button", {type: "button", class: "strong", on: {click: () => dialog.close()}}, "Close")));
  function chosen(name) {
    form = name;
    most = AT_ONCE[form];
    drawn();
  }
  function drawn() {
    const found = inForm(entry.value, form, most);
    text.textContent = found.text;
    text.classList.toggle("none", Boolean(found.failed));
    for (const tab of tabs.children) tab.setAttribute("aria-pressed", String(tab.dataset.form === form));
    replace(more, found.left > 0 && [
      h("button", {type: "button", on: {click: () => { most += AT_ONCE[form]; drawn(); }}}, "Show more"),
      h("span", {}, `${number(found.left)} more ${form === "json" ? "characters" : "bytes"}`)]);
  }
  document.body.append(dialog);
  if (entry.value !== null) drawn();
  dialog.showModal();
}

function startForm(value) {
  if (value === null) return "text";
  if (typeof value !== "string") return "hex";
  return /^\s*[[{]/.test(value) && value.length < 1e6 && !inForm(value, "json", 1).failed ? "json" : "text";
}
