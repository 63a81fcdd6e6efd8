// Entries: look into a log by key, prefix or pattern, newest first, by time, and live.

import {address, follow, get} from "./api.js";
import {choice, field, h, replace, table} from "./dom.js";
import {bytesIn, entriesTable} from "./entries.js";
import {names} from "./ranges.js";
import {counted, inAddress, number, short, size, time, typed, typedAs} from "./words.js";

export const title = "Entries";
const KEYS_PAGE = 50;
const ENTRIES_PAGE = 100;
const LATEST_AT_ONCE = 6;
const LIVE_MAX = 500;
const LIVE_BYTES_MAX = 16 * 1024 * 1024;
const BY = [["prefix", "keys with a prefix"], ["pattern", "keys of a pattern"], ["key", "one key"]];
const ALL = "all", NOW = "now";
const SINCE = [[ALL, "the beginning"], ["600", "10 minutes ago"], ["3600", "an hour ago"], ["86400", "a day ago"], ["604800", "a week ago"]];
const ORDER = [["newest", "newest first"], ["oldest", "oldest first"]];

/** A tail of many keys begins now, unless asked otherwise; a key is shown from its first entry on. */
function sinceOf(by) {
  return by === "key" ? ALL : NOW;
}

export async function open(view) {
  const wanted = view.parameters;
  const by = wanted.key !== undefined ? "key" : wanted.pattern !== undefined ? "pattern" : "prefix";
  const state = {
    log: wanted.log ?? "", by, text: wanted[by] ?? "", since: wanted.since ?? sinceOf(by), until: wanted.until ?? "",
    order: wanted.order ?? "newest",
  };
  const form = h("form", {class: "fields", on: {submit: (event) => { event.preventDefault(); search(); }}});
  const count = h("p", {class: "count", role: "status"}), results = h("div"), more = h("div", {class: "buttons"});
  replace(view.body, form, count, results, more);
  let stop = new AbortController();
  const known = await view.attempt(() => names(view.signal));
  if (view.signal.aborted) return;
  if (state.log === "" && known?.length) state.log = known[0];
  fields();
  view.signal.addEventListener("abort", () => stop.abort());
  if (state.log !== "") search();

  function fields() {
    replace(form,
      field("log", "Log", state.log, {list: "log-names", required: true}),
      h("datalist", {id: "log-names"}, (known ?? []).map((name) => h("option", {value: name}))),
      choice("by", "Look at", BY, state.by, (given) => { taken(); state.by = given; state.since = sinceOf(given); fields(); }),
      field("text", {key: "Key", prefix: "Prefix", pattern: "Pattern"}[state.by], state.text, {placeholder: state.by === "pattern" ? "eu/*/orders/>" : "text, or 0x00ff"}),
      state.by === "key" && choice("order", "Order", ORDER, state.order, (given) => { state.order = given; }),
      choice("since", state.by === "key" ? "Since" : "Follow since", state.by === "key" ? SINCE : [[NOW, "now"], ...SINCE], state.since, (given) => { state.since = given; }),
      state.by === "key" && field("until", "Until (UTC)", state.until, {type: "datetime-local"}),
      h("div", {class: "buttons"}, h("button", {type: "submit", class: "strong"}, "Look"),
        h("button", {type: "button", data: {key: "live"}, on: {click: live}}, "Follow live")));
  }

  function taken() {
    const data = new FormData(form);
    for (const name of ["log", "text", "until"]) if (data.has(name)) state[name] = data.get(name);
  }

  function began() {
    taken();
    stop.abort();
    stop = new AbortController();
    view.keep({log: state.log, [state.by]: state.text || (state.by === "key" ? "" : null), since: state.since === sinceOf(state.by) ? "" : state.since, until: state.until, order: state.by === "key" ? state.order : ""});
    replace(results);
    replace(more);
    count.textContent = "";
    return stop.signal;
  }

  function linked(key) {
    return `#/explorer?${new URLSearchParams({log: state.log, key: typedAs(key)})}`;
  }

  function start() {
    return state.since === ALL || state.since === NOW ? null : `time:${Date.now() - Number(state.since) * 1000}`;
  }

  function search() {
    const signal = began();
    if (state.by === "key") entries(signal);
    else keys(signal);
  }

  function path(rest) {
    return `/v1/logs/${encodeURIComponent(state.log)}/${rest}`;
  }

  async function entries(signal) {
    if (state.text === "") {
      count.textContent = "Give a key.";
      return;
    }
    const key = inAddress(typed(state.text)), until = state.until === "" ? null : `time:${Date.parse(`${state.until}Z`)}`;
    const given = {from: start(), to: until, limit: ENTRIES_PAGE, reverse: state.order === "newest"};
    let found = [];
    async function page(next) {
      await view.attempt(async () => {
        const [answer, total] = await Promise.all([
          get(address(path(`keys/${key}/entries`), {...given, page: next}), signal),
          next === null ? get(address(path(`keys/${key}/count`), {from: given.from, to: until}), signal) : null,
        ]);
        if (total !== null) count.textContent = counted(total.count, "entry", "entries");
        found = found.concat(answer.entries);
        replace(results, entriesTable(`Entries of the key, ${state.order} first`, found, {withKey: false, linked}));
        replace(more, answer.next !== null && h("button", {type: "button", data: {key: "more"}, on: {click: () => page(answer.next)}}, "Show more"));
      });
    }
    await page(null);
  }

  async function keys(signal) {
    const given = {limit: KEYS_PAGE, [state.by]: state.text === "" ? null : inAddress(typed(state.text))};
    let found = [];
    async function page(after) {
      await view.attempt(async () => {
        const answer = await get(address(path("keys"), {...given, after: after === null ? null : inAddress(after)}), signal);
        const rows = answer.keys.map((key) => ({key, latest: undefined}));
        found = found.concat(rows);
        drawn(answer.next);
        await newest(rows, signal);
        drawn(answer.next);
      });
    }
    function drawn(next) {
      if (signal.aborted) return;
      count.textContent = `${counted(found.length, "key")}${next === null ? "" : ", and more"}`;
      replace(results, table("Keys in byte order, with their newest entries", [
        {name: "Key", cell: (row) => h("a", {href: linked(row.key), data: {key: `k${typedAs(row.key)}`}}, h("code", {}, short(row.key, 80)))},
        {name: "Newest (UTC)", cell: (row) => (row.latest === undefined ? "…" : row.latest && time(row.latest.timestamp_ms))},
        {name: "Seq", cell: (row) => row.latest && String(row.latest.seq), right: true},
        {name: "Size", cell: (row) => row.latest && row.latest.value !== null ? size(bytesIn(row.latest.value)) : "", right: true},
        {name: "Value", cell: (row) => row.latest && (row.latest.value === null ? h("em", {}, "tombstone") : short(row.latest.value, 80))},
      ], found, "No key fits."));
      replace(more, next !== null && h("button", {type: "button", data: {key: "more"}, on: {click: () => page(next)}}, "Show more"));
    }
    await page(null);
  }

  async function newest(rows, signal) {
    let at = 0;
    const one = async () => {
      while (at < rows.length && !signal.aborted) {
        const row = rows[at];
        at += 1;
        row.latest = (await get(path(`keys/${inAddress(row.key)}/latest`), signal)).entries[0] ?? null;
      }
    };
    await Promise.all(Array.from({length: LATEST_AT_ONCE}, one));
  }

  function live() {
    const signal = began();
    const given = {[state.by]: state.text === "" ? null : inAddress(typed(state.text)), from: state.since === NOW ? "latest" : start() ?? "earliest"};
    let found = [], bytes = 0, seen = 0, told = "", paused = null, drawing = false;
    const button = h("button", {type: "button", data: {key: "pause"}, on: {click: toggle}}, "Pause");
    replace(more, button, h("button", {type: "button", data: {key: "stop"}, on: {click: () => { stop.abort(); say("stopped"); replace(more); }}}, "Stop"));
    function toggle() {
      if (paused === null) {
        let go;
        const wait = new Promise((resolve) => { go = resolve; });
        paused = {wait, go};
      } else {
        paused.go();
        paused = null;
      }
      button.textContent = paused === null ? "Pause" : "Go on";
      say(paused === null ? "live" : "paused");
    }
    function say(what) {
      told = what;
      if (!drawing) {
        drawing = true;
        requestAnimationFrame(drawn);
      }
    }
    function drawn() {
      drawing = false;
      if (view.signal.aborted) return;
      count.textContent = `${told}: ${counted(seen, "entry", "entries")}${seen > found.length ? `, the newest ${number(found.length)} are shown` : ""}`;
      replace(results, entriesTable("Entries as they come, newest first", found, {withKey: true, linked}));
    }
    say("connecting");
    follow(address(path("events"), given), {
      signal,
      state: (what) => {
        if (what instanceof Error) {
          view.tell(what);
          say("interrupted");
        } else {
          say(what === "open" ? "live" : what);
        }
      },
      told: async (name, data) => {
        if (name === "entries") {
          seen += data.length;
          found = data.reverse().concat(found);
          bytes += data.reduce((sum, entry) => sum + bytesIn(entry.value), 0);
          while (found.length > LIVE_MAX || (bytes > LIVE_BYTES_MAX && found.length > 1)) bytes -= bytesIn(found.pop().value);
          say(told === "connecting" ? "live" : told);
        } else if (name === "caught-up") {
          say("live, up to date");
        } else if (name === "lagged") {
          say("live, behind");
        } else if (name === "problem") {
          view.tell(Object.assign(new Error(data.detail), {code: data.code}));
        }
        if (paused !== null) await paused.wait;
      },
    });
  }
}
