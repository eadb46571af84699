// The list of entries: search, filters, sorting.

const COLUMNS = [
  { key: "topology", name: "topology" },
  { key: "ranks", name: "ranks", right: true },
  { key: "collective", name: "collective" },
  { key: "status", name: "proved" },
  { key: "algorithms", name: "algorithms", right: true },
  { key: "least", name: "latency", right: true, text: (e) => (e.least ? timeText(e.least) : "") },
  { key: "rate", name: "GB/s, large", right: true, text: (e) => (e.rate ? number(e.rate) : "") },
  { key: "measured", name: "measured", right: true, text: (e) => (e.measured ? plural(e.measured, "time") : "") },
];

const MOST_ROWS = 300;  // more are drawn when asked for: thousands of rows make typing slow

/** Entries `words` are all found in, and which the filters let through, in order of the column `by`. */
function selected(entries, { words, topology, collective, status, by, down }) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const text = (e) => `${e.id} ${e.topology} ${e.ranks} ranks ${e.collective} ${e.status}`.toLowerCase();
  const kept = entries.filter((e) => (!topology || e.topology === topology) && (!collective || e.collective === collective) && (!status || e.status === status)
    && wanted.every((word) => text(e).includes(word)));
  const order = (a, b) => {
    const [x, y] = [a[by], b[by]];
    if (x === null || y === null) return (x === null) - (y === null);
    const found = typeof x === "number" ? x - y : x.localeCompare(y, "en", { numeric: true });
    return down ? -found : found;
  };
  return by ? kept.sort(order) : kept;
}

/** The list as an element; `state` keeps what was asked for while an entry is looked at. */
function entryList(entries, state) {
  const body = make("tbody"), count = make("p", { class: "soft", role: "status", id: "count" });
  const more = make("button", { type: "button", id: "more", onclick: () => { state.every = true; show(); } });
  const heads = COLUMNS.map((column) => {
    const press = () => {
      state.down = state.by === column.key && !state.down;
      state.by = column.key;
      show();
    };
    return make("th", { scope: "col", class: column.right ? "right" : null }, make("button", { type: "button", onclick: press }, column.name));
  });
  const cell = (entry, column, i) => {
    const text = column.text ? column.text(entry) : String(entry[column.key]);
    const classes = [column.right ? "right" : "", column.key === "status" ? entry.mood : ""].join(" ").trim() || null;
    return make("td", { class: classes, "data-name": i ? column.name : null },
      i ? text || null : make("a", { href: `#${entry.place}` }, text));
  };
  function show() {
    const found = selected(entries, state);
    const rows = state.every ? found : found.slice(0, MOST_ROWS);
    more.hidden = rows.length === found.length;
    more.textContent = `show all ${found.length}`;
    body.replaceChildren(...rows.map((entry) => make("tr", {}, COLUMNS.map((column, i) => cell(entry, column, i)))));
    const all = entries.length === 1 ? "1 entry" : `${entries.length} entries`;
    count.textContent = found.length === entries.length ? all : `${found.length} of ${all}`;
    heads.forEach((head, i) => {
      const mine = state.by === COLUMNS[i].key;
      head.setAttribute("aria-sort", mine ? (state.down ? "descending" : "ascending") : "none");
      head.firstChild.textContent = COLUMNS[i].name + (mine ? (state.down ? " ▼" : " ▲") : "");
    });
  }
  const values = (key) => [...new Set(entries.map((e) => e[key]))].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  const filter = (key, name) => make("label", {}, name,
    make("select", { id: `filter-${key}`, onchange: (event) => { state[key] = event.target.value; show(); } },
      ["", ...values(key)].map((v) => make("option", { value: v, selected: v === state[key] }, v || "all"))));
  const search = make("input", { type: "search", id: "search", placeholder: "machine, collective, 16 ranks, open", value: state.words, autocomplete: "off",
    oninput: (event) => { state.words = event.target.value; show(); } });
  show();
  return make("div", {},
    make("div", { class: "bar", role: "search" }, make("label", { class: "wide" }, "search", search), filter("topology", "machine"), filter("collective", "collective"),
      filter("status", "proved")),
    count,
    make("table", { class: "list" }, make("caption", { class: "gone" }, "entries of this report"),
      make("thead", {}, make("tr", {}, heads)), body),
    make("p", {}, more));
}
