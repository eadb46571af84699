// Data: a (+) b for all types, by plain copies or by packets that carry their own flags.
#pragma once
#include "wait.cuh"

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

template <class T> union Pack {
  Quad quad;
  T item[16 / sizeof(T)];
  DEV Pack() {}
};

// n words of d0 and, unless it is null, d1 <- a; four at once by each thread, for operands that are not aligned alike.
template <class W> DEV void copy_words(const Team& team, W* d0, W* d1, const W* a, i64 n) {
  for (i64 first = team.thread; first < n; first += (i64)team.threads * 4) {
    W x[4];
    UNROLLED for (int u = 0; u < 4; ++u) {
      const i64 i = first + (i64)u * team.threads;
      if (i < n) x[u] = a[i];
    }
    UNROLLED for (int u = 0; u < 4; ++u) {
      const i64 i = first + (i64)u * team.threads;
      if (i < n) d0[i] = x[u];
      if (i < n && d1) d1[i] = x[u];
    }
  }
}

// d0, d1 <- a (+) b; d1 and b may be null. One routine serves every op; 16 bytes at a time where all are aligned alike.
template <class T, class R, int F> DEV void move(const Team& team, T* d0, T* d1, const T* a, const T* b, i64 n) {
  constexpr int EACH = 16 / sizeof(T), UNROLL = F & LL ? 1 : !Reduces<R>::value ? 4 : sizeof(T) == 1 ? 1 : 2;
  u64 at = (u64)a & 15;
  bool alike = ((u64)d0 & 15) == at && (!d1 || ((u64)d1 & 15) == at) && (!b || ((u64)b & 15) == at);
  i64 head = alike ? (i64)((16 - at) % 16 / sizeof(T)) : n, quads = 0;
  if (head > n) head = n;
  quads = (n - head) / EACH;
  if (!Reduces<R>::value && !alike) {  // common: chunks of sizes that 16 does not divide; their elements have mostly 4 bytes or more
    const bool fours = sizeof(T) == 1 && !(((u64)a | (u64)d0 | (u64)d1 | (u64)n) & 3);
    return fours ? copy_words(team, (u32*)d0, (u32*)d1, (const u32*)a, n / 4) : copy_words(team, d0, d1, a, n);
  }
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
    UNROLLED for (int u = 0; u < UNROLL; ++u) {
      i64 i = first + (i64)u * team.threads;
      if (i < quads) {
        x[u].quad = qa[i];
        if (Reduces<R>::value && qb) y[u].quad = qb[i];
      }
    }
    UNROLLED for (int u = 0; u < UNROLL; ++u) {
      i64 i = first + (i64)u * team.threads;
      if (i < quads) {
        if (Reduces<R>::value && qb)
          UNROLLED for (int e = 0; e < EACH; ++e) x[u].item[e] = combine<R>(x[u].item[e], y[u].item[e]);
        q0[i] = x[u].quad;
        if (q1) q1[i] = x[u].quad;
      }
    }
  }
}

// ------------------------------------------------------------ many operands

DEV char* address(const Prog& p, const Term& term, int size) { return p.buffers[term.buffer] + term.at * p.elements * size; }

// Every destination <- source 0 (+) source 1 (+) .., combined in this order for each element, so that all get the same bits.
// A destination may be one of the sources: each element is read by the thread that writes it, before it does.
template <class T, class R> DEV void move_many(const Prog& p, const Team& team, const Term* src, int nsrc, const Term* dst, int ndst, i64 n) {
  constexpr int EACH = 16 / sizeof(T);
  const u64 at = (u64)address(p, src[0], sizeof(T)) & 15;
  bool alike = true;
  for (int k = 1; k < nsrc; ++k) alike &= ((u64)address(p, src[k], sizeof(T)) & 15) == at;
  for (int k = 0; k < ndst; ++k) alike &= ((u64)address(p, dst[k], sizeof(T)) & 15) == at;
  i64 head = alike ? (i64)((16 - at) % 16 / sizeof(T)) : n;
  if (head > n) head = n;
  const i64 quads = (n - head) / EACH;
  for (i64 i = team.thread; i < n - quads * EACH; i += team.threads) {  // before and after the aligned part
    const i64 e = i < head ? i : i + quads * EACH;
    T x = ((const T*)address(p, src[0], sizeof(T)))[e];
    if (Reduces<R>::value)
      for (int k = 1; k < nsrc; ++k) x = combine<R>(x, ((const T*)address(p, src[k], sizeof(T)))[e]);
    for (int k = 0; k < ndst; ++k) ((T*)address(p, dst[k], sizeof(T)))[e] = x;
  }
  for (i64 i = team.thread; i < quads; i += team.threads) {
    const i64 first = head + i * EACH;
    Pack<T> x, y;
    x.quad = *(const Quad*)((const T*)address(p, src[0], sizeof(T)) + first);
    if (Reduces<R>::value)
      for (int k = 1; k < nsrc; ++k) {
        y.quad = *(const Quad*)((const T*)address(p, src[k], sizeof(T)) + first);
        UNROLLED for (int e = 0; e < EACH; ++e) x.item[e] = combine<R>(x.item[e], y.item[e]);
      }
    for (int k = 0; k < ndst; ++k) *(Quad*)((T*)address(p, dst[k], sizeof(T)) + first) = x.quad;
  }
}

// ------------------------------------------------------------ packets

template <class T> union Eight {
  u64 word;
  T item[8 / sizeof(T)];
  DEV Eight() : word(0) {}
};

// How many lines hold n elements.
template <class T> DEV i64 lines_of(i64 n) { return (n + (i64)(8 / sizeof(T)) - 1) / (i64)(8 / sizeof(T)); }

// user, out <- in (+) src, or src where there is no `in`; user, out and src may be null. Each thread waits for the packets that
// it takes: those of message `taken`. False: it has given up.
template <class T, class R>
DEV bool packets(const Prog& p, const Team& team, T* user, Line* out, u32 sent, const Line* in, u32 taken, const T* src, i64 n) {
  constexpr int EACH = 8 / sizeof(T);
  const bool whole = !(((u64)user | (u64)src) & 7);
  for (i64 i = team.thread; i < lines_of<T>(n); i += team.threads) {
    const i64 first = i * EACH, left = n - first;
    Eight<T> x, y;
    if (src && whole && left >= EACH) y.word = *(const u64*)(src + first);
    else if (src)
      UNROLLED for (int e = 0; e < EACH; ++e)
        if (e < left) y.item[e] = src[first + e];
    if (!in) x.word = y.word;
    else if (!take(p, in + i, taken, x.word)) return false;
    if (Reduces<R>::value && in && src)
      UNROLLED for (int e = 0; e < EACH; ++e) x.item[e] = combine<R>(x.item[e], y.item[e]);
    if (user && whole && left >= EACH) *(u64*)(user + first) = x.word;
    else if (user)
      UNROLLED for (int e = 0; e < EACH; ++e)
        if (e < left) user[first + e] = x.item[e];
    if (out) line_store(out + i, x.word, sent);
  }
  return true;
}
