// The frontier: rounds per chunk over steps, the points, and the staircase below which nothing can lie.

/** The plot; `choose(k)` is called for a point, `chosen()` says which one is shown; `view`: its first and last number of steps, null for all. */
function stairsPlot(stairs, width, choose, chosen, view) {
  const height = Math.min(320, Math.max(220, width * 0.6));
  const known = [...stairs.dots.map((d) => d[0]), ...stairs.floor.map((f) => f[0]), ...stairs.open.map((o) => o[0])];
  const [first, last] = view ?? [Math.max(0, Math.min(...known) - 1), Math.max(...known, stairs.end ?? 0) + 1];
  const seen = (rows) => rows.filter(([steps]) => steps >= first && steps <= last);
  const under = stairs.floor.filter(([start], i) => start <= last && (stairs.floor[i + 1]?.[0] ?? Infinity) > first);
  const tall = Math.max(...seen(stairs.dots).map((d) => d[1]), ...under.map((f) => f[1]), ...seen(stairs.open).map((o) => o[2] ?? o[1]), 0) * 1.15 || 1;
  const long = last > 40 && first < last / 8, from = long ? Math.max(1, first) : first;  // few steps and many: by logarithms
  const x = scale(from, last, FRAME.left, width - FRAME.right, long), y = scale(0, tall, height - FRAME.bottom, FRAME.top);
  const stride = Math.max(1, Math.ceil((last - first) / Math.max(3, width / 50)));
  const whole = Array.from({ length: Math.floor((last - first) / stride) + 1 }, (_, i) => first + i * stride);
  const ticks = (long ? powerTicks(from, last, 2, width / 45) : whole).map((s) => [x(s), String(s)]);
  const ends = stairs.floor.map((f, i) => stairs.floor[i + 1]?.[0] ?? (stairs.end === null ? last : stairs.end + 1));
  let edge = "";
  stairs.floor.forEach(([start, value], i) => {
    edge += `${i ? "V" : `M${x(start)} `}${y(value)}H${x(Math.min(ends[i], last))}`;
  });
  const floor = stairs.floor.map(([start, value, text], i) =>
    draw("rect", { class: "forbidden", x: x(start), width: Math.max(0, x(Math.min(ends[i], last)) - x(start)), y: y(value), height: y(0) - y(value) },
      draw("title", {}, `with ${start} to ${ends[i] - 1} steps at least ${text} rounds per chunk`)));
  const least = stairs.floor[0]?.[0];
  const few = least > from ? draw("rect", { class: "forbidden", x: x(from), width: x(least) - x(from), y: FRAME.top, height: y(0) - FRAME.top },
    draw("title", {}, `fewer than ${plural(least, "step")}: proved impossible`)) : null;
  const open = stairs.open.map(([steps, low, high]) => draw("line", { class: "open", x1: x(steps), x2: x(steps), y1: y(low), y2: y(high ?? tall) },
    draw("title", {}, `${plural(steps, "step")}: open from ${number(low)} to ${high === null ? "any number" : number(high)}`)));
  const crowded = stairs.dots.length > width / 70;
  const dots = stairs.dots.map(([steps, value, text, optimal, k]) => {
    const label = `${plural(steps, "step")}, ${text} rounds per chunk, ${optimal ? "proved optimal" : "best known"}`;
    const dot = draw("g", { class: k === chosen() ? "chosen" : null, "data-point": k }, draw("title", {}, label),
      draw("circle", { class: "ring", cx: x(steps), cy: y(value), r: 10 }),
      optimal ? draw("circle", { class: "dot optimal", cx: x(steps), cy: y(value), r: 6 })
        : draw("path", { class: "dot known", d: `M${x(steps)} ${y(value) - 7}l7 7l-7 7l-7 -7z` }),
      crowded ? null : draw("text", { x: x(steps) + 10, y: y(value) - 8 }, text));
    return pressable(dot, label, () => choose(k));
  });
  const label = `Frontier: ${stairs.dots.map(([s, , text]) => `${plural(s, "step")} ${text}`).join(", ")} rounds per chunk`;
  const inner = [FRAME.left, 0, width - FRAME.left, y(0)];  // what lies outside of the view is cut off
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": label },
    draw("svg", { x: inner[0], y: inner[1], width: inner[2], height: inner[3], viewBox: inner.join(" ") },
      few, floor, draw("path", { class: "edge", d: edge || "M0 0" }), open, dots),
    axes(width, height, ticks, roundTicks(tall, height / 50).map((v) => [y(v), number(v)]), "steps", "rounds per chunk"));
  const stepsAt = (place) => {
    const share = Math.max(0, Math.min(1, (place - FRAME.left) / (width - FRAME.left - FRAME.right)));
    return long ? from * (last / from) ** share : from + (last - from) * share;
  };
  return { svg, stepsAt };
}

/** The plot with its key, which makes way for the point or tread under the mouse or the focus. */
function stairsPanel(stairs, choose, chosen) {
  const host = make("div", { class: "plot" }), key = make("p", { class: "note two", role: "status" });
  const plain = "grey: proved impossible · circle: proved optimal · diamond: best known" + (stairs.open.length ? " · dotted: not decided" : "") + " · drag: zoom";
  let view = null, plot = null;
  const again = fitted(host, (width) => (plot = stairsPlot(stairs, width, choose, chosen, view)).svg);
  const wide = make("button", { type: "button", hidden: true, onclick: () => zoom(null) }, "all steps");
  const tell = (event) => { key.textContent = event.target.closest("g, rect, line")?.querySelector("title")?.textContent ?? plain; };
  const zoom = (next) => {
    view = next;
    wide.hidden = !view;
    again();
  };
  fill(host, { onpointerover: tell, onpointerleave: () => { key.textContent = plain; }, onfocusin: tell }, []);
  readByPointer(host, () => {}, (from, to) => {
    const [low, high] = [Math.floor(plot.stepsAt(from)), Math.ceil(plot.stepsAt(to))];
    zoom([low, Math.max(high, low + 2)]);
  });
  key.textContent = plain;
  return { element: panel("Frontier", host, wide, key), again };
}
