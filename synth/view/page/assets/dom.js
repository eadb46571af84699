// Elements from code. Text goes in as text nodes, never as markup: whatever a name holds, it is only shown.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

/** An HTML element; attributes that begin with "on" are listeners. */
const make = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);

/** An SVG element. */
const draw = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

/** The JSON that stands in the page under `id`. */
const held = (id) => JSON.parse(document.getElementById(id).textContent);

/** A titled part of the page. */
const panel = (title, ...children) => make("section", { class: "panel", "aria-label": title }, make("h3", {}, title), ...children.flat(Infinity).filter(Boolean));

/** A table from columns [name, alignment] and rows of text; `more(row number)` gives attributes of a row and a first cell. */
function table(columns, rows, caption, more) {
  const side = (k) => (columns[k][1] === "right" ? "right" : null);
  const body = rows.map((row, i) => {
    const { lead = null, ...attributes } = more ? more(i) : {};
    return make("tr", attributes, lead, row.map((cell, k) => make("td", { class: side(k) }, cell)));
  });
  const heads = columns.map(([name], k) => make("th", { scope: "col", class: side(k) }, name));
  const first = more ? make("th", { scope: "col" }, make("span", { class: "gone" }, "choose")) : null;
  return make("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: 0 },
    make("table", {}, make("caption", { class: "gone" }, caption), make("thead", {}, make("tr", {}, first, heads)), make("tbody", {}, body)));
}

/** Calls `render(width)` now and whenever the width of `host` changes; what it returns becomes the content of `host`. */
function fitted(host, render) {
  let width = 0;
  const again = () => {
    const now = Math.floor(host.clientWidth);
    if (now > 0 && now !== width) host.replaceChildren(render((width = now)));
  };
  new ResizeObserver(again).observe(host);
  return () => { width = 0; again(); };
}
