// Which view is shown: the list, or the entry that the address names (#1 is the first).

const head = held("head");
const entries = head.entries.map((entry, i) => ({ ...entry, place: i + 1 }));
const asked = { words: "", collective: "", status: "", by: null, down: false, every: false };
const machines = new Map();
const main = document.getElementById("main");
let current = null;

function machineOf(k) {
  if (k === null) return null;
  if (!machines.has(k)) machines.set(k, held(`machine-${k}`));
  return machines.get(k);
}

function route(event) {
  current?.dispose();
  current = null;
  const place = entries.length === 1 ? 1 : Number(location.hash.slice(1));
  if (!(place >= 1 && place <= entries.length)) {
    main.replaceChildren(entryList(entries, asked));
  } else {
    const sheet = held(`entry-${place - 1}`);
    current = entryView(sheet, machineOf(sheet.machine));
    const link = (to, text) => (to >= 1 && to <= entries.length ? make("a", { href: `#${to}` }, text) : null);
    const nav = entries.length > 1 ? make("nav", { class: "bar", "aria-label": "entries" }, make("a", { href: "#" }, "all entries"),
      link(place - 1, "previous"), link(place + 1, "next")) : "";
    main.replaceChildren(nav, current.element);
  }
  if (event) {
    main.focus();
    scrollTo(0, 0);
  }
}

document.getElementById("title").textContent = head.title;
document.getElementById("made").textContent = head.made;
document.addEventListener("keydown", (event) => {
  if (event.target === document.body || event.target === main) current?.keys(event);
});
addEventListener("hashchange", route);
route(null);
