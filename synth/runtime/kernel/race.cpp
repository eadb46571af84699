// A separate executable for ThreadSanitizer: reads the dump of synth/runtime/host/thread_sanitizer.py, launches, writes the
// buffers back. race DUMP OUT THREADS LAUNCHES, for the instantiation with SYNTH_FEATURE. Ranks that are launches of their own
// do not wait for each other's launches to end.
#include "host.cpp"

#include <stdio.h>

SYNTH_KERNEL(race, int, Sum, SYNTH_FEATURE)

enum { OPS, ACTS, TERMS, DEPS, CONNS, FIFO, RANKS, CLOCK_BYTES, CREWS, SIZES };

static FILE* file;
static void* clear(size_t bytes) {
  void* found = aligned_alloc(64, (bytes + 64) / 64 * 64);
  if (!found) exit(3);
  __builtin_memset(found, 0, bytes);
  return found;
}
static void* take(size_t bytes) {
  void* found = clear(bytes);
  if (fread(found, 1, bytes, file) != bytes) exit(3);
  return found;
}

// The launches of some blocks, one after the other.
struct Runner {
  pthread_t id;
  Prog prog;
  int threads, launches, failed;
  i64 clock_bytes;
  const char* image;
};

static void* run(void* argument) {
  Runner& self = *(Runner*)argument;
  for (int n = 0; n < self.launches && !glance(self.prog.abort); ++n) {
    if (self.clock_bytes) {
      __builtin_memcpy((void*)self.prog.clock, self.image, self.clock_bytes);
      for (u64* at = (u64*)self.prog.clock; at < (u64*)&self.prog.clock->stretch; ++at) *at += (u64)self.prog.clock;
    }
    if (synth_race(&self.prog, self.threads)) self.failed = 1;
  }
  return nullptr;
}

int main(int argc, char** argv) {
  if (argc != 5 || !(file = fopen(argv[1], "rb"))) return 3;
  Prog p = *(Prog*)take(sizeof(Prog));
  const i64* sizes = (i64*)take(SIZES * sizeof(i64));
  const i64 conns = sizes[CONNS], ranks = sizes[RANKS], crews = sizes[CREWS];
  p.blocks = (Block*)take(p.nblocks * sizeof(Block));
  p.ops = (Op*)take(sizes[OPS] * sizeof(Op));
  p.acts = (Act*)take(sizes[ACTS] * sizeof(Act));
  p.terms = (Term*)take(sizes[TERMS] * sizeof(Term));
  p.deps = (Dep*)take(sizes[DEPS] * sizeof(Dep));
  const i64* memory = (i64*)take(ranks * sizeof(i64));      // bytes of each rank
  const i64* places = (i64*)take(3 * ranks * sizeof(i64));  // where input, output and scratch begin in it
  const i64* crew = (i64*)take(2 * crews * sizeof(i64));    // first block and number of blocks of each launch
  const char* image = (char*)take(sizes[CLOCK_BYTES]);      // of the clock, with offsets for pointers
  char** buffers = (char**)clear(3 * ranks * sizeof(char*));
  char** all = (char**)clear(ranks * sizeof(char*));
  for (i64 r = 0; r < ranks; ++r) {
    all[r] = (char*)take(memory[r]);
    for (int k = 0; k < 3; ++k) buffers[3 * r + k] = all[r] + places[3 * r + k];
  }
  fclose(file);
  p.buffers = buffers;
  p.conns = (Conn*)clear(conns * sizeof(Conn));
  for (i64 c = 0; c < conns; ++c)
    p.conns[c] = Conn{(char*)clear(sizes[FIFO]), (u64*)clear(8), (u64*)clear(8), (u64*)clear(8), 0, 0};
  p.done = (u64*)clear(p.nblocks * 8);
  p.run = (u64*)clear(p.nblocks * 8);
  p.beat = (u64*)clear(p.nblocks * 8);
  p.abort = (u64*)clear(8);
  p.status = (Status*)clear(p.nblocks * sizeof(Status));
  p.clock = (Clock*)clear(sizes[CLOCK_BYTES]);
  Crew* watched = (Crew*)clear(crews * sizeof(Crew));
  Runner* runners = (Runner*)clear(crews * sizeof(Runner));
  for (i64 c = 0; c < crews; ++c) {
    const i64 first = crew[2 * c], count = crew[2 * c + 1];
    watched[c] = Crew{p.beat + first, (u64)count};
    runners[c] = Runner{0, p, atoi(argv[3]), atoi(argv[4]), 0, sizes[CLOCK_BYTES], image};
    Prog& own = runners[c].prog;
    own.blocks += first, own.done += first, own.run += first, own.beat += first, own.status += first;
    own.nblocks = (int)count, own.ncrews = crews > 1 ? (int)crews : 0, own.crews = watched;
  }
  for (i64 c = 0; c < crews; ++c)
    if (pthread_create(&runners[c].id, nullptr, run, runners + c)) return 3;
  int failed = 0;
  for (i64 c = 0; c < crews; ++c) {
    pthread_join(runners[c].id, nullptr);
    failed |= runners[c].failed;
  }
  if (failed) return 3;
  if (*p.abort) {
    fprintf(stderr, "stuck\n");
    return 4;
  }
  if (!(file = fopen(argv[2], "wb"))) return 3;
  for (i64 r = 0; r < ranks; ++r) fwrite(all[r], 1, memory[r], file);
  return fclose(file) ? 3 : 0;
}
