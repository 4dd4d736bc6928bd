"use strict";
/* base.js -- elements, words and numbers for the other parts of the viewer.
 *
 * The viewer's files are joined into one script in the order of CMakeLists.txt. Text of the snapshot reaches the page as text nodes
 * only; the page's policy (trusted types) makes the browser refuse anything else. */

/* An element: h("p", {class: "quiet", onclick: f}, "text", child). null children are left out. */
function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "colour") element.style.backgroundColor = value;
    else if (name === "width") element.style.width = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined) element.append(child);
  }
  return element;
}

const byId = (id) => document.getElementById(id);
const fill = (id, ...children) => byId(id).replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));

/* ---- words ---------------------------------------------------------------------------------------------------------------- */

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/* As the command prints sizes. */
function sizeText(bytes) {
  if (bytes < 0) return "−" + sizeText(-bytes);
  let unit = 0;
  while (bytes >= 1024 && unit < UNITS.length - 1) {
    bytes /= 1024;
    unit++;
  }
  return `${unit ? bytes.toFixed(2) : bytes} ${UNITS[unit]}`;
}

const countText = (count) => Math.round(count).toLocaleString("en-US");
const manyText = (count, one, many) => `${countText(count)} ${count === 1 ? one : many || one + "s"}`;

function shareText(part, whole) {
  if (!(whole > 0)) return "";
  const percent = (100 * part) / whole;
  return `${percent >= 0.05 || percent === 0 ? percent.toFixed(1) : "<0.1"} %`;
}

/* Microseconds, as fine as the step between two such texts. */
function timeText(us, stepUs) {
  const seconds = us / 1e6;
  const step = stepUs === undefined ? Math.max(1, Math.abs(us) / 1000) : stepUs;
  if (Math.abs(us) < 1000 && step < 1000) return `${us.toFixed(0)} µs`;
  if (Math.abs(us) < 1e6 && step < 1e5) return `${(us / 1000).toFixed(step < 10 ? 3 : step < 1000 ? 1 : 0)} ms`;
  return `${seconds.toFixed(step < 10 ? 6 : step < 1e4 ? 3 : step < 1e5 ? 2 : step < 1e6 ? 1 : 0)} s`;
}

const addressText = (address) => "0x" + address.toString(16);
const fileName = (path) => path.slice(Math.max(path.lastIndexOf("/"), path.lastIndexOf("\\")) + 1);

/* ---- numbers -------------------------------------------------------------------------------------------------------------- */

const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

/* Index of the first item that is greater; items ascend. */
function upperBound(items, value, low = 0, high = items.length) {
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (items[middle] > value) high = middle;
    else low = middle + 1;
  }
  return low;
}

/* A round step so that range has at most count of them: 1, 2, 5, 10 ... or, in binary, 1, 2, 4, 8 ... */
function roundStep(range, count, binary) {
  const raw = range / Math.max(1, count);
  if (!(raw > 0)) return 1;
  if (binary) return 2 ** Math.ceil(Math.log2(raw));
  const power = 10 ** Math.floor(Math.log10(raw));
  return power * [1, 2, 5, 10].find((factor) => power * factor >= raw * 0.999999);
}

/* ---- colours -------------------------------------------------------------------------------------------------------------- */

/* The style sheet's custom properties, read anew when the theme changes. */
const colours = {};

function coloursRead() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["surface", "sunken", "text", "quiet", "line", "grid", "accent", "fault", "waste", "note", "free", "mark"])
    colours[name] = style.getPropertyValue("--" + name).trim();
}

const CATEGORY_COLOURS = {
  parameter: "#4269d0", gradient: "#efb118", optimizer: "#3ca951", activation: "#a463f2", input: "#97bbf5",
  temporary: "#ff725c", workspace: "#9c6b4e", communication: "#ff8ab7", unknown: "#9498a0",
};
/* From the bottom of the chart to its top: what stays lies below what comes and goes. */
const CATEGORY_ORDER = ["parameter", "optimizer", "gradient", "input", "workspace", "communication", "unknown", "activation", "temporary"];
const STACK_COLOURS = [
  "#4269d0", "#efb118", "#3ca951", "#a463f2", "#ff725c", "#6cc5b0", "#9c6b4e", "#ff8ab7", "#97bbf5",
  "#2f7f5f", "#b5a800", "#7d4fa0", "#c0562f", "#2b8fb3", "#d65f9c",
];
const OTHER_COLOUR = "#9498a0";
const STATE_COLOURS = ["#4269d0", "#efb118"]; /* allocated, pending */
