// Time against size on logarithmic axes: predictions, what no schedule can beat, measurements, and who wins where.

const KB = 2 ** 10, GB = 2 ** 30;

/** Sizes and seconds that the plot spans, null where there is nothing to plot. */
function spanOf(times) {
  const points = times.marks.flatMap((mark) => mark.points);
  if (!points.length && !times.lines.length) return null;
  const sizes = points.map((p) => p[0]);
  const low = Math.min(KB, ...sizes), high = Math.max(times.lines.length ? GB : 0, ...sizes, 2 * low);
  const at = (size) => [...times.lines, ...times.floor.map((f) => [null, ...f])].map(([, a, b]) => a + b * size);
  const seconds = [...at(low), ...at(high), ...points.flatMap((p) => [p[2], p[3]])].filter((s) => s > 0);
  return { low, high, least: Math.min(...seconds) / 1.5, most: Math.max(...seconds) * 1.5 };
}

const beatenBy = (times, size) => Math.min(...times.floor.map(([a, b]) => a + b * size));

function timesPlot(sheet, width, size, chosen) {
  const { times } = sheet, many = sheet.algorithms.length;
  const { low, high, least, most } = spanOf(times);
  const strips = [times.wins, times.measured].filter((wins) => wins.length);
  const height = Math.min(380, Math.max(260, width * 0.66)) + strips.length * 18;
  const base = height - FRAME.bottom - strips.length * 18;
  const x = scale(low, high, FRAME.left, width - FRAME.right, true), y = scale(least, most, base, FRAME.top, true);
  const grid = Array.from({ length: 65 }, (_, i) => low * (high / low) ** (i / 64));
  const path = (f) => grid.map((s, i) => `${i ? "L" : "M"}${x(s).toFixed(1)} ${y(f(s)).toFixed(1)}`).join("");
  const forbidden = times.floor.length ? draw("path", { class: "forbidden",
    d: `${path((s) => Math.max(beatenBy(times, s), least))}L${x(high)} ${base}L${x(low)} ${base}Z` }, draw("title", {}, "proved impossible in the cost model")) : null;
  const lines = times.lines.map(([k, a, b]) => draw("path", { class: `series ${tint(k)}${k === chosen ? " chosen" : ""}`, d: path((s) => a + b * s) }));
  const marks = times.marks.map((mark, i) => draw("g", { class: tint(mark.of ?? i + many) }, mark.points.map(([s, t, from, to]) => [
    from < to ? draw("line", { class: "whisker", x1: x(s), x2: x(s), y1: y(from), y2: y(to) }) : null,
    draw("circle", { class: `mark${mark.modelled ? " modelled" : ""}`, cx: x(s), cy: y(t), r: 3.5 },
      draw("title", {}, `${mark.label}: ${timeText(t)} at ${sizeText(s)}, ${mark.says}`))])));
  const bars = strips.map((wins, row) => wins.map(([from, to, name, k], i) => {
    const [a, b] = [x(Math.max(from, low)), x(Math.min(to ?? high, high))];
    const wide = Math.max(b - a, 5);
    const said = `${name}: ${wins === times.wins ? times.title : "Best as measured"}, ${rangeText(from, to)}`;
    return b < a ? null : draw("g", { class: tint(k ?? i) }, draw("title", {}, said),
      draw("rect", { class: "win", x: a, y: base + 3 + row * 18, width: wide, height: 14, rx: 2 }),
      wide > name.length * 7 ? draw("text", { class: "win-name", x: a + 5, y: base + 14 + row * 18 }, name) : null);
  }));
  const label = `Time against size from ${sizeText(low)} to ${sizeText(high)}; the slider below reads it`;
  return draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label },
    forbidden, axes(width, height, powerTicks(low, high, 4, Math.max(3, width / 75)).map((v) => [x(v), sizeText(v)]),
      powerTicks(least, most, 10, 8).map((v) => [y(v), timeText(v)]), "size", "time"),
    lines, marks, bars, draw("line", { class: "cursor", x1: x(size), x2: x(size), y1: FRAME.top, y2: base }));
}

function rangeText(from, to) {
  if (to === null) return from ? `${sizeText(from)} and more` : "every size";
  return from ? `${sizeText(from)} to ${sizeText(to)}` : `less than ${sizeText(to)}`;
}

/** Rows [who, time, GB/s, note] at `size`: predictions, the bound, and what was measured nearest to it. */
function readings(sheet, size) {
  const { times, algorithms } = sheet;
  const rate = (s, t) => number(s / t / 1e9);
  const rows = times.lines.map(([k, a, b]) => ({ k, name: algorithms[k].name, size, seconds: a + b * size, note: "predicted" }));
  if (times.floor.length) rows.push({ k: null, name: "lower bound", size, seconds: beatenBy(times, size), note: "proved" });
  times.marks.forEach((mark, i) => {
    const near = mark.points.reduce((a, b) => (Math.abs(Math.log(b[0] / size)) < Math.abs(Math.log(a[0] / size)) ? b : a));
    rows.push({ k: mark.of ?? i + algorithms.length, name: mark.label, size: near[0], seconds: near[1],
      note: `${mark.modelled ? "modelled" : "measured"} at ${sizeText(near[0])}` });
  });
  return rows.sort((a, b) => a.seconds - b.seconds).map((r) => ({ k: r.k, row: [r.name, timeText(r.seconds), rate(r.size, r.seconds), r.note] }));
}

/** The plot, a slider that reads it, and the ranges of sizes with their winners. */
function timesPanel(sheet, chosen) {
  const { times } = sheet, span = spanOf(times);
  const notes = times.notes.map((note) => make("p", { class: "note" }, note));
  if (!span) return { element: notes.length ? panel("Time against size", notes) : null, again() {} };
  let size = Math.min(Math.max(2 ** 20, span.low), span.high);
  const host = make("div"), table_ = make("div", { "aria-live": "polite" }), shown = make("output", { for: "size" });
  const again = fitted(host, (width) => timesPlot(sheet, width, size, chosen()));
  const read = () => {
    shown.textContent = sizeText(size);
    slider.setAttribute("aria-valuetext", sizeText(size));
    const rows = readings(sheet, size);
    const key = (i) => ({ lead: make("td", {}, make("span", { class: `key ${tint(rows[i].k)}` })) });
    table_.replaceChildren(table([["algorithm", "left"], ["time", "right"], ["GB/s", "right"], ["", "left"]], rows.map((r) => r.row), "times at this size", key));
  };
  const places = 200;
  const slider = make("input", { type: "range", id: "size", min: 0, max: places, step: 1, "aria-label": "size",
    value: Math.round((places * Math.log(size / span.low)) / Math.log(span.high / span.low)),
    oninput: (event) => { size = span.low * (span.high / span.low) ** (event.target.value / places); read(); again(); } });
  read();
  const wins = (title, found) => (found.length ? [make("h3", {}, title), make("ul", { class: "plain" }, found.map(([from, to, name, k], i) =>
    make("li", {}, make("span", { class: `key ${tint(k ?? i)}` }), `${rangeText(from, to)}: ${name}`)))] : null);
  const says = [...new Set(times.marks.map((mark) => mark.says))].map((text) => make("p", { class: "note" }, `Points: ${text}.`));
  const key = "lines: predicted · grey: proved impossible in the cost model · filled points: measured, hollow: modelled · strips: who is best";
  return { again, element: panel("Time against size", host, make("label", { for: "size" }, "size: ", shown), slider, table_, make("p", { class: "note" }, key),
    says, notes, wins(times.title, times.wins), wins("Best as measured", times.measured)) };
}
