// Hot keys: keys that take a large part of the load of their ranges.

import {get} from "./api.js";
import {h, replace, table} from "./dom.js";
import {percent, rate, short, typedAs, visible} from "./words.js";

export const title = "Hot keys";
const EVERY_MS = 3000;

const COLUMNS = [
  {name: "Key", cell: (row) => h("a", {href: `#/explorer?${new URLSearchParams({log: row.log, key: typedAs(row.key)})}`}, h("code", {}, short(row.key, 80)))},
  {name: "Log", cell: (row) => visible(row.log)},
  {name: "Share of the range", cell: (row) => percent(row.share), right: true},
  {name: "Appends and reads", cell: (row) => rate(row.per_s), right: true},
  {name: "Range", cell: (row) => String(row.range), right: true},
  {name: "Leader", cell: (row) => row.leader, right: true},
  {name: "Appends of the range", cell: (row) => rate(row.records_per_s), right: true},
  {name: "Reads of the range", cell: (row) => rate(row.reads_per_s), right: true},
];

export function open(view) {
  view.poll(EVERY_MS, async () => {
    const found = await get("/v1/status/hot-keys?limit=500", view.signal);
    replace(view.body, table("Keys with a large part of the load of a busy range", COLUMNS, found.hot_keys,
      "No key takes a large part of the load of a busy range."));
  });
}
