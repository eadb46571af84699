// Files that the page makes: a schedule's document, tables, drawings.

/** The document synth.schedule/1 of a packed schedule, which `synth verify`, `run` and `export` read. */
async function scheduleDocument(packed, machine) {
  const [topology, doc] = await Promise.all([unpack(machine.topology), unpack(packed.data)]);
  const { ranks, links } = topology, { chunks, combining } = doc, pre = [], post = [];
  doc.from.forEach((side, unit) => {
    const special = new Map(doc.wants?.[unit] ?? []);
    for (let chunk = unit * chunks; chunk < (unit + 1) * chunks; chunk += 1) {
      for (const rank of everyone(side, ranks)) pre.push([chunk, rank]);
      for (const rank of everyone(doc.to[unit], ranks)) post.push(special.size ? [chunk, rank, special.get(rank)] : [chunk, rank]);
    }
  });
  const steps = doc.sends.map((columns, t) => ({ rounds: doc.rounds[t], sends: sendsOf(columns).map(({ route, chunk, kind }) => {
    if (route >= links.length) return [chunk, route - links.length, route - links.length, kind];
    const [src, dst, , ...via] = links[route];
    return [chunk, src, dst, kind, ...via];
  }) }));
  const collective = { name: doc.name, ranks, root: doc.root, combining, chunks: doc.from.length * chunks, pre, post };
  return { schema: "synth.schedule/1", fingerprint: doc.fingerprint, topology, collective, chunks, ...(doc.timed ? { timed: true } : {}), steps };
}

const csv = (rows) => rows.map((row) => row.map((cell) => `"${String(cell).replaceAll('"', '""')}"`).join(",")).join("\n") + "\n";

/** A drawing as a file of its own, with the page's styles. */
function svgFile(svg) {
  const copy = svg.cloneNode(true);
  copy.setAttribute("xmlns", SVG);
  copy.prepend(draw("style", {}, document.querySelector("style").textContent));
  return new XMLSerializer().serializeToString(copy);
}

function save(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  make("a", { href: url, download: name.replace(/[^\w.-]+/g, "-").slice(0, 100) }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

/** The panel; `again()` after another algorithm was chosen. */
function filesPanel(sheet, machine, chosen) {
  const name = `${sheet.collective}-${sheet.topology}`, algorithm = () => sheet.algorithms[chosen()];
  const button = (text, press) => make("button", { type: "button", onclick: press }, text);
  const schedule = machine ? button("schedule (JSON)", async () => save(`${name}-${algorithm().name}.json`, "application/json", JSON.stringify(await scheduleDocument(algorithm().move, machine)))) : null;
  const drawing = (selector) => save(`${name}.svg`, "image/svg+xml", svgFile(document.querySelector(selector)));
  const picture = machine ? button("machine (SVG)", () => drawing("#machine")) : null;
  const sizes = sizesOf(sheet.times);
  const times = () => {
    const curves = curvesOf(sheet), every = new Set(curves.flatMap((c) => (c.points ?? []).map(([s]) => s)));
    for (let s = sizes[0]; s <= sizes[1]; s *= 2) every.add(s);
    const at = (curve, s) => (curve.points ? curve.points.find((p) => p[0] === s)?.[1] ?? "" : curve.at(s));
    return csv([["bytes", ...curves.map((c) => `${c.name}, ${c.note}, seconds`)], ...[...every].sort((a, b) => a - b).map((s) => [s, ...curves.map((c) => at(c, s))])]);
  };
  const downloads = make("div", { class: "bar" }, schedule, picture,
    sheet.algorithms.length ? button("algorithms (CSV)", () => save(`${name}.csv`, "text/csv", csv([sheet.columns.map(([c]) => c), ...sheet.algorithms.map((a) => a.cells)]))) : null,
    sizes ? button("times (CSV)", () => save(`${name}-times.csv`, "text/csv", times())) : null,
    sizes ? button("chart (SVG)", () => drawing("[aria-label='Time against size'] .plot > svg")) : null);
  function again() {
    if (schedule) schedule.disabled = !algorithm()?.move;
  }
  again();
  return { again, element: panel("Files", downloads) };
}
