// Loads of all links and limits as a grid: a row each, a column for each step, and one for all steps together.

const MOST_CELLS = 6000;

const linkName = (machine, k) => {
  if (k >= machine.links.length) return machine.caps[k - machine.links.length][0];
  const [a, b] = machine.links[k];
  return `${machine.ends[a][2]} → ${machine.ends[b][2]}`;
};

const capacity = (machine, k) => (k < machine.links.length ? machine.links[k][2] : machine.caps[k - machine.links.length][1]);

/** The limit that is fullest by `loads` among those that count sends over a link: [name, load], null where there is none. */
function fullestLimit(machine, link, loads) {
  let found = null;
  machine.caps.forEach(([name, , routes], k) => {
    const load = loads[machine.links.length + k];
    if ((!found || load > found[1]) && routes.some((route) => machine.routes[route][2].includes(link))) found = [name, load];
  });
  return found;
}

/** The grid, busiest links first where not all fit; `tell(text)` on hover, `go(step)` on a press. */
function heatGrid(machine, schedule, tell, go) {
  const steps = schedule.steps.length;
  const all = schedule.total.map((_, k) => k).filter((k) => schedule.totals[k] > 0);
  const most = Math.max(8, Math.floor(MOST_CELLS / (steps + 1)));
  const busiest = [...all].sort((a, b) => schedule.total[b] - schedule.total[a]).slice(0, most);
  const kept = all.filter((k) => busiest.includes(k)), isLimit = (k) => k >= machine.links.length;
  const rows = [...kept.filter(isLimit), ...kept.filter((k) => !isLimit(k))];  // limits first: they are what fills up
  if (steps > MOST_CELLS / 8) return { element: make("p", { class: "note" }, `${steps} steps are too many for a grid of loads.`), mark() {} };
  const left = Math.min(110, 14 + 6 * Math.max(...rows.map((k) => linkName(machine, k).length), 5)), cell = Math.max(10, Math.min(44, Math.floor(480 / steps))), tall = 13;
  const width = left + cell * steps + 8 + 34, height = 18 + tall * rows.length;
  const said = (k, t) => `${linkName(machine, k)}: ${t === null ? `all steps, ${plural(schedule.totals[k], "send")}` : `step ${t + 1}, ${plural(schedule.counts[t][k], "send")}`}`
    + ` of ${capacity(machine, k) * (t === null ? schedule.rounds : schedule.steps[t].rounds)}, ${percent((t === null ? schedule.total : schedule.loads[t])[k])}`;
  const box = (k, i, t) => draw("rect", { class: heatClass((t === null ? schedule.total : schedule.loads[t])[k]) || null, y: 18 + tall * i, height: tall - 1,
    x: t === null ? left + cell * steps + 8 : left + cell * t, width: t === null ? 30 : cell - 1, "data-cell": `${k} ${t ?? "all"}` }, draw("title", {}, said(k, t)));
  const now = draw("rect", { class: "now", y: 16, height: tall * rows.length + 3, width: cell + 1, visibility: "hidden" });
  const grid = draw("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "load of links by step",
    onpointerover: (event) => {
      const [k, t] = (event.target.dataset.cell ?? "").split(" ");
      if (t) tell(said(Number(k), t === "all" ? null : Number(t)));
    },
    onclick: (event) => {
      const t = (event.target.dataset.cell ?? "").split(" ")[1];
      if (t) go(t === "all" ? null : Number(t) + 1);
    } },
    Array.from({ length: steps }, (_, t) => ((t + 1) % (steps > 40 ? 5 : 1) ? null : draw("text", { x: left + cell * (t + 0.5), y: 11, "text-anchor": "middle" }, String(t + 1)))),
    draw("text", { x: left + cell * steps + 8, y: 11 }, "total"),
    rows.map((k, i) => [draw("text", { x: left - 6, y: 18 + tall * i + 10, "text-anchor": "end" }, linkName(machine, k).slice(0, 18)),
      schedule.steps.map((_, t) => box(k, i, t)), box(k, i, null)]), now);
  const note = rows.length < all.length ? make("p", { class: "note" }, `The ${rows.length} busiest of ${all.length} links and limits.`) : null;
  return {
    element: make("div", {}, make("div", { class: "scroll tall heat", tabindex: 0, role: "region", "aria-label": "load of links by step" }, grid), note),
    /** Frames the column of `step`, from 1; 0 none. */
    mark(step) {
      now.setAttribute("visibility", step ? "visible" : "hidden");
      now.setAttribute("x", left + cell * (step - 1) - 1);
    },
  };
}

/** What the five colours mean. */
const heatKey = () => make("p", { class: "scale" }, ["idle", "to 20%", "to 40%", "to 60%", "to 80%", "to 100%"]
  .map((text, i) => make("span", { class: i ? `h${i}` : null }, text)));
