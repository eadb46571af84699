// A program of its own for ThreadSanitizer: reads what synth/runtime/race.py dumps, launches, writes the buffers back.
// race DUMP OUT THREADS LAUNCHES. The instantiation synth_race is appended, as in host.cpp.
#include "host.cpp"

#include <stdio.h>

extern "C" int synth_race(const Prog*, int);

static FILE* file;
static void* take(size_t bytes) {
  void* found = aligned_alloc(64, (bytes + 64) / 64 * 64);
  if (!found || fread(found, 1, bytes, file) != bytes) exit(3);
  return found;
}
static void* clear(size_t bytes) {
  void* found = aligned_alloc(64, (bytes + 64) / 64 * 64);
  if (!found) exit(3);
  __builtin_memset(found, 0, bytes);
  return found;
}

int main(int argc, char** argv) {
  if (argc != 5 || !(file = fopen(argv[1], "rb"))) return 3;
  Prog p = *(Prog*)take(sizeof(Prog));
  const i64* sizes = (i64*)take(6 * sizeof(i64));  // ops, deps, connections, bytes of one FIFO, ranks, bytes of an element
  const i64 conns = sizes[2], ranks = sizes[4];
  p.blocks = (Block*)take(p.nblocks * sizeof(Block));
  p.ops = (Op*)take(sizes[0] * sizeof(Op));
  p.deps = (Dep*)take(sizes[1] * sizeof(Dep));
  const i64* memory = (i64*)take(ranks * sizeof(i64));       // bytes of each rank
  const i64* places = (i64*)take(3 * ranks * sizeof(i64));  // where input, output and scratch begin in it
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
    p.conns[c] = Conn{(char*)clear(sizes[3]), (u64*)clear(8), (u64*)clear(8), (u64*)clear(8), 0, 0};
  p.done = (u64*)clear(p.nblocks * 8);
  p.run = (u64*)clear(p.nblocks * 8);
  p.beat = (u64*)clear(p.nblocks * 8);
  p.abort = (u64*)clear(8);
  p.status = (Status*)clear(p.nblocks * sizeof(Status));
  for (int launch = 0; launch < atoi(argv[4]); ++launch) {
    if (synth_race(&p, atoi(argv[3]))) return 3;
    if (*p.abort) {
      fprintf(stderr, "stuck\n");
      return 4;
    }
  }
  if (!(file = fopen(argv[2], "wb"))) return 3;
  for (i64 r = 0; r < ranks; ++r) fwrite(all[r], 1, memory[r], file);
  return fclose(file) ? 3 : 0;
}
