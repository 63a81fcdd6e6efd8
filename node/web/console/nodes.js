// Nodes: state, liveness, disk, and the load of the ranges that each node leads.

import {get} from "./api.js";
import {h, replace, table} from "./dom.js";
import {number, rate, size, visible} from "./words.js";

export const title = "Nodes";
const EVERY_MS = 3000;

const COLUMNS = [
  {name: "Node", cell: (row) => h("strong", {}, String(row.id)), right: true},
  {name: "Address", cell: (row) => h("code", {}, visible(row.address))},
  {name: "Zone", cell: (row) => visible(row.zone ?? "")},
  {name: "State", cell: (row) => h("span", {class: `state ${row.state === "ACTIVE" ? "good" : "bad"}`}, row.state)},
  {name: "Heard lately", cell: (row) => (row.alive === null ? null : row.alive ? "yes" : "no")},
  {name: "Controller", cell: (row) => row.controller},
  {name: "Disk", cell: (row) => (row.disk_short ? h("span", {class: "state bad"}, "short") : "ok")},
  {name: "Replicas", cell: (row) => number(row.replicas), right: true},
  {name: "Leads", cell: (row) => number(row.leads), right: true},
  {name: "Appends", cell: (row) => rate(row.records_per_s), right: true},
  {name: "Bytes", cell: (row) => `${size(row.bytes_per_s)}/s`, right: true},
  {name: "Reads", cell: (row) => rate(row.reads_per_s), right: true},
  {name: "Version", cell: (row) => visible(row.version ?? "unknown")},
  {name: "More", cell: (row) => h("span", {class: "links"},
    h("a", {href: `#/storage?node=${row.id}`, data: {key: `s${row.id}`}}, "storage"),
    h("a", {href: `#/settings?node=${row.id}`, data: {key: `c${row.id}`}}, "settings"),
    h("a", {href: `#/connections?node=${row.id}`, data: {key: `p${row.id}`}}, "connections"))},
];

export function open(view) {
  view.poll(EVERY_MS, async () => {
    const found = await get("/v1/status/nodes", view.signal);
    replace(view.body, table("Nodes, with the load that they lead over the last minute", COLUMNS, found.nodes),
      h("p", {class: "hint"}, "Heard lately is known only where the leader of the controller answers."));
  });
}
