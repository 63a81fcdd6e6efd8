// Settings: every setting of a node, with its source.

import {h, table} from "./dom.js";
import {report} from "./reports.js";
import {visible} from "./words.js";

export const title = "Settings";

const COLUMNS = [
  {name: "Setting", cell: (row) => h("code", {}, row.name)},
  {name: "Value", cell: (row) => (row.value === "" ? h("em", {}, "unset") : h("code", {}, visible(row.value)))},
  {name: "Source", cell: (row) => (row.source === "default" ? "default" : h("strong", {}, visible(row.source)))},
];

export function open(view) {
  report(view, "/v1/status/settings", 30000, (found) =>
    table("Settings, each from a flag, the environment, the file, or the default", COLUMNS, found.settings));
}
