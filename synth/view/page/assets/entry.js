// One entry: what is found and proved, its plots, its schedules, where it comes from.

function entryView(sheet, machine) {
  let chosen = sheet.algorithms.findIndex((algorithm) => algorithm.move);
  if (chosen < 0) chosen = sheet.algorithms.length ? 0 : null;
  let player = null, asked = 0;
  const stage = make("div", { id: "stage" }), rows = make("div");
  const stairs = sheet.stairs ? stairsPanel(sheet.stairs, (k) => choose(k, true), () => chosen) : null;
  const times = timesPanel(sheet, () => chosen), differences = comparePanel(sheet, machine, () => chosen), files = filesPanel(sheet, machine, () => chosen);

  function choose(k, look = false) {
    chosen = k;
    listRows();
    stairs?.again();
    times.again();
    differences.again();
    files.again();
    playChosen();
    if (look) stage.scrollIntoView({ block: "nearest" });
  }

  function listRows() {
    if (!sheet.algorithms.length) return;
    const at = [...rows.querySelectorAll("input")].indexOf(document.activeElement);
    rows.replaceChildren(table(sheet.columns, sheet.algorithms.map((a) => a.cells), "algorithms", (k) => ({
      class: k === chosen ? "chosen" : null,
      lead: make("td", {}, make("input", { type: "radio", name: "algorithm", checked: k === chosen, "aria-label": sheet.algorithms[k].name, onchange: () => choose(k) })),
    })));
    if (at >= 0) rows.querySelectorAll("input")[chosen]?.focus();
  }

  async function playChosen() {
    player?.dispose();
    player = null;
    const algorithm = sheet.algorithms[chosen], mine = (asked += 1);
    const said = algorithm?.proof ? make("p", {}, algorithm.proof) : null;
    if (!algorithm?.move || !machine) {
      stage.replaceChildren(make("h3", {}, algorithm ? algorithm.name : "Schedule"), said ?? "",
        make("p", { class: "note" }, `No schedule step by step: ${algorithm?.lack || "none is at hand"}.`), machine ? machineAtRest(machine) : "");
      return;
    }
    try {
      const schedule = await replayOf(algorithm.move, machine);
      if (mine !== asked) return;
      player = playerOf(machine, schedule);
      stage.replaceChildren(make("h3", {}, `Schedule: ${algorithm.name}, ${plural(schedule.chunks, "chunk")} per part, ${plural(schedule.rounds, "round")}, ${plural(algorithm.move.sends, "send")}`),
        said ?? "", player.element);
    } catch (error) {
      stage.replaceChildren(make("p", { class: "note" }, typeof DecompressionStream === "undefined"
        ? "This browser cannot unpack schedules (DecompressionStream is missing); a newer one shows them." : `The schedule cannot be shown: ${error.message}`));
    }
  }

  const proofs = sheet.proofs.length ? panel("What is proved", make("ul", { class: "plain" },
    sheet.proofs.map(([claim, how]) => make("li", {}, claim, how ? make("span", { class: "how" }, how) : null)))) : null;
  const assumed = sheet.proofs.length ? panel("Under these assumptions", make("ul", {}, held("head").assumed.map((line) => make("li", {}, line)))) : null;
  const origin = panel("Where it comes from", make("dl", {}, sheet.provenance.map(([what, value]) => [make("dt", {}, what), make("dd", {}, value)])));
  const extra = sheet.tables.map((t) => panel(t.title, table(t.columns, t.rows, t.title)));
  const algorithms = sheet.algorithms.length ? panel("Algorithms", sheet.algorithms.some((a) => a.move) ? make("p", { class: "soft" }, "The chosen one is drawn below.") : null, rows) : null;
  listRows();
  playChosen();
  return {
    element: make("article", {}, make("h2", {}, sheet.title), make("p", { class: sheet.mood }, sheet.status),
      make("ul", { class: "plain soft" }, sheet.says.map((line) => make("li", {}, line))), algorithms,
      make("div", { class: "pair" }, make("div", {}, stairs?.element, extra, differences.element), times.element), make("section", { class: "panel", "aria-label": "Schedule" }, stage),
      make("div", { class: "pair" }, proofs, make("div", {}, files.element, assumed, origin))),
    keys: (event) => player?.keys(event),
    dispose: () => player?.dispose(),
  };
}
