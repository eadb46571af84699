// The schedule in motion: play, pause, steps, slider, keys; which chunk goes where, under the pointer or the focus.

const STEP_SECONDS = 1.6;
const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

/** The player of one schedule on its machine. `dispose()` stops it. */
function playerOf(machine, schedule) {
  const steps = schedule.steps.length, links = machine.links.length;
  const state = { at: Math.min(1, steps), share: null, playing: false, total: false, unit: null, speed: 1, stuck: null };
  let clock = null, last = 0;
  const info = make("p", { class: "info", role: "status", id: "info" }), position = make("strong", { id: "step-text" });
  const list = make("div", { class: "sends tall", role: "group", "aria-label": "sends of this step", id: "sends" });
  const view = machineView(machine, (what, stay) => { if (stay) state.stuck = what; point(what ?? rest()); });
  const grid = heatGrid(machine, schedule, (text) => { info.textContent = text; }, (step) => (step === null ? setTotal(true) : (setTotal(false), go(step))));

  const sendsNow = () => (state.at === 0 ? [] : schedule.steps[state.at - 1].sends
    .filter((send) => state.unit === null || Math.floor(send.chunk / schedule.chunks) === state.unit));

  function groups() {
    const found = new Map();
    for (const send of sendsNow()) found.set(send.route, [...(found.get(send.route) ?? []), send]);
    return found;
  }

  /** Says what `what` ({link}, {route} or {rank}) does at this step, and lights it. */
  function point(what) {
    if (!what) { view.light([]); mark([]); info.textContent = hint(); return; }
    if (what.rank !== undefined) {
      const [has, wants] = schedule.held[state.at][what.rank];
      const parts = schedule.combining ? "contributions to chunks" : "chunks";
      info.textContent = wants ? `rank ${what.rank} after step ${state.at}: has ${has} of the ${wants} ${parts} that it must end with`
        : `rank ${what.rank}: need not end with anything`;
      view.light(machine.routes.flatMap(([a, b, way]) => (a === what.rank || b === what.rank ? way : [])));
      return;
    }
    const route = what.route, link = what.link ?? machine.routes[route][2][0];
    const riders = [...groups()].filter(([r]) => (route === undefined ? machine.routes[r][2].includes(link) : r === route));
    const [load, count, room] = state.total || state.at === 0 ? [schedule.total[link], schedule.totals[link], capacity(machine, link) * schedule.rounds]
      : [schedule.loads[state.at - 1][link], schedule.counts[state.at - 1][link], capacity(machine, link) * schedule.steps[state.at - 1].rounds];
    const limit = fullestLimit(machine, link, state.total || state.at === 0 ? schedule.total : schedule.loads[state.at - 1]);
    const shared = limit ? ` (limit "${limit[0]}": ${percent(limit[1])})` : "";
    const name = route === undefined ? linkName(machine, link) : `${machine.routes[route][0]} → ${machine.routes[route][1]}`;
    const where = route === undefined ? "" : machine.routes[route][2].length > 1 ? ` through ${machine.routes[route][2].slice(1).map((k) => machine.ends[machine.links[k][0]][2]).join(", ")}` : "";
    const what_ = riders.map(([r, sends]) => `${riders.length > 1 ? `${machine.routes[r][0]} → ${machine.routes[r][1]} ` : ""}${chunksText(schedule, sends)}`).slice(0, 4).join("; ");
    const when = state.total || state.at === 0 ? "all steps" : `step ${state.at}`;
    info.textContent = `${name}${where} (${machine.links[link][3]} GB/s), ${when}: ${count} of ${room} sends, ${percent(load)}${shared}${what_ ? ` — ${what_}` : ""}`;
    view.light(route === undefined ? [link] : machine.routes[route][2]);
    mark(riders.map(([r]) => r));
  }

  /** The thing described while nothing is pointed at: the pressed one, else the send that has the focus. */
  function rest() {
    const route = list.contains(document.activeElement) ? document.activeElement.dataset.route : undefined;
    return state.stuck ?? (route === undefined ? null : { route: Number(route) });
  }

  const hint = () => "Point at a link or a rank, or go through the list of sends: it says which chunk goes where.";
  const mark = (routes) => { for (const row of list.children) row.classList.toggle("lit", routes.includes(Number(row.dataset.route))); };

  function listSends() {
    const rows = [...groups()].map(([route, sends], i) => make("button", { type: "button", "data-route": route, tabindex: i ? -1 : 0,
      onfocus: () => point({ route }), onpointerenter: () => point({ route }), onpointerleave: () => point(rest()), onclick: () => point((state.stuck = { route })) },
      make("b", {}, `${machine.routes[route][0]} → ${machine.routes[route][1]}`), chunksText(schedule, sends, 3)));
    list.replaceChildren(...(rows.length ? rows : [make("p", { class: "soft" }, state.at === 0 ? "Before the first step." : "No sends at this step.")]));
  }

  list.addEventListener("keydown", (event) => {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key], rows = [...list.querySelectorAll("button")], from = rows.indexOf(event.target);
    if (!move || from < 0) return;
    event.preventDefault();
    const next = rows[Math.max(0, Math.min(rows.length - 1, from + move))];
    rows.forEach((row) => { row.tabIndex = row === next ? 0 : -1; });
    next.focus();
  });

  /** Draws step `state.at` anew. */
  function show() {
    state.stuck = null;
    const step = schedule.steps[state.at - 1];
    position.textContent = step ? `step ${state.at} of ${steps}: ${plural(step.rounds, "round")}, ${plural(step.sends.length, "send")}` : `before step 1 of ${steps}`;
    slider.value = state.at;
    slider.setAttribute("aria-valuetext", position.textContent);
    back.disabled = first.disabled = state.at === 0;
    forth.disabled = end.disabled = state.at === steps;
    const loads = state.total ? schedule.total : state.at ? schedule.loads[state.at - 1] : schedule.total.map(() => 0);
    view.heat(loads.slice(0, links));
    view.load(groups());
    view.fill(schedule.held[state.share === null ? state.at : Math.max(0, state.at - 1)]);
    grid.mark(state.at);
    listSends();
    point(null);
  }

  function go(step, keep = false) {
    if (!keep) pause();
    state.at = Math.max(0, Math.min(steps, step));
    show();
  }

  function pause() {
    state.playing = false;
    state.share = null;
    cancelAnimationFrame(clock);
    play.textContent = "play";
  }

  function start() {
    state.playing = true;
    play.textContent = "pause";
    state.share = 0;
    go(state.at === steps ? 1 : state.at + 1, true);
    last = performance.now();
    clock = requestAnimationFrame(tick);
  }

  function tick(now) {
    if (!state.playing) return;
    state.share += Math.min(0.1, Math.max(0, (now - last) / 1000)) * (state.speed / STEP_SECONDS);  // no leap after a pause of the browser
    last = now;
    if (state.share >= 1) {
      if (state.at === steps) { pause(); show(); return; }
      state.share = 0;
      go(state.at + 1, true);
    }
    if (!still()) view.move(0.06 + 0.88 * Math.min(1, state.share));
    clock = requestAnimationFrame(tick);
  }

  function setTotal(value) {
    state.total = value;
    loadChoice.value = value ? "total" : "step";
    show();
  }

  const button = (text, label, press, id) => make("button", { type: "button", title: label, onclick: press, id }, text);
  const first = button("start", "to the start (Home)", () => go(0), "first"), back = button("◀ back", "step back (left arrow)", () => go(state.at - 1), "back");
  const play = make("button", { type: "button", id: "play", onclick: () => (state.playing ? (pause(), show()) : start()) }, "play");
  const forth = button("step ▶", "step forward (right arrow)", () => go(state.at + 1), "forth"), end = button("end", "to the last step (End)", () => go(steps), "end");
  const slider = make("input", { type: "range", id: "step", min: 0, max: steps, step: 1, "aria-label": "step", oninput: (event) => go(Number(event.target.value)) });
  const choose = (name, id, options, change) => make("label", {}, name, make("select", { id, onchange: (event) => change(event.target.value) },
    options.map(([value, text]) => make("option", { value }, text))));
  const loads = choose("colour", "loads", [["step", "load of this step"], ["total", "load of all steps"]], (value) => setTotal(value === "total"));
  const loadChoice = loads.querySelector("select");
  const speed = choose("speed", "speed", [["1", "1×"], ["2", "2×"], ["4", "4×"], ["0.5", "½×"]], (value) => { state.speed = Number(value); });
  const units = schedule.from.length > 1 && schedule.from.length <= 600 ? choose("follow", "follow",
    [["", "all data"], ...schedule.from.map((_, u) => [String(u), unitName(schedule, u)])],
    (value) => { state.unit = value === "" ? null : Number(value); show(); }) : null;

  const element = make("div", { id: "player", onkeydown: keys },
    make("div", { class: "bar", role: "toolbar", "aria-label": "steps" }, first, back, play, forth, end, speed, loads, units),
    make("p", { role: "status" }, position), slider,
    make("div", { class: "pair uneven" }, make("div", {}, make("div", { class: "scroll" }, view.svg), heatKey(), info), list),
    make("h3", {}, "Load of links by step"), grid.element);

  function keys(event) {
    if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
    const to = { ArrowRight: state.at + 1, ArrowLeft: state.at - 1, Home: 0, End: steps }[event.key];
    if (to !== undefined) go(to);
    else if (event.key === " " && !event.target.matches("button, [role=button]")) play.click();
    else return;
    event.preventDefault();
  }

  show();
  return { element, keys, dispose: pause };
}
