// What storage, settings and connections share: the choice of a node, pages of rows, facts.

import {address, get} from "./api.js";
import {choice, h, replace} from "./dom.js";
import {number} from "./words.js";

const PAGE = 100;

/** Open a screen on one node. `drawn` gets an answer, and returns elements. */
export async function report(view, path, everyMs, drawn) {
  let node = Number(view.parameters.node) || null, offset = 0, known = "";
  const form = h("div", {class: "fields"}), body = h("div"), more = h("div", {class: "buttons"});
  replace(view.body, form, body, more);

  async function load() {
    const [nodes, found] = await Promise.all([
      get("/v1/nodes", view.signal),
      get(address(path, {node, offset, limit: PAGE}), view.signal),
    ]);
    node ??= found.node;
    fields(nodes.nodes.filter((each) => each.state !== "REMOVED"));
    replace(body, drawn(found));
    replace(more, (offset > 0 || found.next !== null) && [
      h("button", {type: "button", disabled: offset === 0, data: {key: "before"}, on: {click: () => go(Math.max(0, offset - PAGE))}}, "Previous"),
      h("button", {type: "button", disabled: found.next === null, data: {key: "after"}, on: {click: () => go(found.next)}}, "Next"),
      h("span", {}, `from ${number(offset + 1)} of ${number(found.total)}`)]);
  }

  function fields(nodes) {
    const told = nodes.map((each) => each.id).join(" ");
    if (told === known) return;
    known = told;
    replace(form, choice("node", "Node", nodes.map((each) => [String(each.id), `node ${each.id} at ${each.address}`]), String(node), (given) => {
      node = Number(given);
      view.keep({node: given});
      go(0);
    }));
  }

  function go(to) {
    offset = to;
    view.attempt(load);
  }
  view.poll(everyMs, load);
}
