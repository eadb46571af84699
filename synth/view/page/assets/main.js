// Which view is shown: the list, or the entry that the address names (#1 is the first).

const head = held("head");
const entries = head.entries.map((entry, i) => ({ ...entry, place: i + 1 }));
const asked = { words: "", topology: "", collective: "", status: "", by: null, down: false, every: false };
const machines = new Map();
const main = document.getElementById("main");
let current = null;

function machineOf(k) {
  if (k === null) return null;
  if (!machines.has(k)) machines.set(k, held(`machine-${k}`));
  return machines.get(k);
}

/** Links to the other entries of the same machine, and to those of the same collective. */
function related(entry) {
  const links = (title, alike, name) => {
    const found = entries.filter((other) => other !== entry && alike(other));
    return found.length ? panel(title, make("ul", { class: "links" }, found.slice(0, 40).map((other) => make("li", {}, make("a", { href: `#${other.place}` }, name(other)), ` ${other.status}`)))) : null;
  };
  return make("div", { class: "pair" }, links(`More on ${entry.topology}`, (other) => other.topology === entry.topology, (other) => other.collective),
    links(`${entry.collective} on other machines`, (other) => other.topology !== entry.topology && other.collective === entry.collective, (other) => other.topology));
}

function route(event) {
  current?.dispose();
  current = null;
  const place = entries.length === 1 ? 1 : Number(location.hash.slice(1));
  if (!(place >= 1 && place <= entries.length)) {
    document.title = head.title;
    main.replaceChildren(entryList(entries, asked));
  } else {
    const sheet = held(`entry-${place - 1}`);
    current = entryView(sheet, machineOf(sheet.machine));
    const link = (to, text) => (to >= 1 && to <= entries.length ? make("a", { href: `#${to}` }, text) : null);
    const nav = entries.length > 1 ? make("nav", { class: "bar", "aria-label": "entries" }, make("a", { href: "#" }, "all entries"),
      link(place - 1, "previous"), link(place + 1, "next")) : "";
    document.title = entries.length > 1 ? `${entries[place - 1].collective} on ${entries[place - 1].topology} · ${head.title}` : head.title;
    main.replaceChildren(nav, current.element, related(entries[place - 1]));
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
