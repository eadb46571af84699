// The interpreter of two-sided Programs, for GPUs and for CPU threads (see wrap.cuh).
//
// A thread block walks through its ops once for each slice. Messages go through FIFOs of `nslots` slots; `tail` counts
// those that were sent, `head` those that were taken, and both only grow, over all launches, so nothing is cleared
// between launches. done[b] = run << 40 | slice << 16 | op + 1: how far block b has come, where others wait for it.
// No wait is endless: where nothing at all has moved for `timeout` ns every block notes what it waits for and leaves,
// all its threads together. The tables are written by synth/runtime/arrays.py, whose records mirror these structs.
#pragma once
#include "wrap.cuh"

enum { RECEIVES = 1, SENDS = 2, REDUCES = 4, READS = 8, WRITES = 16, PUBLISHES = 32 };
enum { RUNNING, ENDED, WAITS_DATA, WAITS_CREDIT, WAITS_DEP, WRONG_GRID };

struct Block { int op0, nops, into, out; };
struct Op { int flags, src, dst, count, dep0, ndep; i64 src_at, dst_at; };  // src, dst: buffers; *_at: chunks
struct Dep { int block, op; };
struct Conn { char* fifo; u64 *tail, *head; u64 sent, taken; };
struct Status { int kind, op, slice, part, what, padding; };
struct Crew { const u64* beat; u64 blocks; };  // one of the launches that carry a program out together
struct Prog {
  const Block* blocks;
  const Op* ops;
  const Dep* deps;
  Conn* conns;
  char* const* buffers;
  u64 *done, *run, *beat, *abort;
  Status* status;
  const Crew* crews;
  i64 elements, step;  // of a chunk, of a slice of it
  u64 timeout;
  int nblocks, slices, part, nslots, slot_chunks, ncrews;  // nblocks: of this launch; ncrews 0: there is no other
};

// ------------------------------------------------------------ a (+) b

struct Copy {
  template <class T> DEV static T of(T a, T) { return a; }
};
template <class T> struct Wide { typedef u32 type; };  // integers wrap: computed without sign
template <> struct Wide<u64> { typedef u64 type; };
template <> struct Wide<i64> { typedef u64 type; };
template <> struct Wide<float> { typedef float type; };
template <> struct Wide<double> { typedef double type; };

struct Sum {
  template <class T> DEV static T of(T a, T b) { return (T)((typename Wide<T>::type)a + (typename Wide<T>::type)b); }
};
struct Prod {
  template <class T> DEV static T of(T a, T b) { return (T)((typename Wide<T>::type)a * (typename Wide<T>::type)b); }
};
struct Min {  // not a number wins, as in NumPy
  template <class T> DEV static T of(T a, T b) { return a < b || a != a ? a : b; }
};
struct Max {
  template <class T> DEV static T of(T a, T b) { return a > b || a != a ? a : b; }
};

template <class R, class T> DEV T combine(T a, T b) { return R::of(a, b); }
template <class R> DEV f16 combine(f16 a, f16 b) {
  f16 c;
  narrow(R::of(widen(a), widen(b)), c);
  return c;
}
template <class R> DEV bf16 combine(bf16 a, bf16 b) {
  bf16 c;
  narrow(R::of(widen(a), widen(b)), c);
  return c;
}
template <class R> struct Reduces { static constexpr bool value = true; };
template <> struct Reduces<Copy> { static constexpr bool value = false; };

// ------------------------------------------------------------ data

template <class T> union Pack {
  Quad quad;
  T item[16 / sizeof(T)];
  DEV Pack() {}
};

// d0, d1 <- a (+) b; d1 and b may be null. One routine serves every op; 16 bytes at a time where all are aligned alike.
template <class T, class R> DEV void move(const Team& team, T* d0, T* d1, const T* a, const T* b, i64 n) {
  constexpr int EACH = 16 / sizeof(T), UNROLL = !Reduces<R>::value ? 4 : sizeof(T) == 1 ? 1 : 2;
  u64 at = (u64)a & 15;
  bool alike = ((u64)d0 & 15) == at && (!d1 || ((u64)d1 & 15) == at) && (!b || ((u64)b & 15) == at);
  i64 head = alike ? (i64)((16 - at) % 16 / sizeof(T)) : n, quads = 0;
  if (head > n) head = n;
  quads = (n - head) / EACH;
  for (i64 i = team.thread; i < n - quads * EACH; i += team.threads) {  // before and after the aligned part
    i64 k = i < head ? i : i + quads * EACH;
    T value = a[k];
    if (Reduces<R>::value && b) value = combine<R>(value, b[k]);
    d0[k] = value;
    if (d1) d1[k] = value;
  }
  const Quad *qa = (const Quad*)(a + head), *qb = b ? (const Quad*)(b + head) : nullptr;
  Quad *q0 = (Quad*)(d0 + head), *q1 = d1 ? (Quad*)(d1 + head) : nullptr;
  for (i64 first = team.thread; first < quads; first += (i64)team.threads * UNROLL) {
    Pack<T> x[UNROLL], y[UNROLL];
#ifndef SYNTH_HOST
#pragma unroll
#endif
    for (int u = 0; u < UNROLL; ++u) {
      i64 i = first + (i64)u * team.threads;
      if (i < quads) {
        x[u].quad = qa[i];
        if (Reduces<R>::value && qb) y[u].quad = qb[i];
      }
    }
#ifndef SYNTH_HOST
#pragma unroll
#endif
    for (int u = 0; u < UNROLL; ++u) {
      i64 i = first + (i64)u * team.threads;
      if (i < quads) {
        if (Reduces<R>::value && qb)
#ifndef SYNTH_HOST
#pragma unroll
#endif
          for (int e = 0; e < EACH; ++e) x[u].item[e] = combine<R>(x[u].item[e], y[u].item[e]);
        q0[i] = x[u].quad;
        if (q1) q1[i] = x[u].quad;
      }
    }
  }
}

// ------------------------------------------------------------ waiting

DEV u64 beats(const Prog& p) {
  u64 sum = 0;
  for (int c = 0; c < (p.ncrews ? p.ncrews : 1); ++c) {
    const Crew crew = p.ncrews ? p.crews[c] : Crew{p.beat, (u64)p.nblocks};
    for (u64 b = 0; b < crew.blocks; ++b) sum += glance(crew.beat + b);
  }
  return sum;
}

// Until *at >= least. False: nothing at all has moved for `timeout` ns, or another block found that out.
DEV bool await(const Prog& p, const u64* at, u64 least) {
  if (acquire(at) >= least) return true;
  u64 since = clock_ns(), seen = beats(p);
  for (u32 spins = 1;; ++spins) {
    if (acquire(at) >= least) return true;
    if (spins % 32) continue;
    if (glance(p.abort)) return false;
    u64 now = clock_ns();
    if (now - since > p.timeout) {
      u64 sum = beats(p);
      if (sum == seen) {
        note(p.abort, 1);
        return false;
      }
      seen = sum;
      since = now;
    }
    nap();
  }
}

// What one op, or one part of it, waits for; by the first thread of its block. 0, or why it may not begin.
APART int blocked(const Prog& p, const Block& block, const Op& op, u64 epoch, int part, u64 taken, u64 sent, int& what) {
  if (part == 0)
    for (int d = op.dep0; d < op.dep0 + op.ndep; ++d) {
      what = d;
      if (!await(p, p.done + p.deps[d].block, epoch + p.deps[d].op + 1)) return WAITS_DEP;
    }
  what = block.into;
  if (op.flags & RECEIVES && !await(p, p.conns[block.into].tail, taken + 1)) return WAITS_DATA;
  what = block.out;
  if (op.flags & SENDS && sent >= (u64)p.nslots && !await(p, p.conns[block.out].head, sent + 1 - p.nslots)) return WAITS_CREDIT;
  return 0;
}

// ------------------------------------------------------------ a thread block

template <class T, class R> DEV void interpret(const Prog& p, const Team& team) {
  const int me = team.block;
  const Block block = p.blocks[me];
  const u64 run = p.run[me];
  const i64 slot = (i64)p.slot_chunks * p.step;
  u64 sent = block.out < 0 ? 0 : p.conns[block.out].sent, taken = block.into < 0 ? 0 : p.conns[block.into].taken, beat = p.beat[me];
  for (int slice = 0; slice < p.slices; ++slice) {
    const i64 low = slice * p.step, n = p.elements - low < p.step ? p.elements - low : p.step;
    const u64 epoch = run << 40 | (u64)slice << 16;
    for (int o = 0; o < block.nops; ++o) {
      const Op& op = p.ops[block.op0 + o];
      const int flags = op.flags, size = flags & (RECEIVES | SENDS) ? p.part : op.count;
      for (int first = 0, part = 0; first < op.count; first += size, ++part) {
        if (team.thread == 0) {
          int what = 0, why = blocked(p, block, op, epoch, part, taken, sent, what);
          if (why) p.status[me] = Status{why, o, slice, part, what, 0};
          *team.stop = why;
        }
        block_sync(team);
        if (*team.stop) return;
        i64 chunks = op.count - first < size ? op.count - first : size, each = n;
        T* in = flags & RECEIVES ? (T*)p.conns[block.into].fifo + (i64)(taken % p.nslots) * slot : nullptr;
        T* out = flags & SENDS ? (T*)p.conns[block.out].fifo + (i64)(sent % p.nslots) * slot : nullptr;
        T* src = flags & READS ? (T*)p.buffers[op.src] + (op.src_at + first) * p.elements + low : nullptr;
        T* dst = flags & WRITES ? (T*)p.buffers[op.dst] + (op.dst_at + first) * p.elements + low : nullptr;
        const T* a = in ? in : flags & REDUCES ? dst : src;
        const T* b = flags & REDUCES ? src : nullptr;
        if (p.step == p.elements) each *= chunks, chunks = 1;  // the chunks lie one after the other everywhere
        if (a && (b || out || dst != a))
          for (i64 c = 0; c < chunks; ++c) {
            // where the chunks of each operand lie: `elements` apart in buffers, `step` apart in slots
            i64 user = c * p.elements, fifo = c * p.step;
            T *to_user = dst ? dst + user : nullptr, *to_slot = out ? out + fifo : nullptr;
            move<T, R>(team, to_user ? to_user : to_slot, to_user ? to_slot : nullptr, a + (in ? fifo : user), b ? b + user : nullptr, each);
          }
        block_sync(team);
        if (flags & RECEIVES) ++taken;
        if (flags & SENDS) ++sent;
        ++beat;
        if (team.thread == 0) {
          if (flags & RECEIVES) release(p.conns[block.into].head, taken);
          if (flags & SENDS) release(p.conns[block.out].tail, sent);
          if (flags & PUBLISHES && first + size >= op.count) release(p.done + me, epoch + o + 1);
          note(p.beat + me, beat);
        }
      }
    }
  }
  block_sync(team);
  if (team.thread == 0) {
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
#define SYNTH_KERNEL(name, T, R)                                                                             \
  extern "C" __global__ void __launch_bounds__(256, 2) synth_##name(const Prog* p) {                         \
    __shared__ int stop;                                                                                     \
    Team team{(int)blockIdx.x, (int)threadIdx.x, (int)blockDim.x, &stop};                                    \
    if ((int)gridDim.x != p->nblocks) {                                                                      \
      if (blockIdx.x == 0 && threadIdx.x == 0) p->status[0].kind = WRONG_GRID;                               \
      return;                                                                                                \
    }                                                                                                        \
    interpret<T, R>(*p, team);                                                                               \
  }
#define SYNTH_DIVIDE(name, T)                                                                                \
  extern "C" __global__ void __launch_bounds__(256) synth_##name(T* values, i64 n, u64 count) {              \
    divide<T>(values, n, count, blockIdx.x * (i64)blockDim.x + threadIdx.x, gridDim.x * (i64)blockDim.x);    \
  }
#endif
