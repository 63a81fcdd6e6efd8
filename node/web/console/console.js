// The frame of the console: screens by address, the token, the verdict, keys of the keyboard.

import {get, pause, setToken, token} from "./api.js";
import {h, replace} from "./dom.js";
import {visible} from "./words.js";
import * as overview from "./overview.js";
import * as nodes from "./nodes.js";
import * as ranges from "./ranges.js";
import * as explorer from "./explorer.js";
import * as groups from "./groups.js";
import * as storage from "./storage.js";
import * as settings from "./settings.js";
import * as connections from "./connections.js";
import * as hot from "./hot.js";

const SCREENS = {overview, nodes, ranges, hot, explorer, groups, storage, settings, connections};
const VERDICT_MS = 5000;
const byId = (id) => document.getElementById(id);
const main = byId("main");
let leaving = new AbortController();

/** What a screen works with: its place, its parameters, and when it ends. */
class View {
  constructor(name, parameters) {
    this.name = name;
    this.parameters = parameters;
    this.body = h("div", {class: "body"});
    this.notice = h("div", {role: "alert", class: "notice", hidden: true});
    this.signal = leaving.signal;
  }

  /** Go to another screen, or to the same one with other parameters. */
  go(name, parameters) {
    location.hash = hashOf(name, parameters);
  }

  /** Note parameters in the address without opening the screen again. */
  keep(parameters) {
    this.parameters = parameters;
    history.replaceState(null, "", hashOf(this.name, parameters));
  }

  tell(error) {
    if (this.signal.aborted || error.name === "AbortError") return;
    if (error.status === 401) askToken(error.message);
    replace(this.notice, error.code ? `${error.code}: ` : "", visible(error.message));
    this.notice.hidden = false;
  }

  /** Do work, and show its error if it fails. */
  async attempt(work) {
    try {
      const done = await work();
      this.notice.hidden = true;
      return done;
    } catch (error) {
      this.tell(error);
      return undefined;
    }
  }

  /** Do work now and again, while the screen is open and seen. */
  async poll(ms, work) {
    while (!this.signal.aborted) {
      if (!document.hidden) await this.attempt(work);
      await pause(ms, this.signal);
    }
  }
}

function hashOf(name, parameters = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value)).toString();
  return `#/${name}${query ? `?${query}` : ""}`;
}

function open() {
  leaving.abort();
  leaving = new AbortController();
  const [name, query] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const known = Object.hasOwn(SCREENS, name) ? name : "overview";
  const screen = SCREENS[known];
  const view = new View(known, Object.fromEntries(new URLSearchParams(query ?? "")));
  document.title = `${screen.title} – lognode`;
  for (const link of byId("nav").querySelectorAll("a")) {
    if (link.dataset.screen === known) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const moved = main.dataset.screen !== known;
  main.dataset.screen = known;
  replace(main, h("h1", {}, screen.title), view.notice, view.body);
  if (moved) byId("nav").querySelector("[aria-current]").scrollIntoView({block: "nearest", inline: "nearest"});
  if (moved && document.activeElement !== document.body) main.focus({preventScroll: true});
  screen.open(view);
}

function askToken(why) {
  const dialog = byId("token-dialog");
  if (dialog.open) return;
  byId("token-why").textContent = visible(why);
  byId("token-field").value = "";
  dialog.showModal();
}

function tokenChanged(given) {
  setToken(given);
  byId("token-dialog").close();
  byId("token-button").textContent = token() ? "Token: given" : "Token";
  open();
  look();
}

async function look() {
  const verdict = byId("verdict");
  try {
    const found = await get("/v1/status/overview");
    verdict.textContent = found.ok ? "Healthy" : "Not healthy";
    verdict.className = `verdict ${found.ok ? "good" : "bad"}`;
  } catch (error) {
    verdict.textContent = error.status === 401 ? "Token needed" : error.status === 403 ? "" : "No answer";
    verdict.className = "verdict unknown";
  }
}

async function watch() {
  for (;;) {
    if (!document.hidden) await look();
    await pause(VERDICT_MS);
  }
}

const NAMES = Object.keys(SCREENS);
replace(byId("nav"), NAMES.map((name) => h("a", {href: `#/${name}`, data: {screen: name}}, SCREENS[name].title)));
replace(byId("keys-list"), [...NAMES.map((name, at) => [String(at + 1), SCREENS[name].title]),
  ["/", "Go to the first field"], ["?", "Show this list"]].map(([key, what]) =>
  h("div", {}, h("dt", {}, h("kbd", {}, key)), h("dd", {}, what))));
byId("keys-close").addEventListener("click", () => byId("keys-dialog").close());
byId("token-button").addEventListener("click", () => askToken("The cluster decides by the token what the console may show and do."));
byId("token-cancel").addEventListener("click", () => byId("token-dialog").close());
byId("token-forget").addEventListener("click", () => tokenChanged(""));
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  tokenChanged(byId("token-field").value.trim());
});
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, select, textarea, dialog")) return;
  const at = "123456789".indexOf(event.key);
  if (at >= 0 && at < NAMES.length) location.hash = `#/${NAMES[at]}`;
  else if (event.key === "/") main.querySelector("input, select")?.focus();
  else if (event.key === "?") byId("keys-dialog").showModal();
  else return;
  event.preventDefault();
});
if (token()) byId("token-button").textContent = "Token: given";
window.addEventListener("hashchange", open);
open();
watch();
