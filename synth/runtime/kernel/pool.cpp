// The kernel on sleeping CPU threads, for calls that follow one another: a thread for each block, which waits for its next
// call; block 0 runs on the caller's thread. Instantiations are appended by synth/runtime/kernel/sources.py.
#define SYNTH_HOST
#include "interp.cuh"

#include <stdlib.h>

typedef void (*Body)(const Prog&, const Team&);

// A thread that runs one block of each call. turn: the calls given to it, and behind it whether it sleeps.
struct Worker {
  alignas(128) u64 turn[2];
  pthread_t thread;
  const Prog* prog;
  Body body;
  int block;
  u64* ended;
};
struct Pool {
  alignas(128) u64 ended[2];  // blocks that have ended, of all calls; whether the caller sleeps
  u64 given;                  // blocks given to workers, of all calls
  int count;
  void (*attend)();  // of the caller's thread; see wrap.cuh
  Worker* all[256];
};

// Until *at >= least: a short spin, then sleep.
static void wait_for(u64* at, u64 least) {
  for (int spins = 0; acquire(at) < least;)
    if (++spins < SPINS) relax();
    else {
      doze(at, least);
      if (spins % 8 == 0) look_up();
    }
}

static void* work(void* argument) {
  Worker& worker = *(Worker*)argument;
  for (u64 turn = 1;; ++turn) {
    wait_for(worker.turn, turn);
    if (!worker.body) break;
    worker.body(*worker.prog, Team{worker.block, 0, 1, nullptr});
    __atomic_fetch_add(worker.ended, 1, __ATOMIC_SEQ_CST);
    wake(worker.ended);
  }
  return nullptr;
}

extern "C" Pool* synth_pool(void (*attend)()) {
  Pool* pool = (Pool*)aligned_alloc(128, (sizeof(Pool) + 127) / 128 * 128);
  if (pool) *pool = Pool{{0, 0}, 0, 0, attend, {}};
  return pool;
}

// Let the threads end; between calls.
extern "C" void synth_end(Pool* pool) {
  for (int k = 0; k < pool->count; ++k) {
    Worker* worker = pool->all[k];
    worker->body = nullptr;
    post(worker->turn, worker->turn[0] + 1, 1);
    pthread_join(worker->thread, nullptr);
    free(worker);
  }
  free(pool);
}

// One call: 0, or 1 where the system gives no more threads; nothing has run then.
static int launch(Pool* pool, const Prog& p, Body body) {
  for (; pool->count < p.nblocks - 1; ++pool->count) {
    Worker* worker = (Worker*)aligned_alloc(128, sizeof(Worker));
    if (!worker) return 1;
    *worker = Worker{{0, 0}, 0, nullptr, nullptr, 0, pool->ended};
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 256 << 10);
    const int failed = pthread_create(&worker->thread, &small, work, worker);
    pthread_attr_destroy(&small);
    if (failed) {
      free(worker);
      return 1;
    }
    pool->all[pool->count] = worker;
  }
  for (int b = 1; b < p.nblocks; ++b) {
    Worker& worker = *pool->all[b - 1];
    worker.prog = &p, worker.body = body, worker.block = b;
    post(worker.turn, worker.turn[0] + 1, 1);
  }
  attend = pool->attend;
  if (p.nblocks) body(p, Team{0, 0, 1, nullptr});
  if (p.nblocks > 1) wait_for(pool->ended, pool->given += p.nblocks - 1);
  attend = nullptr;
  return 0;
}

#define SYNTH_KERNEL(name, T, R, F) \
  extern "C" int synth_##name(Pool* pool, const Prog* p) { return launch(pool, *p, interpret<T, R, F>); }
#define SYNTH_DIVIDE(name, T) \
  extern "C" void synth_##name(T* values, i64 n, u64 count) { divide<T>(values, n, count, 0, 1); }
