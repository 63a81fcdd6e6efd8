// Connections: the clients of a node, and who they are.

import {facts, h, table} from "./dom.js";
import {report} from "./reports.js";
import {number, size, span, visible} from "./words.js";

export const title = "Connections";

const COLUMNS = [
  {name: "Address", cell: (row) => h("code", {}, visible(row.address))},
  {name: "Principal", cell: (row) => visible(row.principal)},
  {name: "Role", cell: (row) => (row.node === null ? row.role : `${row.role} ${row.node}`)},
  {name: "TLS or local", cell: (row) => (row.private ? "yes" : "no")},
  {name: "Requests now", cell: (row) => number(row.requests), right: true},
  {name: "Received", cell: (row) => size(row.bytes_in), right: true},
  {name: "Sent", cell: (row) => size(row.bytes_out), right: true},
  {name: "Last bytes", cell: (row) => `${span(row.idle_s)} ago`, right: true},
];

export function open(view) {
  report(view, "/v1/status/connections", 3000, (found) => {
    const told = found.facts;
    return [
      h("section", {class: "card"}, facts([
        ["Clients", `${number(told.clients)} of ${number(told.clients_max)}`],
        ["Other nodes", `${number(told.peers)} of ${number(told.peers_max)}`],
        ["HTTP", `${number(told.http)} of ${number(told.http_max)}`],
        ["Open files", `${number(told.open)} of ${number(told.max)}`],
      ])),
      table("Connections to the port for clients", COLUMNS, found.connections, "No client is connected."),
    ];
  });
}
