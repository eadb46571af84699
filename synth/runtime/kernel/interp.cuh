// The interpreter of Programs, for GPUs and for CPU threads (wrap.cuh: what differs; tables.cuh: what it is given).
//
// A thread block walks through its ops once for each slice. Messages go through FIFOs of `nslots` slots; `tail` counts
// those that were sent, `head` those that were taken, and both only grow, over all launches, so nothing is cleared
// between launches. No wait is endless: where nothing at all has moved for `timeout` ns every block notes what it waits
// for and leaves, all its threads together. F is what the instantiation can do beyond that:
//   LL      a message is lines of packets flagged with its number: data and flag come at once, and no counter says so. The
//           number is that of all launches, and what a launch writes the next writes too, so no line is ever mistaken.
//   DIRECT  an op that PUTS writes the receiver's buffer, once the receiver has begun this launch; the message still counts.
//   CLOCK   logical time goes with the messages (clock.cuh).
//   PORTS   the program is one-sided: another interpreter (ports.cuh).
#pragma once
#include "clock.cuh"
#include "move.cuh"
#include "ports.cuh"

// What one op, or one part of it, waits for; by the first thread of its block. 0, or why it may not begin. `room`: of what
// the receiver has last said. `tail`, `head`: of the connections that the block takes from and sends to. Packets wait for
// themselves.
template <int F>
APART int blocked(const Prog& p, const Block& block, const Op& op, u64 epoch, int part, u64 taken, u64 sent, const u64* tail,
                  const u64* head, const Line* in, u64& room, int& what) {
  if (part == 0)
    for (int d = op.dep0; d < op.dep0 + op.ndep; ++d) {
      what = d;
      if (!await(p, done_of(p, p.deps[d].block), epoch + p.deps[d].op + 1, may_sleep(p))) return WAITS_DEP;
    }
  what = block.into;
  if ((!(F & LL) || F & CLOCK) && op.flags & RECEIVES && !await(p, tail, taken + 1, may_sleep(p))) return WAITS_DATA;
  what = block.out;
  if (op.flags & SENDS && sent >= (u64)p.nslots + room) {
    if (!await(p, head, sent + 1 - p.nslots, may_sleep(p))) {
      u64 data;
      if (!(F & LL) || !(op.flags & RECEIVES) || line_load(in, (u32)(taken + 1), data)) return WAITS_CREDIT;
      what = block.into;
      return WAITS_DATA;
    }
    room = acquire(head);
  }
  return 0;
}

// ------------------------------------------------------------ a thread block

template <class T, class R, int F> DEV void interpret(const Prog& p, const Team& team) {
  if constexpr (F & PORTS) return interpret_ports<T, R>(p, team);
  const int me = team.block;
  const Block block = p.blocks[me];
  const u64 run = p.run[me];
  const bool leads = team.thread == 0;
  const i64 least = F & LL ? p.slot_chunks * lines_of<T>(p.step) * (i64)sizeof(Line) : p.slot_chunks * p.step * (i64)sizeof(T);
  const i64 slot = p.stride ? p.stride : least;
  // the first connection stands for one that the block does not have: nothing uses it then
  const Conn *into = p.conns + (block.into < 0 ? 0 : block.into), *onto = p.conns + (block.out < 0 ? 0 : block.out);
  u64 *const in_tail = into->tail, *const in_head = into->head, *const out_tail = onto->tail, *const out_head = onto->head;
  u64 sent = block.out < 0 ? 0 : onto->sent, taken = block.into < 0 ? 0 : into->taken, beat = p.beat[me];
  u64 room = 0;
  bool entered = false;
  Hand hand{0, 0, 0, 0};
  if (F & DIRECT && leads && block.into >= 0) release(into->entry, run + 1);
  if (F & CLOCK && leads) hand = take_hand(p, me, sent);
  for (int slice = 0; slice < p.slices; ++slice) {
    const i64 low = slice * p.step, n = p.elements - low < p.step ? p.elements - low : p.step;
    const u64 epoch = run << 40 | (u64)slice << 16;
    for (int o = 0; o < block.nops; ++o) {
      const Op& op = p.ops[block.op0 + o];
      const int flags = op.flags, size = flags & (RECEIVES | SENDS) ? p.part : op.count;
      const bool puts = F & DIRECT && flags & PUTS, landed = F & DIRECT && flags & LANDED;
      for (int first = 0, part = 0; first < op.count; first += size, ++part) {
        i64 chunks = op.count - first < size ? op.count - first : size, each = n;
        char* in = flags & RECEIVES ? p.conns[block.into].fifo + (i64)(taken % p.nslots) * slot : nullptr;
        // where the data lie, read before the wait: an acquire empties the cache that such tables lie in
        char* out = flags & SENDS && !puts ? p.conns[block.out].fifo + (i64)(sent % p.nslots) * slot : nullptr;
        T* src = flags & READS ? (T*)p.buffers[op.src] + (op.src_at + first) * p.elements + low : nullptr;
        T* dst = flags & WRITES ? (T*)p.buffers[op.dst] + (op.dst_at + first) * p.elements + low : nullptr;
        int why = 0;
        if (leads) {
          int what = 0;
          why = blocked<F>(p, block, op, epoch, part, taken, sent, in_tail, out_head, (const Line*)in, room, what);
          if (F & DIRECT && !why && puts && !entered) {
            entered = await(p, p.conns[block.out].entry, run + 1);
            why = entered ? 0 : WAITS_ENTRY;
          }
          if (F & CLOCK && !why) why = keep_time(p, hand, block, op, slice, part, taken, sent, chunks * n);
          if (why) p.status[me] = Status{why, o, slice, part, what, 0};
        }
        if (block_any(team, why)) return;
        if (p.step == p.elements) each *= chunks, chunks = 1;  // the chunks lie one after the other everywhere
        bool gone = false;
        if (F & LL && flags & (RECEIVES | SENDS)) {
          for (i64 c = 0; c < chunks && !gone; ++c) {
            const i64 user = c * p.elements, line = c * lines_of<T>(p.step);
            gone = !packets<T, R>(
                p, team, dst ? dst + user : nullptr, out ? (Line*)out + line : nullptr, (u32)(sent + 1), in ? (Line*)in + line : nullptr,
                (u32)(taken + 1), src ? src + user : nullptr, each);
          }
          if (block_any(team, gone)) {
            if (leads) p.status[me] = Status{WAITS_DATA, o, slice, part, block.into, 0};
            return;
          }
        } else {
          const T* a = landed ? dst : in ? (T*)in : flags & REDUCES ? dst : src;
          const T* b = flags & REDUCES ? src : nullptr;
          T *to = landed ? nullptr : dst, *on = puts ? (T*)p.buffers[op.put] + (op.put_at + first) * p.elements + low : (T*)out;
          if (a && (b || on || to != a) && (to || on))
            for (i64 c = 0; c < chunks; ++c) {
              // where the chunks of each operand lie: `elements` apart in buffers, `step` apart in slots
              const i64 user = c * p.elements, fifo = c * p.step;
              T *d0 = to ? to + user : nullptr, *d1 = on ? on + (puts ? user : fifo) : nullptr;
              move<T, R, F>(team, d0 ? d0 : d1, d0 ? d1 : nullptr, a + (in && !landed ? fifo : user), b ? b + user : nullptr, each);
            }
          block_sync(team);
        }
        const bool last = first + size >= op.count;
        if (F & CLOCK && leads) tell_time(p, hand, block, last ? flags : flags & ~PUBLISHES, block.op0 + o, slice, taken, sent);
        if (flags & RECEIVES) ++taken;
        if (flags & SENDS) ++sent;
        ++beat;
        if (leads) {
          if (flags & RECEIVES) post(in_head, taken, may_sleep(p));
          if ((!(F & LL) || F & CLOCK) && flags & SENDS) post(out_tail, sent, may_sleep(p));
          if (flags & PUBLISHES && last) post(done_of(p, me), epoch + o + 1, may_sleep(p));
          note(p.beat + me, beat);
        }
      }
    }
  }
  block_sync(team);
  if (leads) {
    if (F & CLOCK) {
      p.clock->clocks[me] = hand.now;
      p.clock->walls[me] = clock_ns() - hand.start;
    }
    if (block.out >= 0) p.conns[block.out].sent = sent;
    if (block.into >= 0) p.conns[block.into].taken = taken;
    p.run[me] = run + 1;
    p.status[me] = Status{ENDED, 0, 0, 0, 0, 0};
  }
}

// ------------------------------------------------------------ avg ends with one division, integers toward zero

template <class T> DEV T divided(T total, u64 count) {
  return (T)(total < (T)0 ? -(i64)((0 - (u64)total) / count) : (i64)((u64)total / count));
}
DEV float divided(float total, u64 count) { return total / (float)count; }
DEV double divided(double total, u64 count) { return total / (double)count; }
DEV f16 divided(f16 total, u64 count) {
  f16 found;
  narrow(widen(total) / (float)count, found);
  return found;
}
DEV bf16 divided(bf16 total, u64 count) {
  bf16 found;
  narrow(widen(total) / (float)count, found);
  return found;
}
template <class T> DEV void divide(T* values, i64 n, u64 count, i64 thread, i64 threads) {
  for (i64 i = thread; i < n; i += threads) values[i] = divided(values[i], count);
}

#ifndef SYNTH_HOST
// A grid of another size than the program's would wait for blocks that are not there: every block leaves at once.
#define SYNTH_KERNEL(name, T, R, F)                                                                          \
  extern "C" __global__ void __launch_bounds__(256, 2) synth_##name(const Prog* p) {                         \
    const Team team{(int)blockIdx.x, (int)threadIdx.x, (int)blockDim.x};                                     \
    if ((int)gridDim.x != p->nblocks) {                                                                      \
      if (blockIdx.x == 0 && threadIdx.x == 0) p->status[0].kind = WRONG_GRID;                               \
      return;                                                                                                \
    }                                                                                                        \
    interpret<T, R, F>(*p, team);                                                                            \
  }
#define SYNTH_DIVIDE(name, T)                                                                                \
  extern "C" __global__ void __launch_bounds__(256) synth_##name(T* values, i64 n, u64 count) {              \
    divide<T>(values, n, count, blockIdx.x * (i64)blockDim.x + threadIdx.x, gridDim.x * (i64)blockDim.x);    \
  }
#endif
