// The kernel on CPU threads: a POSIX thread for each GPU thread. Instantiations are appended by synth/runtime/kernel/sources.py.
#define SYNTH_HOST
#include "interp.cuh"

#include <stdlib.h>

typedef void (*Body)(const Prog&, const Team&);

// Nobody begins before all are there: 0 wait, 1 go, 2 leave.
struct Gate {
  pthread_mutex_t lock;
  pthread_cond_t opened;
  int state;
};
struct Thread {
  pthread_t id;
  const Prog* prog;
  Body body;
  Team team;
  Gate* gate;
};

static void* enter(void* argument) {
  Thread& self = *(Thread*)argument;
  pthread_mutex_lock(&self.gate->lock);
  while (!self.gate->state) pthread_cond_wait(&self.gate->opened, &self.gate->lock);
  const int state = self.gate->state;
  pthread_mutex_unlock(&self.gate->lock);
  if (state == 1) self.body(*self.prog, self.team);
  return nullptr;
}

// One launch: 0, or 1 where the system gives no more threads or memory; nothing has run then.
static int launch(const Prog& p, int threads, Body body) {
  const int count = p.nblocks * threads;
  Thread* all = (Thread*)calloc(count + 1, sizeof(Thread));
  Meeting* meetings = (Meeting*)calloc(p.nblocks + 1, sizeof(Meeting));
  Gate gate{PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 256 << 10);
  int made = 0;
  for (int b = 0; meetings && b < p.nblocks; ++b)
    meetings[b] = Meeting{PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, threads, threads, 0, {false, false}};
  if (all && meetings)
    for (; made < count; ++made) {
      const int b = made / threads;
      all[made] = Thread{0, &p, body, Team{b, made % threads, threads, meetings + b}, &gate};
      if (pthread_create(&all[made].id, &small, enter, all + made)) break;
    }
  const int failed = made < count;
  pthread_mutex_lock(&gate.lock);
  gate.state = failed ? 2 : 1;
  pthread_cond_broadcast(&gate.opened);
  pthread_mutex_unlock(&gate.lock);
  for (int i = 0; i < made; ++i) pthread_join(all[i].id, nullptr);
  pthread_attr_destroy(&small);
  free(all);
  free(meetings);
  return failed;
}

extern "C" void synth_sizes(i64* sizes) {
  i64 found[] = {sizeof(Block), sizeof(Op),   sizeof(Dep),   sizeof(Conn),  sizeof(Status),
                 sizeof(Crew),  sizeof(Prog), sizeof(Route), sizeof(Limit), sizeof(Clock),
                 sizeof(Act),  sizeof(Term)};
  for (int i = 0; i < 12; ++i) sizes[i] = found[i];
}

#define SYNTH_KERNEL(name, T, R, F) \
  extern "C" int synth_##name(const Prog* p, int threads) { return launch(*p, threads, interpret<T, R, F>); }
#define SYNTH_DIVIDE(name, T) \
  extern "C" void synth_##name(T* values, i64 n, u64 count) { divide<T>(values, n, count, 0, 1); }
