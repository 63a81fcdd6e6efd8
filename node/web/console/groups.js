// Groups: consumer groups of all logs, with exact lag, and parked keys with retry and skip.

import {address, get, post} from "./api.js";
import {facts, field, h, replace, table} from "./dom.js";
import {age, counted, number, short, size, time, visible} from "./words.js";

export const title = "Groups";
const PAGE = 50;
const LAGS_AT_ONCE = 4;
const PARKED_PAGE = 100;

export function open(view) {
  if (view.parameters.group) one(view);
  else all(view);
}

function path(row, rest) {
  return `/v1/logs/${encodeURIComponent(row.log)}/groups/${encodeURIComponent(row.name)}/${rest}`;
}

function linked(row) {
  return `#/groups?${new URLSearchParams({log: row.log, group: row.name})}`;
}

function all(view) {
  const log = view.parameters.log ?? "";
  const form = h("form", {class: "fields", on: {submit: (event) => {
    event.preventDefault();
    view.go("groups", {log: new FormData(form).get("log")});
  }}}, field("log", "Log", log, {placeholder: "all logs"}),
  h("div", {class: "buttons"}, h("button", {type: "submit", class: "strong"}, "Look")));
  const count = h("p", {class: "count", role: "status"}), body = h("div"), more = h("div", {class: "buttons"});
  replace(view.body, form, count, body, more);
  let found = [];
  const COLUMNS = [
    {name: "Group", cell: (row) => h("a", {href: linked(row), data: {key: `g${row.log}/${row.name}`}}, short(row.name, 80))},
    {name: "Log", cell: (row) => short(row.log, 80)},
    {name: "Entries not done", cell: (row) => lagCell(row, (lag) => number(lag.entries)), right: true},
    {name: "Bytes", cell: (row) => lagCell(row, (lag) => size(lag.bytes)), right: true},
    {name: "Oldest", cell: (row) => lagCell(row, (lag) => (lag.oldest_ms === null ? "" : age(lag.oldest_ms))), right: true},
    {name: "Keys waiting", cell: (row) => lagCell(row, (lag) => number(lag.waiting)), right: true},
    {name: "In flight", cell: (row) => lagCell(row, (lag) => number(lag.in_flight)), right: true},
    {name: "Parked", cell: (row) => lagCell(row, (lag) => (lag.parked ? h("span", {class: "state bad"}, number(lag.parked)) : "0")), right: true},
    {name: "Consumers", cell: (row) => lagCell(row, (lag) => number(lag.consumers)), right: true},
  ];
  async function page(after) {
    await view.attempt(async () => {
      const answer = await get(address("/v1/status/groups", {
        log: log === "" ? null : encodeURIComponent(log), after: after === null ? null : encodeURIComponent(after), limit: PAGE,
      }), view.signal);
      found = found.concat(answer.groups);
      drawn(answer.next);
      await lags(answer.groups, view.signal, () => drawn(answer.next));
    });
  }
  function drawn(next) {
    count.textContent = `${counted(found.length, "group")}${next === null ? "" : ", and more"}`;
    replace(body, table("Consumer groups, with what they have not done", COLUMNS, found,
      next === null ? "There is no consumer group." : "No group among the first logs."));
    replace(more, next !== null && h("button", {type: "button", data: {key: "more"}, on: {click: () => page(next)}}, "Show more"));
  }
  page(null);
}

function lagCell(row, told) {
  if (row.lag === undefined) return "…";
  return row.lag === null ? null : told(row.lag);
}

/** Count the lag of groups, a few at a time. A group whose lag cannot be counted shows none. */
async function lags(rows, signal, told) {
  let at = 0;
  const one = async () => {
    while (at < rows.length && !signal.aborted) {
      const row = rows[at];
      at += 1;
      try {
        row.lag = await get(path(row, "lag"), signal);
      } catch (error) {
        if (error.name === "AbortError") return;
        row.lag = null;
      }
    }
  };
  const timer = setInterval(told, 300);
  await Promise.all(Array.from({length: LAGS_AT_ONCE}, one));
  clearInterval(timer);
  if (!signal.aborted) told();
}

function one(view) {
  const row = {log: view.parameters.log, name: view.parameters.group};
  const head = h("section", {class: "card"}), body = h("div");
  replace(view.body, h("p", {}, h("a", {href: "#/groups"}, "All groups")), head, body);
  async function load() {
    const [lag, parked] = await Promise.all([
      get(path(row, "lag"), view.signal), get(path(row, `parked?limit=${PARKED_PAGE}`), view.signal),
    ]);
    replace(head, h("h2", {}, short(row.name)), facts([
      ["Log", visible(row.log)],
      ["Entries not done", number(lag.entries)],
      ["Bytes", size(lag.bytes)],
      ["Oldest of them", lag.oldest_ms === null ? "none" : `${time(lag.oldest_ms)} UTC (${age(lag.oldest_ms)} ago)`],
      ["Keys that wait for a consumer", number(lag.waiting)],
      ["Keys that consumers have", number(lag.in_flight)],
      ["Parked keys", number(lag.parked)],
      ["Consumers", number(lag.consumers)],
      lag.begun ? null : ["Begun", "not on all keys: entries of other keys do not count"],
    ]));
    replace(body, table(`Parked keys${parked.count > parked.parked.length ? `, the first ${parked.parked.length} of ${number(parked.count)}` : ""}`, [
      {name: "Key", cell: (key) => h("a", {href: `#/explorer?${new URLSearchParams({log: row.log, key: keyText(key.key)})}`}, h("code", {}, short(key.key, 80)))},
      {name: "Next seq", cell: (key) => String(key.position), right: true},
      {name: "Failed deliveries", cell: (key) => number(key.deliveries), right: true},
      {name: "Last error", cell: (key) => short(key.error, 200)},
      {name: "Decide", cell: (key) => h("span", {class: "buttons"},
        h("button", {type: "button", data: {key: `r${keyText(key.key)}`}, on: {click: () => decide("retry", key)}}, "Retry"),
        h("button", {type: "button", data: {key: `s${keyText(key.key)}`}, on: {click: () => skip(key)}}, "Skip…"))},
    ], parked.parked, "No key is parked."));
  }
  async function decide(what, key, more = {}) {
    await view.attempt(async () => {
      await post(path(row, what), {key: key.key, ...more});
      await load();
    });
  }
  function skip(key) {
    const why = h("input", {type: "text", name: "why", autocomplete: "off", maxlength: "128"});
    const dialog = h("dialog", {"aria-labelledby": "skip-title", on: {close: () => dialog.remove()}},
      h("form", {method: "dialog", on: {submit: (event) => {
        event.preventDefault();
        dialog.close();
        decide("skip", key, why.value ? {why: why.value} : {});
      }}}, h("h2", {id: "skip-title"}, "Skip an entry"),
      h("p", {}, "No consumer of the group gets the next entry of the key ", h("code", {}, short(key.key, 80)), `, with seq ${key.position} or above.`),
      h("label", {class: "field"}, h("span", {}, "Reason, for the history"), why),
      h("p", {class: "buttons"}, h("button", {type: "submit", class: "strong"}, "Skip the entry"),
        h("button", {type: "button", on: {click: () => dialog.close()}}, "Cancel"))));
    document.body.append(dialog);
    dialog.showModal();
  }
  view.poll(5000, load);
}

function keyText(value) {
  return typeof value === "string" ? value : `0x${atob(value.b64).split("").map((each) => each.charCodeAt(0).toString(16).padStart(2, "0")).join("")}`;
}
