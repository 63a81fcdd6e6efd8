// Overview: the verdict, what to do next, and sums over all ranges.

import {get} from "./api.js";
import {facts, h, replace, s} from "./dom.js";
import {number, rate, size, span, visible} from "./words.js";

export const title = "Overview";
const EVERY_MS = 2000;
const SAMPLES = 90;
const WIDTH = 300, HEIGHT = 48;

export function open(view) {
  const samples = {records_per_s: [], bytes_per_s: [], reads_per_s: []};
  view.poll(EVERY_MS, async () => {
    const found = await get("/v1/status/overview", view.signal);
    for (const [name, values] of Object.entries(samples)) {
      values.push(found[name] ?? 0);
      if (values.length > SAMPLES) values.shift();
    }
    replace(view.body, verdict(found), charts(found, samples), tiles(found));
  });
}

function verdict(found) {
  if (found.ok) {
    return h("section", {class: "card good"}, h("h2", {}, "The cluster is healthy"),
      h("p", {}, `All ${number(found.ranges)} ranges have a leader and as many members as wanted.`));
  }
  return h("section", {class: "card bad"}, h("h2", {}, "The cluster is not healthy"),
    h("ul", {}, found.reasons.map((reason) => h("li", {}, visible(reason)))),
    found.next && h("p", {class: "next"}, h("strong", {}, "Next: "), visible(found.next)));
}

function charts(found, samples) {
  return h("section", {class: "tiles", "aria-label": "Load"}, [
    ["Appends", "records_per_s", rate], ["Bytes appended", "bytes_per_s", (value) => value === null ? null : `${size(value)}/s`],
    ["Reads", "reads_per_s", rate],
  ].map(([name, key, told]) => h("div", {class: "tile"}, h("h2", {}, name),
    h("p", {class: "big"}, told(found[key] ?? null) ?? "–"), line(samples[key], name),
    h("p", {class: "hint"}, "mean of the last minute"))));
}

function line(values, name) {
  const most = Math.max(1, ...values);
  const points = values.map((value, at) => {
    const x = WIDTH - (values.length - 1 - at) * WIDTH / (SAMPLES - 1);
    return `${x.toFixed(1)},${(HEIGHT - 2 - value / most * (HEIGHT - 4)).toFixed(1)}`;
  });
  return s("svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "line", role: "img", "aria-label": `${name} since this screen was opened`},
    s("polyline", {points: points.join(" ")}));
}

function tiles(found) {
  const cluster = found.cluster, states = Object.entries(found.states);
  return h("section", {class: "card"}, h("h2", {}, "Cluster"), facts([
    ["Nodes", h("a", {href: "#/nodes"}, `${number(found.nodes_active)} of ${number(found.nodes)} active`)],
    ["Logs", h("a", {href: "#/explorer"}, number(found.logs))],
    ["Ranges", h("a", {href: "#/ranges"}, `${number(found.ranges)}${states.length > 1 ? ` (${states.map(([state, count]) => `${number(count)} ${state}`).join(", ")})` : ""}`)],
    ["Ranges without a known leader", number(found.leaderless)],
    ["Changes under way", h("a", {href: "#/ranges?view=changes"}, number(found.operations))],
    ["Damaged replicas", number(found.damaged)],
    ["Hot keys", h("a", {href: "#/hot"}, number(found.hot))],
    ["Entries stored", number(found.entries_held)],
    ["Bytes in segments, one copy", size(found.segment_bytes)],
    ["Cluster", h("code", {}, visible(String(cluster.id)))],
    ["Feature level", String(cluster.feature_level)],
    ["Controller", `nodes ${cluster.controller.join(", ")}; leader ${cluster.controller_leader ?? "unknown"}`],
    ["Answered by", `node ${cluster.answered_by}`],
    ["Last news of the controller", `${span(cluster.seconds_since_controller)} ago`],
    cluster.insecure ? ["Security", "a node runs with --insecure"] : null,
  ]));
}
