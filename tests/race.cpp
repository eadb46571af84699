// A separate executable for ThreadSanitizer: reads the dump of thread_sanitizer.py, launches, writes the
// buffers back as the first launch left them. race DUMP OUT THREADS LAUNCHES, for the instantiation with SYNTH_FEATURE. Ranks
// that are launches of their own do not wait for each other's launches to end.
//
// Each launch has data of its own: launch n begins with the inputs times 2 n + 1 and with poisoned outputs. Copies and sums
// modulo 2^32 then leave the outputs of the first launch times 2 n + 1, with which those of launch n are compared.
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

// The caller's memory of a rank: first input and first output element, and how many.
struct Data {
  u32 *input, *output;
  i64 inputs, outputs;
  u32 *given, *left;  // the inputs of the first launch, the outputs that it left
};

static void provide(const Data& data, u32 factor) {
  for (i64 i = 0; i < data.outputs; ++i) data.output[i] = 0xa5a5a5a5;
  for (i64 i = 0; i < data.inputs; ++i) data.input[i] = data.given[i] * factor;
}

// True where a launch has left what it should.
static bool compare(const Data& data, u32 factor) {
  if (factor == 1) __builtin_memcpy(data.left, data.output, data.outputs * sizeof(u32));
  for (i64 i = 0; i < data.outputs; ++i)
    if (data.output[i] != data.left[i] * factor) return false;
  return true;
}

// The launches of some blocks, one after the other, for the ranks from `data` on.
struct Runner {
  pthread_t id;
  Prog prog;
  int threads, launches, failed;
  i64 clock_bytes;
  const char* image;
  Data* data;
  i64 ranks;
  int wrong;  // the first launch that left other outputs, or -1
};

static void* run(void* argument) {
  Runner& self = *(Runner*)argument;
  for (int n = 0; n < self.launches && !glance(self.prog.abort); ++n) {
    if (self.clock_bytes) {
      __builtin_memcpy((void*)self.prog.clock, self.image, self.clock_bytes);
      for (u64* at = (u64*)self.prog.clock; at < (u64*)&self.prog.clock->nops; ++at) *at += (u64)self.prog.clock;
    }
    for (i64 r = 0; r < self.ranks; ++r) provide(self.data[r], 2 * n + 1);
    if (synth_race(&self.prog, self.threads)) self.failed = 1;
    for (i64 r = 0; r < self.ranks; ++r)
      if (!compare(self.data[r], 2 * n + 1) && self.wrong < 0) self.wrong = n;
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
  const i64* extent = (i64*)take(2 * ranks * sizeof(i64));  // elements of input and output of each rank
  const i64* crew = (i64*)take(4 * crews * sizeof(i64));    // of each launch: first block, number of blocks; the same of ranks
  const char* image = (char*)take(sizes[CLOCK_BYTES]);      // of the clock, with offsets for pointers
  char** buffers = (char**)clear(3 * ranks * sizeof(char*));
  char** all = (char**)clear(ranks * sizeof(char*));
  Data* data = (Data*)clear(ranks * sizeof(Data));
  for (i64 r = 0; r < ranks; ++r) {
    all[r] = (char*)take(memory[r]);
    for (int k = 0; k < 3; ++k) buffers[3 * r + k] = all[r] + places[3 * r + k];
    const i64 inputs = extent[2 * r], outputs = extent[2 * r + 1];
    data[r] = Data{(u32*)buffers[3 * r], (u32*)buffers[3 * r + 1], inputs, outputs, (u32*)clear(4 * inputs), (u32*)clear(4 * outputs)};
    __builtin_memcpy(data[r].given, data[r].input, 4 * inputs);
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
    const i64 first = crew[4 * c], count = crew[4 * c + 1];
    watched[c] = Crew{p.beat + first, (u64)count};
    runners[c] = Runner{0, p, atoi(argv[3]), atoi(argv[4]), 0, sizes[CLOCK_BYTES], image, data + crew[4 * c + 2], crew[4 * c + 3], -1};
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
    if (runners[c].wrong >= 0) fprintf(stderr, "wrong in launch %d\n", runners[c].wrong);
  }
  if (failed) return 3;
  if (*p.abort) {
    fprintf(stderr, "stuck\n");
    return 4;
  }
  if (!(file = fopen(argv[2], "wb"))) return 3;
  for (i64 r = 0; r < ranks; ++r) {
    __builtin_memcpy(data[r].output, data[r].left, 4 * data[r].outputs);
    fwrite(all[r], 1, memory[r], file);
  }
  return fclose(file) ? 3 : 0;
}
