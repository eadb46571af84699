// Two algorithms of an entry beside each other: the columns of its table, sends, loads, and the size at which the other is faster.

const valueOf = (text) => {
  const match = /^(-?[\d.]+)(?:\/(\d+))?$/.exec(text);
  return match ? Number(match[1]) / Number(match[2] ?? 1) : null;
};

/** Rows [name, first, second] of what the schedules of two algorithms do with the links. */
async function loadRows(pair, machine) {
  if (!machine || pair.some((algorithm) => !algorithm.move)) return [];
  const [a, b] = await Promise.all(pair.map((algorithm) => replayOf(algorithm.move, machine)));
  const links = (schedule) => schedule.total.slice(0, machine.links.length);
  const both = (name, text) => [name, text(a), text(b)];
  return [both("sends", (s) => String(s.steps.reduce((sum, step) => sum + step.sends.length, 0))),
    both("links in use", (s) => `${links(s).filter((load) => load > 0).length}`),
    both("load of links, mean", (s) => percent(links(s).reduce((x, y) => x + y, 0) / machine.links.length)),
    both("load of the busiest link", (s) => percent(Math.max(...links(s))))];
}

/** The size from which the other line is faster, in words; "" where one of them is not predicted. */
function crossing({ times, algorithms }, first, second) {
  const [a, b] = [first, second].map((k) => times.lines.find((line) => line[0] === k));
  if (!a || !b) return "";
  const size = (b[1] - a[1]) / (a[2] - b[2]), [low, high] = a[1] < b[1] || (a[1] === b[1] && a[2] <= b[2]) ? [a, b] : [b, a];
  const name = (line) => algorithms[line[0]].name;
  return size > 0 && Number.isFinite(size) ? `By synchronous steps ${name(low)} is faster up to ${sizeText(size)}, ${name(high)} from there on.` : `By synchronous steps ${name(low)} is as fast or faster at every size.`;
}

/** The panel; `again()` after another algorithm was chosen. */
function comparePanel(sheet, machine, chosen) {
  if (sheet.algorithms.length < 2) return { element: null, again() {} };
  let other = null, asked = 0;
  const body = make("div", { "aria-live": "polite" });
  const select = make("select", { id: "compare", onchange: (event) => { other = event.target.value === "" ? null : Number(event.target.value); again(); } },
    make("option", { value: "" }, "none"), sheet.algorithms.map((a, k) => make("option", { value: k }, a.name)));
  async function again() {
    const mine = (asked += 1), first = chosen(), pair = [first, other].map((k) => sheet.algorithms[k]);
    if (other === null || first === other) { body.replaceChildren(other === null ? "" : make("p", { class: "soft" }, "This is the chosen algorithm itself.")); return; }
    const rows = [...sheet.columns.map(([name], k) => [name, pair[0].cells[k], pair[1].cells[k]]), ...(await loadRows(pair, machine))];
    if (mine !== asked) return;
    const full = rows.map(([name, a, b]) => {
      const [x, y] = [a, b].map((text) => valueOf(text.replace("%", "")));
      return [name, a, b, x && y !== null && x !== y ? `× ${number(y / x)}` : a === b ? "same" : ""];
    });
    body.replaceChildren(make("p", {}, crossing(sheet, first, other)),
      table([["", "left"], [pair[0].name, "right"], [pair[1].name, "right"], ["difference", "right"]], full, "differences between two algorithms"));
  }
  return { again, element: panel("Differences", make("label", {}, "the chosen algorithm against ", select), body) };
}
