// The interpreter of one-sided Programs: ops reach the memory of other ranks, and signals order them.
//
// All threads of a block meet after every op, so the ops of a block follow one another; a signal releases all that its block
// has done, and the block that takes it acquires that. Signals and waits of a port are counted, and the counts only grow, over
// all launches. One block signals on a port; several may wait. A put has ended when its op has, so a flush has nothing to wait for. Switches are emulated: a fetched sum
// (glres) reads every member's memory in the order of the sources, a multicast (gstore, and the stores of glres) writes every
// member's. Packets: a flag for each chunk says that this launch has written it.
#pragma once
#include "move.cuh"

// What an op waits for; by the first thread of its block. 0, or why it may not begin.
APART int held(const Prog& p, const Act& act, u64 run, int& what) {
  for (what = act.dep0; what < act.dep0 + act.ndep; ++what)
    if (!await(p, p.done + p.deps[what].block, (run << 40) + p.deps[what].op + 1)) return WAITS_DEP;
  for (int s = act.src0; s < act.src0 + act.nsrc; ++s)
    for (int c = 0; p.terms[s].flag >= 0 && c < act.count; ++c) {
      what = s;
      if (!await(p, p.conns[p.terms[s].flag + c].tail, run + 1)) return WAITS_PACKETS;
    }
  if (act.kind == AWAITS)
    for (what = act.port0; what < act.port0 + act.nports; ++what) {
      Conn& port = p.conns[p.terms[what].flag];
      const u64 turn = bump(&port.taken);
      if (!await(p, port.tail, turn + 1)) return WAITS_SIGNAL;
    }
  if (act.kind == MEETS) {
    what = act.port0;
    const u64 blocks = (u64)p.terms[what].at;
    u64* met = p.conns[p.terms[what].flag].tail;
    const u64 round = bump(met) / blocks;
    if (!await(p, met, (round + 1) * blocks)) return WAITS_BARRIER;
  }
  return 0;
}

// What a move of at most two sources to at most two destinations reads and writes; no `to` for the other ops.
template <class T> struct Ends { const T *a, *b; T *to, *also; };
template <class T> DEV Ends<T> ends_of(const Prog& p, const Act& act) {
  if (act.kind != MOVES || act.pairs || act.nsrc > 2 || act.ndst > 2) return Ends<T>{nullptr, nullptr, nullptr, nullptr};
  const Term *src = p.terms + act.src0, *dst = p.terms + act.dst0;
  return Ends<T>{
      (const T*)address(p, src[0], sizeof(T)), act.nsrc > 1 ? (const T*)address(p, src[1], sizeof(T)) : nullptr,
      (T*)address(p, dst[0], sizeof(T)), act.ndst > 1 ? (T*)address(p, dst[1], sizeof(T)) : nullptr};
}

template <class T, class R> DEV void transfer(const Prog& p, const Team& team, const Act& act, const Ends<T>& ends) {
  const i64 n = act.count * p.elements;
  const Term *src = p.terms + act.src0, *dst = p.terms + act.dst0;
  if (ends.to) move<T, R, PORTS>(team, ends.to, ends.also, ends.a, ends.b, n);
  else if (act.pairs)
    for (int k = 0; k < act.ndst; ++k) {
      if (k) block_sync(team);
      move<T, R, PORTS>(team, (T*)address(p, dst[k], sizeof(T)), nullptr, (const T*)address(p, src[k], sizeof(T)), nullptr, n);
    }
  else move_many<T, R>(p, team, src, act.nsrc, dst, act.ndst, n);
}

template <class T, class R> DEV void interpret_ports(const Prog& p, const Team& team) {
  const int me = team.block;
  const Block block = p.blocks[me];
  const u64 run = p.run[me];
  const bool leads = team.thread == 0;
  u64 beat = p.beat[me];
  for (int o = 0; o < block.nops; ++o) {
    const Act act = p.acts[block.op0 + o];  // read before the wait: an acquire empties the cache that such tables lie in
    const Ends<T> ends = ends_of<T>(p, act);
    int why = 0;
    if (leads) {
      int what = 0;
      why = held(p, p.acts[block.op0 + o], run, what);  // of the table: a reference to `act` would put it on the stack
      if (why) p.status[me] = Status{why, o, 0, 0, what, 0};
    }
    if (block_any(team, why)) return;
    if (act.kind == MOVES) {
      transfer<T, R>(p, team, act, ends);
      block_sync(team);
    }
    ++beat;
    if (leads) {
      for (int d = act.dst0; d < act.dst0 + act.ndst; ++d)
        for (int c = 0; p.terms[d].flag >= 0 && c < act.count; ++c) release(p.conns[p.terms[d].flag + c].tail, run + 1);
      if (act.kind == SIGNALS)
        for (int k = act.port0; k < act.port0 + act.nports; ++k) {
          Conn& port = p.conns[p.terms[k].flag];
          release(port.tail, ++port.sent);
        }
      if (act.flags & PUBLISHES) release(p.done + me, (run << 40) + o + 1);
      note(p.beat + me, beat);
    }
  }
  block_sync(team);
  if (leads) {
    p.run[me] = run + 1;
    p.status[me] = Status{ENDED, 0, 0, 0, 0, 0};
  }
}
