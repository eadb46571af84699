// The drawn topology: links with their load, ranks with how much they hold, and the chunks under way.

const heatClass = (load) => (load > 0 ? `h${Math.max(1, Math.min(5, Math.ceil(load * 5 - 1e-9)))}` : "");
const AT_REST = 0.34;

/** The drawing; `tell(what)` is called with {link} or {rank} under the pointer or finger, null when it leaves. */
function machineView(machine, tell) {
  const { links, ends, width, height } = machine;
  const both = new Set(links.map(([a, b]) => `${a} ${b}`));
  const widest = Math.max(1, ...links.map((link) => link[2]));
  const lines = links.map(([a, b, , , bend]) => lineOf(ends[a], ends[b], bend, both.has(`${b} ${a}`) ? 4 : 0));
  const wires = links.map(([, , units], k) => draw("path", { class: "wire", "stroke-width": 1 + (2.4 * units) / widest, "data-link": k,
    d: `M${lines[k].map((spot) => spot.map((v) => v.toFixed(1)).join(" ")).join("L")}` }));
  const frames = machine.frames.map(([x, y, w, h]) => draw("rect", { class: "frame", x, y, width: w, height: h, rx: 12 }));
  const gauges = [];
  const bodies = ends.map(([x, y, name, isSwitch], end) => {
    if (isSwitch) {
      return draw("g", { class: "end" }, draw("title", {}, name), draw("rect", { class: "body", x: x - 25, y: y - 11, width: 50, height: 22, rx: 4 }),
        draw("text", { x, y: y + 4 }, name.slice(0, 8)));
    }
    gauges[end] = draw("circle", { class: "gauge", cx: x, cy: y, r: 15, pathLength: 100, "stroke-dasharray": "0 100", transform: `rotate(-90 ${x} ${y})` });
    return draw("g", { class: "end", "data-rank": end }, draw("circle", { class: "body", cx: x, cy: y, r: 15 }), gauges[end],
      draw("text", { x, y: y + 4 }, name));
  });
  const tokens = draw("g", {});
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "the machine: ranks and links", id: "machine" },
    frames, wires, tokens, bodies);
  let under = "";
  const hear = (event, stay) => {
    const rank = event.target.closest("[data-rank]")?.dataset.rank, { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    const link = rank === undefined ? nearest(lines, x, y) : null, now = `${rank} ${link}`;
    if (now === under && !stay) return;
    under = now;
    tell(rank !== undefined ? { rank: Number(rank) } : link === null ? null : { link }, stay);
  };
  fill(svg, { onpointermove: (event) => hear(event, false), onclick: (event) => hear(event, true),
    onpointerleave: () => { under = ""; tell(null, false); } }, []);
  const ways = machine.routes.map(([, , way]) => wayOf(way.flatMap((k) => segments(lines[k]))));
  let moving = [];
  return {
    svg,
    /** Colours links by their load, from `loads` of links. */
    heat(loads) { wires.forEach((wire, k) => wire.setAttribute("class", `wire ${heatClass(loads[k])}`.trim())); },
    /** Fills the ring of each rank. */
    fill(rows) { gauges.forEach((gauge, r) => gauge?.setAttribute("stroke-dasharray", `${rows[r][1] ? (100 * rows[r][0]) / rows[r][1] : 0} 100`)); },
    /** Puts a label on each route of `groups`: Map route -> sends. */
    load(groups) {
      const queues = new Map();  // sends that begin on the same link follow each other
      for (const route of groups.keys()) queues.set(machine.routes[route][2][0], [...(queues.get(machine.routes[route][2][0]) ?? []), route]);
      const size = groups.size > 130 || queues.size < groups.size / 2 ? "dot" : groups.size > 56 || queues.size < groups.size ? "small" : "";
      moving = [...queues.values()].flatMap((queue) => queue.map((route, i) => (
        { route, lead: queue.length > 1 ? 0.32 * ((i + 0.5) / queue.length) - 0.22 : 0, element: tokenOf(groups.get(route), size) })));
      tokens.replaceChildren(...moving.map((token) => token.element));
      this.move(AT_REST);
    },
    /** Moves all labels to a share of their way. */
    move(share) {
      for (const { route, lead, element } of moving) {
        const [x, y] = ways[route](Math.max(0, Math.min(1, share + lead)));
        element.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)})`);
      }
    },
    /** Lights links, and the labels of routes over them; none lights nothing. */
    light(lit) {
      svg.classList.toggle("dimmed", lit.length > 0);
      wires.forEach((wire, k) => wire.classList.toggle("lit", lit.includes(k)));
      for (const { route, element } of moving) element.classList.toggle("lit", machine.routes[route][2].some((k) => lit.includes(k)));
    },
  };
}

/** The drawing alone, with the bandwidth of the link under the pointer. */
function machineAtRest(machine) {
  const info = make("p", { class: "info", role: "status" }, "Point at a link: it says its bandwidth.");
  const view = machineView(machine, (what) => {
    view.light(what?.link === undefined ? [] : [what.link]);
    if (what?.link !== undefined) info.textContent = `${linkName(machine, what.link)}: ${machine.links[what.link][3]} GB/s`;
  });
  return make("div", {}, view.svg, info);
}

/** Places along a line from one end to another; `bend`: of its control point to the left; `aside`: what keeps both directions apart. */
function lineOf([x1, y1, , hub1], [x2, y2, , hub2], bend, aside) {
  const far = Math.hypot(x2 - x1, y2 - y1) || 1, dx = (x2 - x1) / far, dy = (y2 - y1) / far;
  const control = [(x1 + x2) / 2 + bend * dy, (y1 + y2) / 2 - bend * dx], pieces = bend ? 14 : 1;
  const from = (hub1 ? 12 : 15) / far, to = 1 - (hub2 ? 12 : 15) / far;
  return Array.from({ length: pieces + 1 }, (_, i) => {
    const t = from + ((to - from) * i) / pieces, at = (a, c, b) => (1 - t) ** 2 * a + 2 * t * (1 - t) * c + t * t * b;
    return [at(x1, control[0], x2) - aside * dy, at(y1, control[1], y2) + aside * dx];
  });
}

/** Pairs of places that follow each other. */
const segments = (spots) => spots.slice(1).map((spot, i) => [...spots[i], ...spot]);

/** The line nearest to a point, null where none is near. */
function nearest(lines, x, y) {
  let found = null, least = 9;
  lines.forEach((spots, k) => {
    for (const [x1, y1, x2, y2] of segments(spots)) {
      const [dx, dy] = [x2 - x1, y2 - y1];
      const along = Math.max(0, Math.min(1, ((x - x1) * dx + (y - y1) * dy) / (dx * dx + dy * dy || 1)));
      const far = Math.hypot(x - x1 - along * dx, y - y1 - along * dy);
      if (far < least) [found, least] = [k, far];
    }
  });
  return found;
}

/** A function from a share of the way to the point there. */
function wayOf(pieces) {
  const lengths = pieces.map(([x1, y1, x2, y2]) => Math.hypot(x2 - x1, y2 - y1) || 1);
  const whole = lengths.reduce((a, b) => a + b, 0);
  return (share) => {
    let rest = share * whole;
    const k = lengths.findIndex((length, i) => i === lengths.length - 1 || (rest -= length) <= 0);
    const part = k === lengths.length - 1 ? rest / lengths[k] : 1 + rest / lengths[k];
    const [x1, y1, x2, y2] = pieces[k];
    return [x1 + (x2 - x1) * part, y1 + (y2 - y1) * part];
  };
}

/** What travels: chunk numbers where there is room for them, else how many; a dot in a crowd. */
function tokenOf(sends, size) {
  const adds = sends.some((send) => send.kind.startsWith("reduce"));
  const group = draw("g", { class: `token ${size}${adds ? " reduce" : ""}` });
  if (size === "dot") return fill(group, {}, [draw("circle", { r: 3 })]);
  const text = sends.length <= (size ? 1 : 2) ? sends.map((send) => send.chunk).join(" ") : `×${sends.length}`;
  const wide = size ? 6 + 5.4 * text.length : 8 + 6.6 * text.length, tall = size ? 12 : 16;
  return fill(group, {}, [draw("rect", { x: -wide / 2, y: -tall / 2, width: wide, height: tall, rx: tall / 2 }), draw("text", { y: tall / 4 }, text)]);
}
