// A schedule unpacked, and what it does: loads of links and limits at each step, and how much each rank holds.

const KINDS = ["copy", "reduce", "copy-input", "reduce-input"];
const KIND_TEXT = { copy: "", reduce: "added", "copy-input": "its own input", "reduce-input": "its own input, added" };

/** The JSON behind base 64 of raw deflate. */
async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Response(stream).json();
}

/** Columns of a step as sends {route, chunk, kind}. */
function sendsOf([routes, chunks, kinds]) {
  let route = 0;
  return routes.map((more, i) => ({ route: (route += more), chunk: chunks[i], kind: KINDS[kinds ? kinds[i] : 0] }));
}

/** A schedule ready to be shown: `steps[t]` = {rounds, sends, own}, own: what ranks put or add of their own, in `route` as the rank; `loads[t]` and `total` are shares of what links and limits can carry. */
async function replayOf(packed, machine) {
  const doc = await unpack(packed.data);
  const far = machine.routes.length;
  const steps = doc.sends.map((columns, t) => {
    const all = sendsOf(columns);
    const own = all.filter(({ route }) => route >= far).map((send) => ({ ...send, route: send.route - far }));
    return { rounds: doc.rounds[t], sends: all.filter(({ route }) => route < far), own };
  });
  const ranks = machine.ends.filter((end) => !end[3]).length;
  const counts = steps.map((step) => countLoads(machine, step.sends));
  const rounds = doc.rounds.reduce((a, b) => a + b, 0);
  const units = [...machine.links.map((link) => link[2]), ...machine.caps.map((cap) => cap[1])];
  const share = (carried, r) => carried.map((n, k) => n / (units[k] * r));
  const total = units.map((_, k) => counts.reduce((sum, step) => sum + step[k], 0));
  const made = { ...doc, steps, ranks, rounds, counts, totals: total, loads: counts.map((c, t) => share(c, doc.rounds[t])), total: share(total, rounds) };
  made.held = holdings(made, machine);
  return made;
}

/** Sends over each link, then each limit. */
function countLoads(machine, sends) {
  const count = new Array(machine.links.length + machine.caps.length).fill(0);
  const per = new Map();
  for (const { route } of sends) per.set(route, (per.get(route) ?? 0) + 1);
  for (const [route, n] of per) for (const link of machine.routes[route][2]) count[link] += n;
  machine.caps.forEach(([, , routes], k) => { for (const route of routes) count[machine.links.length + k] += per.get(route) ?? 0; });
  return count;
}

const everyone = (side, ranks) => (side === -1 ? Array.from({ length: ranks }, (_, r) => r) : Array.isArray(side) ? side : [side]);

/** held[t][rank]: [what it has, what it must end with] after t steps; counted in chunks, for sums in contributions to chunks. */
function holdings(schedule, machine) {
  const { ranks, chunks, combining } = schedule;
  const own = new Map(), want = new Map();  // "rank chunk" -> bits: of the contributions, or 1
  const key = (rank, chunk) => rank + chunk * ranks;
  schedule.from.forEach((side, u) => {
    const holders = everyone(side, ranks);
    const whole = combining ? holders.reduce((bits, r) => bits | (1n << BigInt(r)), 0n) : 1n;
    const special = new Map(schedule.wants?.[u] ?? []);
    for (let c = u * chunks; c < (u + 1) * chunks; c += 1) {
      for (const r of holders) own.set(key(r, c), combining ? 1n << BigInt(r) : 1n);
      for (const r of everyone(schedule.to[u], ranks)) {
        want.set(key(r, c), special.has(r) ? special.get(r).reduce((bits, s) => bits | (1n << BigInt(s)), 0n) : whole);
      }
    }
  });
  const state = new Map(), rows = Array.from({ length: ranks }, () => [0, 0]);
  for (const [at, bits] of want) rows[at % ranks][1] += ones(bits);
  const land = (at, bits) => {  // counts are kept up with what lands, as a schedule may be long
    const asked = want.get(at) ?? 0n;
    rows[at % ranks][0] += ones(bits & asked) - ones((state.get(at) ?? 0n) & asked);
    state.set(at, bits);
  };
  const snapshot = () => rows.map((row) => [...row]);
  for (const [at, bits] of own) land(at, bits);
  const held = [snapshot()];
  for (const { sends, own: local } of schedule.steps) {
    const moves = [...sends.map((send) => [machine.routes[send.route], send]), ...local.map((send) => [[send.route, send.route], send])];
    const landed = moves.map(([[src, dst], { chunk, kind }]) => {
      return { at: key(dst, chunk), bits: (kind.endsWith("input") ? own : state).get(key(src, chunk)) ?? 0n, adds: kind.startsWith("reduce") };
    });
    for (const { at, bits, adds } of landed) if (!adds) land(at, bits);
    for (const { at, bits, adds } of landed) if (adds) land(at, (state.get(at) ?? 0n) | bits);
    held.push(snapshot());
  }
  return held;
}

function ones(bits) {
  let count = 0;
  for (let rest = bits; rest; rest &= rest - 1n) count += 1;
  return count;
}

/** What a unit of data is called. */
function unitName(schedule, unit) {
  const [from, to] = [schedule.from[unit], schedule.to[unit]];
  const one = (side) => typeof side === "number" && side >= 0;
  if (schedule.combining) return one(to) ? `the sum for rank ${to}` : schedule.from.length === 1 ? "the sum" : `sum ${unit}`;
  if (one(from) && one(to)) return `what ${from} sends ${to}`;
  return one(from) ? `rank ${from}'s data` : `unit ${unit}`;
}

/** Growing numbers with runs of three and more as a span: "0–12, 15". */
function spans(numbers) {
  const found = [];
  for (const n of numbers) {
    const last = found.at(-1);
    if (last && last[1] === n - 1) last[1] = n;
    else found.push([n, n]);
  }
  return found.flatMap(([a, b]) => (b - a > 1 ? `${a}–${b}` : b > a ? [a, b] : a)).join(", ");
}

/** Chunks grouped by their unit: "rank 0's data: chunks 0, 2; rank 3's data: chunk 12". */
function chunksText(schedule, sends, most = 6) {
  const units = new Map();
  for (const { chunk, kind } of sends) {
    const unit = Math.floor(chunk / schedule.chunks), name = `${unitName(schedule, unit)}${KIND_TEXT[kind] ? ` (${KIND_TEXT[kind]})` : ""}`;
    units.set(name, [...(units.get(name) ?? []), chunk]);
  }
  const parts = [...units].map(([name, chunks]) => `${name}: ${chunks.length === 1 ? "chunk" : "chunks"} ${spans(chunks)}`);
  return parts.length > most ? `${parts.slice(0, most).join("; ")}; and ${parts.length - most} more` : parts.join("; ");
}
