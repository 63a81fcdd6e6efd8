// Storage: the disk, the WAL, and the replicas of a node.

import {facts, h, table} from "./dom.js";
import {report} from "./reports.js";
import {number, short, size, visible} from "./words.js";

export const title = "Storage";

const COLUMNS = [
  {name: "Range", cell: (row) => String(row.range), right: true},
  {name: "Log", cell: (row) => (row.log === "" ? "(metadata)" : short(row.log, 60))},
  {name: "Generation", cell: (row) => number(row.generation), right: true},
  {name: "Role", cell: (row) => row.role},
  {name: "Segments", cell: (row) => number(row.segments), right: true},
  {name: "Bytes in segments", cell: (row) => size(row.segment_bytes), right: true},
  {name: "Bytes in memory", cell: (row) => size(row.memtable_bytes), right: true},
  {name: "Entries ever", cell: (row) => number(row.entries), right: true},
  {name: "Committed", cell: (row) => number(row.commit), right: true},
  {name: "Applied", cell: (row) => number(row.applied), right: true},
];

export function open(view) {
  report(view, "/v1/status/storage", 5000, (found) => {
    const told = found.facts, level = told.disk_level;
    return [
      h("section", {class: `card ${level === "AMPLE" ? "good" : "bad"}`}, h("h2", {}, level === "AMPLE" ? "The disk has room" : `The disk is short of room: ${level}`), facts([
        ["Free", told.disk_free_bytes < 0 ? "not measured yet" : size(told.disk_free_bytes)],
        ["Reserve, below which the node refuses appends", size(told.disk_reserve_bytes)],
        ["Data directory", h("code", {}, visible(told.data))],
        ["WAL files in use", `${number(told.wal_files)} of ${size(told.wal_file_bytes)}`],
        ["Raft groups in the WAL", number(told.wal_groups)],
        ["Syncs of the WAL since the start", number(told.wal_syncs)],
        ["Open files", `${number(told.files.open)} of ${number(told.files.max)}`],
        ["Replicas", number(found.total)],
      ])),
      table("Replicas of the node, by range", COLUMNS, found.replicas, "The node has no replica."),
    ];
  });
}
