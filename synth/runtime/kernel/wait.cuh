// Waiting: until a counter has come so far, or a packet has, and never without end.
#pragma once
#include "tables.cuh"

DEV u64 beats(const Prog& p) {
  u64 sum = 0;
  for (int c = 0; c < (p.ncrews ? p.ncrews : 1); ++c) {
    const Crew crew = p.ncrews ? p.crews[c] : Crew{p.beat, (u64)p.nblocks};
    for (u64 b = 0; b < crew.blocks; ++b) sum += glance(crew.beat + b);
  }
  return sum;
}

// Gives up where nothing at all has moved for `timeout` ns, or another block has found that out. Only a long wait counts what
// has moved, for that reads a number of every block.
struct Patience {
  static constexpr u32 LONG = 1024;  // spins, about 1 ms
  u64 since, seen;
  u32 spins;
  DEV Patience() : since(0), seen(0), spins(0) {}
  DEV bool over(const Prog& p, int sleeps = 0) {
    if (++spins % 32 && !sleeps) return false;
    if (sleeps && spins % 8 == 0) look_up();
    if (glance(p.abort)) return true;
    if (spins >= LONG || sleeps) {
      const u64 now = clock_ns();
      if (!since || now - since > p.timeout) {
        const u64 sum = beats(p);
        if (since && sum == seen) {
          note(p.abort, 1);
          return true;
        }
        seen = sum;
        since = now;
      }
    }
    if (!sleeps) nap();
    return false;
  }
};

// Whether long waits sleep: CPU threads alone do.
#ifdef SYNTH_HOST
DEV int may_sleep(const Prog& p) { return p.sleeps; }
#else
DEV constexpr int may_sleep(const Prog&) { return 0; }
#endif

// Where block b says how far it has come. Where blocks sleep, the word after it counts those that wait for it.
DEV u64* done_of(const Prog& p, int b) { return p.done + ((i64)b << may_sleep(p)); }

// Until *at >= least. False: given up. `sleeps`: the counter is one that `post` writes, so a wait that is not short sleeps:
// where processes share cores, a thread that yields waits for its next time slice, and one that sleeps is woken.
DEV bool await(const Prog& p, const u64* at, u64 least, int sleeps = 0) {
  for (int spins = 0; !reached(acquire(at), least); relax())
    if (!sleeps || ++spins > SPINS) break;
  if (reached(acquire(at), least)) return true;
  for (Patience patience; !patience.over(p, sleeps);) {
    if (sleeps) doze((u64*)at, least);
    if (reached(acquire(at), least)) return true;
  }
  return false;
}

// Until a line is of message `flag`. False: given up.
APART bool take_late(const Prog& p, const Line* at, u32 flag, u64& data) {
  for (Patience patience; !patience.over(p);)
    if (line_load(at, flag, data)) return true;
  return false;
}
DEV bool take(const Prog& p, const Line* at, u32 flag, u64& data) {
  for (int spins = 0; spins < 64; ++spins)
    if (line_load(at, flag, data)) return true;
  return take_late(p, at, flag, data);
}
