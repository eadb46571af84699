// What differs between a GPU and CPU threads: about ten small functions, and the types of elements.
// SYNTH_HOST: any C++ compiler, a POSIX thread for each GPU thread. Otherwise CUDA, no header needed.
#pragma once

typedef unsigned long long u64;
typedef long long i64;
typedef unsigned int u32;

// Whether a counter has come to `least`. Counters wrap: `done` holds launches in its upper 24 bits.
#ifdef SYNTH_HOST
inline bool reached(u64 found, u64 least) { return (i64)(found - least) >= 0; }
#else
__device__ __forceinline__ bool reached(u64 found, u64 least) { return (i64)(found - least) >= 0; }
#endif

struct f16 { unsigned short bits; };
struct bf16 { unsigned short bits; };
struct alignas(16) Quad { u32 w[4]; };
struct alignas(16) Line { u64 packet[2]; };  // of LL: each is flag << 32 | 4 bytes of data

#ifdef SYNTH_HOST
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#define DEV inline
#define APART inline  // a function of its own on a GPU: its registers are free elsewhere
#define UNROLLED

// Where the threads of one block meet. any[k]: whether one said so, in the meetings of an even and of an odd number.
struct Meeting {
  pthread_mutex_t lock;
  pthread_cond_t all_here;
  int missing, threads;
  u64 met;
  bool any[2];
};

// One thread of a block.
struct Team {
  int block, thread, threads;
  Meeting* meeting;
};

DEV u64 acquire(const u64* at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
DEV void release(u64* at, u64 value) { __atomic_store_n(at, value, __ATOMIC_RELEASE); }
// Add 1 in one step and return the value before: releases what came before, acquires what others released there.
DEV u64 bump(u64* at) { return __atomic_fetch_add(at, 1, __ATOMIC_ACQ_REL); }
DEV u64 glance(const u64* at) { return __atomic_load_n(at, __ATOMIC_RELAXED); }
DEV void note(u64* at, u64 value) { __atomic_store_n(at, value, __ATOMIC_RELAXED); }
// The threads of a block meet: whether any of them says so.
DEV bool block_any(const Team& team, bool mine) {
  if (team.threads == 1) return mine;
  Meeting& m = *team.meeting;
  pthread_mutex_lock(&m.lock);
  const u64 met = m.met;
  bool& any = m.any[met & 1];
  any |= mine;
  if (--m.missing == 0) {
    m.missing = m.threads;
    m.any[~met & 1] = false;
    ++m.met;
    pthread_cond_broadcast(&m.all_here);
  }
  while (met == m.met) pthread_cond_wait(&m.all_here, &m.lock);
  const bool found = any;
  pthread_mutex_unlock(&m.lock);
  return found;
}
DEV void block_sync(const Team& team) { block_any(team, false); }
// Two packets, each written and read at once. False: one of them is not of this flag.
DEV void line_store(Line* at, u64 data, u32 flag) {
  __atomic_store_n(&at->packet[0], (u64)flag << 32 | (u32)data, __ATOMIC_RELAXED);
  __atomic_store_n(&at->packet[1], (u64)flag << 32 | data >> 32, __ATOMIC_RELAXED);
}
DEV bool line_load(const Line* at, u32 flag, u64& data) {
  const u64 low = __atomic_load_n(&at->packet[0], __ATOMIC_RELAXED), high = __atomic_load_n(&at->packet[1], __ATOMIC_RELAXED);
  data = high << 32 | (u32)low;
  return low >> 32 == flag && high >> 32 == flag;
}
DEV void nap() { sched_yield(); }
static constexpr int SPINS = 256;  // some 10 us, about what sleeping and waking cost
DEV void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}
// A counter that another thread or process may sleep on. The word after it has two halves: one that each wake changes, to sleep
// on, for a counter may move by a multiple of 2^32; and the number of sleepers. Both sides store before they load.
DEV void wake(u64* at) {
  u32* const halves = (u32*)(at + 1);
  if (!__atomic_load_n(halves + 1, __ATOMIC_SEQ_CST)) return;
  __atomic_fetch_add(halves, 1, __ATOMIC_SEQ_CST);
  syscall(SYS_futex, halves, FUTEX_WAKE, 1 << 30, nullptr, nullptr, 0);
}
DEV void post(u64* at, u64 value, int sleeps) {
  if (!sleeps) return release(at, value);
  __atomic_store_n(at, value, __ATOMIC_SEQ_CST);
  wake(at);
}
// Sleep until the counter moves, but not longer than 10 ms, for somebody else may give up.
DEV void doze(u64* at, u64 least) {
  u32* const halves = (u32*)(at + 1);
  __atomic_fetch_add(halves + 1, 1, __ATOMIC_SEQ_CST);
  const u32 wakes = __atomic_load_n(halves, __ATOMIC_SEQ_CST);
  const timespec most{0, 10000000};
  if (!reached(__atomic_load_n(at, __ATOMIC_SEQ_CST), least))
    syscall(SYS_futex, halves, FUTEX_WAIT, wakes, &most, nullptr, 0);
  __atomic_fetch_sub(halves + 1, 1, __ATOMIC_SEQ_CST);
}
// What a thread that waits long calls now and then; it may set the abort flag. Python handles signals in it, so Ctrl-C ends a
// wait. Null: nothing.
static thread_local void (*attend)() = nullptr;
DEV void look_up() {
  if (attend) attend();
}
DEV u64 clock_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (u64)now.tv_sec * 1000000000 + (u64)now.tv_nsec;
}
DEV u32 float_bits(float x) { u32 bits; __builtin_memcpy(&bits, &x, 4); return bits; }
DEV float bits_float(u32 bits) { float x; __builtin_memcpy(&x, &bits, 4); return x; }

// IEEE binary16 -> binary32, exact
DEV float widen(f16 h) {
  u32 sign = (u32)(h.bits & 0x8000) << 16, exponent = (h.bits >> 10) & 31, fraction = h.bits & 0x3ff;
  if (exponent == 31) return bits_float(sign | 0x7f800000 | fraction << 13);
  if (exponent) return bits_float(sign | (exponent + 112) << 23 | fraction << 13);
  float tiny = (float)fraction * (1.0f / 16777216.0f);  // a subnormal: fraction * 2^-24
  return sign ? -tiny : tiny;
}
// binary32 -> binary16, to nearest, ties to even
DEV void narrow(float x, f16& h) {
  u32 bits = float_bits(x), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
  u32 found;
  if (rest > 0x7f800000) found = 0x7e00;
  else if (rest >= 0x477ff000) found = 0x7c00;  // 65520 and more round to infinity
  else if (rest >= 0x38800000) found = (rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13;
  else {  // below 2^-14: adding 0.5 leaves the multiple of 2^-24, rounded, in the last bits
    found = float_bits(bits_float(rest) + 0.5f) - 0x3f000000;
  }
  h.bits = (unsigned short)(sign | found);
}

#else
#define DEV __device__ __forceinline__
#define APART __device__ __noinline__
#define UNROLLED _Pragma("unroll")
#ifndef SYNTH_SCOPE
#define SYNTH_SCOPE "gpu"  // "sys" where ranks live on several devices
#endif

struct Team {
  int block, thread, threads;
};

DEV u64 acquire(const u64* at) {
  u64 value;
  asm volatile("ld.acquire." SYNTH_SCOPE ".global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
  return value;
}
DEV void release(u64* at, u64 value) { asm volatile("st.release." SYNTH_SCOPE ".global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory"); }
DEV u64 bump(u64* at) {
  u64 value;
  asm volatile("atom.acq_rel." SYNTH_SCOPE ".global.add.u64 %0, [%1], 1;" : "=l"(value) : "l"(at) : "memory");
  return value;
}
DEV u64 glance(const u64* at) {
  u64 value;
  asm volatile("ld.relaxed." SYNTH_SCOPE ".global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
  return value;
}
DEV void note(u64* at, u64 value) { asm volatile("st.relaxed." SYNTH_SCOPE ".global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory"); }
DEV bool block_any(const Team&, bool mine) { return __syncthreads_or(mine); }
DEV void block_sync(const Team&) { __syncthreads(); }
DEV void line_store(Line* at, u64 data, u32 flag) {
  const u64 low = (u64)flag << 32 | (u32)data, high = (u64)flag << 32 | data >> 32;
  asm volatile("st.relaxed." SYNTH_SCOPE ".global.v2.u64 [%0], {%1, %2};" ::"l"(at), "l"(low), "l"(high) : "memory");
}
DEV bool line_load(const Line* at, u32 flag, u64& data) {
  u64 low, high;
  asm volatile("ld.relaxed." SYNTH_SCOPE ".global.v2.u64 {%0, %1}, [%2];" : "=l"(low), "=l"(high) : "l"(at) : "memory");
  data = high << 32 | (u32)low;
  return low >> 32 == flag && high >> 32 == flag;
}
DEV void nap() { __nanosleep(40); }
static constexpr int SPINS = 0;  // only CPU threads sleep
DEV void relax() {}
DEV void post(u64* at, u64 value, int) { release(at, value); }
DEV void doze(u64*, u64) {}
DEV void look_up() {}
DEV u64 clock_ns() {
  u64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
  return now;
}
DEV u32 float_bits(float x) { return __float_as_uint(x); }
DEV float bits_float(u32 bits) { return __uint_as_float(bits); }
DEV float widen(f16 h) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h.bits));
  return x;
}
DEV void narrow(float x, f16& h) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h.bits) : "f"(x)); }
#endif

DEV float widen(bf16 h) { return bits_float((u32)h.bits << 16); }
DEV void narrow(float x, bf16& h) {
  u32 bits = float_bits(x);
  if ((bits & 0x7fffffff) > 0x7f800000) h.bits = (unsigned short)((bits >> 16 & 0x8000) | 0x7fc0);
  else h.bits = (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
