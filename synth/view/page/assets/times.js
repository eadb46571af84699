// Time or bandwidth against size: predictions, the bound, measurements, other libraries, and who wins where.

const KB = 2 ** 10, GB = 2 ** 30;
const MODES = [["time", "time"], ["rate", "size / time"], ["bus", "bus bandwidth"]];

const beatenBy = (times, size) => Math.min(...times.floor.map(([a, b]) => a + b * size));

/** All that is drawn: {k, name, note, style, points or at}; `points`: [size, seconds, least, most]. */
function curvesOf({ times, algorithms }) {
  const many = algorithms.length;
  const curves = times.lines.map(([k, a, b]) => ({ k, name: algorithms[k].name, note: "predicted, synchronous steps", style: "series", at: (s) => a + b * s }));
  if (times.floor.length) curves.push({ k: null, name: "lower bound", note: "proved, synchronous steps", style: "floor", at: (s) => beatenBy(times, s) });
  if (times.bound.length) curves.push({ k: null, name: "lower bound", note: "certified", style: "floor", points: times.bound.map(([s, t]) => [s, t, t, t]) });
  times.marks.forEach((mark, i) => curves.push({ k: mark.of ?? i + many, name: mark.label, note: mark.modelled ? "modelled" : "measured", says: mark.says,
    style: mark.library ? "series library" : "series joined", points: mark.points, modelled: mark.modelled, library: mark.library }));
  return curves;
}

/** The sizes that the plot spans, null where there is nothing to plot. */
function sizesOf(times) {
  const sizes = times.marks.flatMap((mark) => mark.points.map((p) => p[0]));
  if (!sizes.length && !times.lines.length) return null;
  const low = Math.min(times.lines.length || !sizes.length ? KB : Infinity, ...sizes);
  return [low, Math.max(times.lines.length ? GB : 0, ...sizes, 2 * low)];
}

/** [size, value, least, most] of a curve between two sizes, in the unit of `value(size, seconds)`. */
function sampled(curve, [low, high], value) {
  const points = curve.points ?? Array.from({ length: 97 }, (_, i) => low * (high / low) ** (i / 96)).map((s) => [s, curve.at(s)]);
  const first = points.findLastIndex(([s]) => s <= low), last = points.findIndex(([s]) => s >= high);
  const near = points.slice(Math.max(0, first), last < 0 ? points.length : last + 1);
  return near.filter(([, t]) => t > 0).map(([s, t, least = t, most = t]) => [s, value(s, t), value(s, least), value(s, most)]);
}

function timesPlot(sheet, width, state, chosen) {
  const { times } = sheet, view = state.view;
  const value = state.mode === "time" ? (s, t) => t : (s, t) => (s / t / 1e9) * (state.mode === "bus" ? times.bus : 1);
  const curves = curvesOf(sheet).map((curve) => ({ ...curve, spots: sampled(curve, view, value) }));
  const values = curves.flatMap((c) => c.spots.filter(([s]) => s >= view[0] && s <= view[1]).flatMap(([, ...v]) => v));
  const strips = [times.wins].filter((wins) => wins.length);
  const height = Math.min(380, Math.max(260, width * 0.66)) + strips.length * 18;
  const base = height - FRAME.bottom - strips.length * 18, log = state.mode === "time";
  const least = log ? Math.min(...values) / 1.5 : 0, most = Math.max(...values) * (log ? 1.5 : 1.08);
  const x = scale(...view, FRAME.left, width - FRAME.right, true), y = scale(least, most, base, FRAME.top, log);
  const path = (spots) => spots.map(([s, v], i) => `${i ? "L" : "M"}${x(s).toFixed(1)} ${y(Math.max(v, least)).toFixed(1)}`).join("");
  const areas = curves.filter((c) => c.style === "floor" && c.spots.length).map(({ spots }) => draw("path", { class: "forbidden",
    d: `${path(spots)}V${log ? base : FRAME.top}H${x(spots[0][0])}Z` }));
  const lines = curves.filter((c) => c.style !== "floor").map((c) => draw("path", { class: `${c.style} ${tint(c.k)}${c.k === chosen ? " chosen" : ""}`, d: path(c.spots) }));
  const marks = curves.filter((c) => c.points && !c.library && c.style !== "floor").map((c) => draw("g", { class: tint(c.k) }, c.spots.map(([s, v, from, to]) => [
    from === to ? null : draw("line", { class: "whisker", x1: x(s), x2: x(s), y1: y(from), y2: y(to) }),
    draw("circle", { class: `mark${c.modelled ? " modelled" : ""}`, cx: x(s), cy: y(v), r: 3.5 })])));
  const bars = strips.map((wins, row) => wins.map(([from, to, name, k], i) => {
    const [a, b] = [x(Math.max(from, view[0])), x(Math.min(to ?? view[1], view[1]))];
    const wide = Math.max(b - a, 5);
    const said = `${name}: ${times.title}, ${rangeText(from, to)}`;
    return b < a ? null : draw("g", { class: tint(k ?? i) }, draw("title", {}, said),
      draw("rect", { class: "win", x: a, y: base + 3 + row * 18, width: wide, height: 14, rx: 2 }),
      wide > name.length * 7 ? draw("text", { class: "win-name", x: a + 5, y: base + 14 + row * 18 }, name) : null);
  }));
  const yTicks = log ? powerTicks(least, most, 10, 8).map((v) => [y(v), timeText(v)]) : roundTicks(most, height / 50).map((v) => [y(v), number(v)]);
  const inner = [FRAME.left - 4, FRAME.top - 4, width - FRAME.left - FRAME.right + 8, base - FRAME.top + 8];
  const label = `${state.mode === "time" ? "Time" : "Bandwidth"} against size from ${sizeText(view[0])} to ${sizeText(view[1])}; the slider below reads it`;
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label },
    draw("svg", { x: inner[0], y: inner[1], width: inner[2], height: inner[3], viewBox: inner.join(" ") }, areas, lines, marks),
    axes(width, height, powerTicks(...view, 4, Math.max(3, width / 75)).map((v) => [x(v), sizeText(v)]), yTicks, "size", log ? "time" : "GB/s"), bars,
    draw("line", { class: "cursor", x1: x(state.size), x2: x(state.size), y1: FRAME.top, y2: base }));
  return { svg, sizeAt: (place) => view[0] * (view[1] / view[0]) ** Math.max(0, Math.min(1, (place - FRAME.left) / (width - FRAME.left - FRAME.right))) };
}

function rangeText(from, to) {
  if (to === null) return from ? `${sizeText(from)} and more` : "every size";
  return from ? `${sizeText(from)} to ${sizeText(to)}` : `less than ${sizeText(to)}`;
}

/** Rows {k, row: [who, time, GB/s, bus GB/s]} at `size`, the fastest first; of what is known at some sizes only, at the nearest. */
function readings(sheet, size) {
  const rows = curvesOf(sheet).map(({ k, name, note, at, points }) => {
    const near = points?.reduce((a, b) => (Math.abs(Math.log(b[0] / size)) < Math.abs(Math.log(a[0] / size)) ? b : a)) ?? [size, at(size)];
    return { k, name, note: points ? `${note} at ${sizeText(near[0])}` : note, size: near[0], seconds: near[1] };
  });
  return rows.sort((a, b) => a.seconds - b.seconds).map((r) => {
    const rate = r.size / r.seconds / 1e9, [note, ...rest] = r.note.split(/(?=, )/);
    const who = [r.name, make("span", { class: "soft" }, ` ${note}`, make("span", { class: "far" }, rest.join("")))];
    return { k: r.k, row: [who, timeText(r.seconds), number(rate), ...(sheet.times.bus ? [number(rate * sheet.times.bus)] : [])] };
  });
}

/** The plot, a slider that reads it, and the ranges of sizes with their winners. */
function timesPanel(sheet, chosen) {
  const { times } = sheet, span = sizesOf(times);
  const notes = times.notes.map((note) => make("p", { class: "note" }, note));
  if (!span) return { element: notes.length ? panel("Time against size", notes) : null, again() {} };
  const state = { view: span, size: Math.min(Math.max(2 ** 20, span[0]), span[1]), mode: "time" };
  const host = make("div", { class: "plot" }), table_ = make("div", { "aria-live": "polite" }), shown = make("output", { for: "size" });
  let plot = null;
  const again = fitted(host, (width) => (plot = timesPlot(sheet, width, state, chosen())).svg);
  const columns = [["algorithm", "left"], ["time", "right"], ["GB/s", "right"], ...(times.bus ? [["bus GB/s", "right"]] : [])];
  function show() {
    shown.textContent = sizeText(state.size);
    slider.value = Math.round((places * Math.log(state.size / span[0])) / Math.log(span[1] / span[0]));
    slider.setAttribute("aria-valuetext", shown.textContent);
    const rows = readings(sheet, state.size);
    const key = (i) => ({ lead: make("td", {}, make("span", { class: `key ${tint(rows[i].k)}` })) });
    table_.replaceChildren(table(columns, rows.map((r) => r.row), "times at this size", key));
    wide.disabled = back.disabled = state.view === span;
    again();
  }
  function zoom(low, high) {
    const [from, to] = [Math.max(span[0], low), Math.min(span[1], high)];
    state.view = to / from >= 1.999 && (from > span[0] || to < span[1]) ? [from, to] : to / from < 1.999 ? state.view : span;
    state.size = Math.max(state.view[0], Math.min(state.view[1], state.size));
    show();
  }
  const by = (factor) => {
    const half = (state.view[1] / state.view[0]) ** (factor / 2);
    zoom(state.size / half, state.size * half);
  };
  const places = 200;
  const slider = make("input", { type: "range", id: "size", min: 0, max: places, step: 1, "aria-label": "size",
    oninput: (event) => {
      state.size = span[0] * (span[1] / span[0]) ** (event.target.value / places);
      if (state.size < state.view[0] || state.size > state.view[1]) state.view = span;
      show();
    } });
  const mode = make("select", { id: "mode", onchange: (event) => { state.mode = event.target.value; show(); } },
    MODES.filter(([key]) => key !== "bus" || times.bus).map(([key, text]) => make("option", { value: key }, text)));
  const button = (text, label, press) => make("button", { type: "button", title: label, "aria-label": label, onclick: press }, text);
  const near = button("+", "zoom in around the size", () => by(0.5)), back = button("−", "zoom out", () => by(2)), wide = button("all", "all sizes", () => zoom(...span));
  readByPointer(host, (place) => { state.size = plot.sizeAt(place); show(); }, (from, to) => zoom(plot.sizeAt(from), plot.sizeAt(to)));
  show();
  const wins = (title, found) => (found.length ? [make("h3", {}, title), make("ul", { class: "plain" }, found.map(([from, to, name, k], i) =>
    make("li", {}, make("span", { class: `key ${tint(k ?? i)}` }), `${rangeText(from, to)}: ${name}`)))] : null);
  const measured = times.marks.filter((mark) => !mark.library);
  const says = [...new Set(times.marks.map((mark) => mark.says))].map((text) => make("p", { class: "note" }, `${measured.some((mark) => mark.says === text) ? "Points" : "Dashed"}: ${text}.`));
  const key = [times.floor.length ? "grey: proved impossible in synchronous steps" : times.bound.length ? "grey: beyond the certified bound" : null, times.lines.length ? "lines: predicted, synchronous steps on bare links" : null, times.marks.some((m) => m.library) ? "dashed: other libraries" : null,
    measured.length ? "filled points: measured, hollow: modelled" : null, "strips: who is best", "drag: zoom"].filter(Boolean).join(" · ");
  return { again, element: panel("Time against size", make("div", { class: "bar" }, make("label", {}, "show", mode), near, back, wide), host,
    make("label", { for: "size" }, "size: ", shown), slider, table_, make("p", { class: "note" }, key),
    says, notes, wins(times.title, times.wins)) };
}
