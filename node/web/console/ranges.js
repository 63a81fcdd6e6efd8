// Ranges: the key space of a log as a map, a table of all ranges, and the latest changes.

import {address, get} from "./api.js";
import {choice, facts, h, replace, table} from "./dom.js";
import {age, counted, number, percent, rate, short, size, time, visible} from "./words.js";

export const title = "Ranges";
const EVERY_MS = 5000;
const MAP_PAGE = 1000;
const PAGE = 100;
const HUES = 8, STEPS = 7;
const VIEWS = [["map", "Map of keys"], ["table", "Table"], ["changes", "Latest changes"]];
const COLOURS = [["leader", "leader"], ["appends", "appends"], ["reads", "reads"], ["size", "size"]];
const SORTS = [["key", "log and key"], ["appends", "appends"], ["reads", "reads"], ["size", "size"]];
const VALUE = {appends: (row) => row.records_per_s, reads: (row) => row.reads_per_s, size: (row) => row.bytes};
const TOLD = {appends: rate, reads: rate, size};

export function open(view) {
  const wanted = view.parameters;
  const state = {
    view: wanted.view ?? "map", log: wanted.log ?? "", colour: wanted.colour ?? "leader",
    sort: wanted.sort ?? "key", offset: Number(wanted.offset) || 0, chosen: null, logs: [], rows: [], total: 0, next: null,
  };
  const head = h("div", {class: "fields"}), body = h("div"), detail = h("div");
  replace(view.body, head, body, detail);
  const draw = () => drawn(view, state, head, body, detail, change);
  function change(more) {
    Object.assign(state, more);
    view.keep({view: state.view, log: state.log, colour: state.colour, sort: state.sort, offset: state.offset ? String(state.offset) : ""});
    draw();
    load();
  }
  async function load() {
    await view.attempt(async () => {
      await read(view, state);
      draw();
    });
  }
  view.poll(EVERY_MS, async () => {
    state.logs = await names(view.signal);
    if (state.view === "map" && state.log === "" && state.logs.length) state.log = state.logs[0];
    await read(view, state);
    draw();
  });
}

/** Return the names of the first logs; the field takes any other name too. */
export async function names(signal) {
  return (await get("/v1/logs?limit=1000", signal)).logs.map((log) => log.name);
}

async function read(view, state) {
  const map = state.view === "map";
  if (map && state.log === "") {
    Object.assign(state, {rows: [], total: 0, next: null});
    return;
  }
  const given = {
    log: state.log === "" ? null : encodeURIComponent(state.log),
    sort: map ? "key" : state.view === "changes" ? "changed" : state.sort,
    offset: map ? 0 : state.offset, limit: map ? MAP_PAGE : PAGE,
  };
  const page = await get(address("/v1/status/ranges", given), view.signal);
  let rows = page.ranges, next = page.next;
  while (map && next !== null) {
    const more = await get(address("/v1/status/ranges", {...given, offset: next}), view.signal);
    rows = rows.concat(more.ranges);
    next = more.next;
  }
  Object.assign(state, {rows, total: page.total, next});
}

function drawn(view, state, head, body, detail, change) {
  const logs = [...new Set([...(state.view === "map" ? [] : [""]), ...(state.log ? [state.log] : []), ...state.logs])];
  // Fields that stay the same stay in place: a reader may have opened one of them.
  const fields = JSON.stringify([state.view, state.log, state.colour, state.sort, logs]);
  if (state.fields !== fields) replace(head,
    choice("view", "Show", VIEWS, state.view, (given) => change({view: given, offset: 0, chosen: null})),
    choice("log", "Log", logs.map((name) => [name, name === "" ? "all logs" : short(name, 60)]), state.log,
      (given) => change({log: given, offset: 0, chosen: null})),
    state.view === "map" && choice("colour", "Colour", COLOURS, state.colour, (given) => change({colour: given})),
    state.view === "table" && choice("sort", "Order", SORTS, state.sort, (given) => change({sort: given, offset: 0})),
    h("p", {class: "count", role: "status"}));
  state.fields = fields;
  head.querySelector(".count").textContent = counted(state.total, "range");
  if (state.view === "map") map(state, body, detail);
  else {
    replace(body, table(state.view === "changes" ? "Ranges, the latest change first" : "Ranges", state.view === "changes" ? CHANGES : COLUMNS, state.rows),
      pager(state, change));
    replace(detail);
  }
}

function pager(state, change) {
  if (state.offset === 0 && state.next === null) return null;
  return h("p", {class: "buttons"},
    h("button", {type: "button", disabled: state.offset === 0, data: {key: "before"}, on: {click: () => change({offset: Math.max(0, state.offset - PAGE)})}}, "Previous"),
    h("button", {type: "button", disabled: state.next === null, data: {key: "after"}, on: {click: () => change({offset: state.next})}}, "Next"),
    h("span", {}, `${number(state.offset + 1)} to ${number(state.offset + state.rows.length)} of ${number(state.total)}`));
}

function map(state, body, detail) {
  if (!state.rows.length) {
    replace(body, h("p", {class: "none"}, "The cluster has no log yet, or the token shows none."));
    replace(detail);
    return;
  }
  const most = state.colour === "leader" ? 0 : Math.max(0, ...state.rows.map((row) => VALUE[state.colour](row) ?? 0));
  const chosen = state.rows.some((row) => row.id === state.chosen) ? state.chosen : state.rows[0].id;
  const cells = state.rows.map((row) => h("button", {
    type: "button", class: `cell ${shade(row, state.colour, most)}${isCalm(row) ? "" : " changing"}`,
    "aria-label": told(row), "aria-pressed": row.id === state.chosen ? "true" : "false",
    tabindex: row.id === chosen ? "0" : "-1", title: told(row), data: {key: `r${row.id}`},
    on: {click: () => choose(row)},
  }, row.running_operation ? "•" : row.hot_key ? "!" : ""));
  const grid = h("div", {class: "map", role: "group", "aria-label": "Ranges in the order of keys; arrow keys move", on: {keydown: (event) => moved(event, grid)}}, cells);
  replace(body, legend(state, most), grid,
    h("p", {class: "hint"}, "Each field is a range, in the order of keys. • changes now; ! has a hot key; a dashed border: no leader, or fewer live members."));
  const shown = state.rows.find((row) => row.id === state.chosen);
  replace(detail, shown && details(shown));
  function choose(row) {
    state.chosen = row.id;
    map(state, body, detail);
  }
}

function moved(event, grid) {
  const cells = [...grid.children], at = cells.indexOf(document.activeElement);
  if (at < 0) return;
  const top = cells[at].offsetTop;
  const wide = cells.filter((cell) => cell.offsetTop === top).length;
  const to = {ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + wide, ArrowUp: at - wide, Home: 0, End: cells.length - 1}[event.key];
  if (to === undefined) return;
  event.preventDefault();
  const cell = cells[Math.min(Math.max(to, 0), cells.length - 1)];
  cells[at].tabIndex = -1;
  cell.tabIndex = 0;
  cell.focus();
}

function isCalm(row) {
  return row.leader !== null && row.state === "ACTIVE" && row.live_members.length === row.members.length;
}

function shade(row, colour, most) {
  if (colour === "leader") return row.leader === null ? "unknown" : `hue${row.leader % HUES}`;
  const value = VALUE[colour](row);
  if (value === null || value === undefined) return "unknown";
  return `step${most === 0 ? 0 : Math.min(STEPS - 1, Math.ceil(value / most * (STEPS - 1)))}`;
}

function legend(state, most) {
  const items = state.colour === "leader"
    ? [...new Set(state.rows.map((row) => row.leader))].sort((a, b) => (a ?? -1) - (b ?? -1)).map((node) =>
      [node === null ? "unknown" : `hue${node % HUES}`, node === null ? "no known leader" : `node ${node}`])
    : [["unknown", "unknown"], ["step0", "0"], [`step${STEPS - 1}`, TOLD[state.colour](most)]];
  return h("ul", {class: "legend", "aria-label": "Colours"}, items.map(([kind, name]) =>
    h("li", {}, h("span", {class: `swatch ${kind}`}), name)));
}

function bounds(row) {
  if (row.start === undefined) return "keys that the token may not see";
  return `${row.start === "" ? "the first key" : short(row.start, 60)} to ${row.end === null ? "the last key" : short(row.end, 60)}`;
}

function told(row) {
  return `Range ${row.id}, ${bounds(row)}, ${row.leader === null ? "no known leader" : `leader ${row.leader}`}, ${size(row.bytes) ?? "unknown size"}, ${rate(row.records_per_s) ?? "unknown"} appends, ${row.state}`;
}

function details(row) {
  return h("section", {class: "card", "aria-live": "polite"}, h("h2", {}, `Range ${row.id}`), facts([
    ["Log", row.log === "" ? "(metadata)" : visible(row.log)],
    ["Keys", h("code", {}, bounds(row))],
    ["State", row.state],
    ["Generation", number(row.generation)],
    ["Members", `nodes ${row.members.join(", ")}; live ${row.live_members.join(", ")}`],
    ["Leader", row.leader],
    ["Size", size(row.bytes)],
    ["Entries", number(row.entries_held)],
    ["Appends", rate(row.records_per_s)],
    ["Bytes appended", row.bytes_per_s === null ? null : `${size(row.bytes_per_s)}/s`],
    ["Reads", rate(row.reads_per_s)],
    ["Hot key", row.hot_key ? `${short(row.hot_key.key, 60)} has ${percent(row.hot_key.share)} of the load` : "none"],
    ["Under way", running(row)],
    ["Last change", last(row)],
  ]), row.log === "" ? null : h("p", {}, h("a", {href: `#/explorer?${new URLSearchParams({log: row.log})}`}, "Look at the entries of the log")));
}

function running(row) {
  const found = row.running_operation;
  return found ? `${found.kind} is ${found.phase}: ${visible(found.reason ?? "")}` : null;
}

function last(row) {
  const found = row.last_operation;
  if (!found) return null;
  const when = found.ended_at_ms === null ? "at an unknown time" : `${time(found.ended_at_ms)} UTC (${age(found.ended_at_ms)} ago)`;
  return `${found.kind} ${found.outcome} ${when}${found.reason ? `: ${visible(found.reason)}` : ""}`;
}

const NAME = {name: "Range", cell: (row) => String(row.id), right: true};
const LOG = {name: "Log", cell: (row) => (row.log === "" ? "(metadata)" : short(row.log, 60))};
const COLUMNS = [
  NAME, LOG,
  {name: "First key", cell: (row) => h("code", {}, row.start === undefined ? "?" : short(row.start, 40))},
  {name: "Leader", cell: (row) => row.leader, right: true},
  {name: "Members", cell: (row) => row.members.join(", ")},
  {name: "State", cell: (row) => h("span", {class: `state ${isCalm(row) ? "good" : "bad"}`}, row.state)},
  {name: "Size", cell: (row) => size(row.bytes), right: true},
  {name: "Entries", cell: (row) => number(row.entries_held), right: true},
  {name: "Appends", cell: (row) => rate(row.records_per_s), right: true},
  {name: "Reads", cell: (row) => rate(row.reads_per_s), right: true},
  {name: "Hot key", cell: (row) => (row.hot_key ? short(row.hot_key.key, 40) : "")},
];
const CHANGES = [
  NAME, LOG,
  {name: "First key", cell: (row) => h("code", {}, row.start === undefined ? "?" : short(row.start, 40))},
  {name: "Under way", cell: (row) => running(row) ?? ""},
  {name: "Last change", cell: (row) => last(row) ?? "none known"},
];
