// Values as people read them: quantities, times, bytes as text, JSON or hexadecimal.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];
const PREVIEW = 160;
// Characters that are invisible, or that reorder the text around them.
const ODD = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

export function size(bytes) {
  if (bytes === null || bytes === undefined) return null;
  let value = bytes, unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) { value /= 1024; unit += 1; }
  return `${unit === 0 ? Math.round(value) : value.toFixed(value < 10 ? 1 : 0)} ${UNITS[unit]}`;
}

export function rate(value) {
  if (value === null || value === undefined) return null;
  return `${value >= 10 ? Math.round(value).toLocaleString("en") : value.toFixed(1)}/s`;
}

export function number(value) {
  return value === null || value === undefined ? null : value.toLocaleString("en");
}

/** Return a number with its noun. */
export function counted(value, one, many = `${one}s`) {
  return `${number(value)} ${value === 1 ? one : many}`;
}

export function percent(share) {
  return `${Math.round(share * 100)} %`;
}

export function age(ms) {
  if (ms === null || ms === undefined) return null;
  const seconds = Math.max(0, (Date.now() - ms) / 1000);
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= length) return `${Math.floor(seconds / length)} ${unit}`;
  }
  return `${Math.floor(seconds)} s`;
}

export function span(seconds) {
  if (seconds === null || seconds === undefined) return null;
  return age(Date.now() - seconds * 1000);
}

export function time(ms) {
  if (ms === null || ms === undefined) return null;
  const date = new Date(ms);
  return Number.isNaN(date.getTime()) ? String(ms) : date.toISOString().replace("T", " ").replace("Z", "");
}

/** Return a text in which invisible and reordering characters are visible. */
export function visible(text) {
  return text.replace(ODD, (found) =>
    found === "\n" ? "⏎" : found === "\t" ? "⇥" : `\\u{${found.charCodeAt(0).toString(16)}}`);
}

/** Return the bytes of a value of JSON: a text, or `{"b64": ...}`. */
export function bytesOf(value) {
  if (typeof value === "string") return new TextEncoder().encode(value);
  return Uint8Array.from(atob(value.b64), (character) => character.charCodeAt(0));
}

/** Return a key or a value on one short line. */
export function short(value, most = PREVIEW) {
  if (value === null || value === undefined) return "";
  if (typeof value === "string") {
    const shown = visible(value.slice(0, most));
    return value.length > most ? `${shown}…` : shown;
  }
  if (typeof value.b64 !== "string") return JSON.stringify(value).slice(0, most);
  const bytes = bytesOf({b64: value.b64.slice(0, Math.ceil(most / 3) * 4)});
  const told = Array.from(bytes.slice(0, most / 2), two).join("");
  return `0x${told}${value.b64.length > most ? "…" : ""}`;
}

function two(byte) {
  return byte.toString(16).padStart(2, "0");
}

/** Return bytes as lines of hexadecimal, 16 bytes a line. */
export function hex(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const part = Array.from(bytes.subarray(at, at + 16));
    const text = part.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${part.map(two).join(" ").padEnd(47)}  ${text}`);
  }
  return lines.join("\n");
}

/** Return a value in a form (`text`, `json`, `hex`), at most `most` bytes of it; or why not. */
export function inForm(value, form, most) {
  const bytes = bytesOf(value);
  const part = bytes.subarray(0, most);
  if (form === "hex") return {text: hex(part), left: bytes.length - part.length};
  if (form === "json") {
    try {
      const text = JSON.stringify(JSON.parse(new TextDecoder("utf-8", {fatal: true}).decode(bytes)), null, 2);
      return {text: lines(text.slice(0, most)), left: Math.max(0, text.length - most)};
    } catch {
      return {text: "The value is not JSON. Choose Text or Hex.", left: 0, failed: true};
    }
  }
  return {text: lines(new TextDecoder().decode(part)), left: bytes.length - part.length};
}

function lines(text) {
  return text.split("\n").map((line) => line.split("\t").map(visible).join("\t")).join("\n");
}

/** Return a value of bytes for an address: percent-encoded bytes. */
export function inAddress(value) {
  return Array.from(bytesOf(value), (byte) => {
    const character = String.fromCharCode(byte);
    return /[A-Za-z0-9_.~-]/.test(character) ? character : `%${two(byte)}`;
  }).join("");
}

/** Return the value that a reader has typed: a text, or bytes as `0x00ff`. */
export function typed(text) {
  const match = /^0x((?:[0-9a-fA-F]{2})+)$/.exec(text);
  if (match === null) return text;
  const bytes = match[1].match(/../g).map((each) => String.fromCharCode(parseInt(each, 16)));
  return {b64: btoa(bytes.join(""))};
}

/** Return how a reader types a value. */
export function typedAs(value) {
  if (typeof value === "string") return value;
  return `0x${Array.from(bytesOf(value), two).join("")}`;
}
