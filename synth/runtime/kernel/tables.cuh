// The kernel's arguments, with the meaning of every field. synth/runtime/kernel/tables.py and logical_clock.py mirror these
// structs byte by byte (tests compare the sizes). Blocks, ops, dependencies and connections of the ranks of a launch have
// consecutive numbers. Buffer 3 * rank + 0, 1, 2 is a rank's input, output, scratch; offsets into buffers count chunks.
#pragma once
#include "wrap.cuh"

// What an op does. PUBLISHES: others wait for its end. PUTS: it writes the receiver's buffer instead of a slot of the FIFO.
// LANDED: what it receives has been put where it writes.
enum { RECEIVES = 1, SENDS = 2, REDUCES = 4, READS = 8, WRITES = 16, PUBLISHES = 32, PUTS = 64, LANDED = 128 };
// The end of a block, or its wait: for a dependency, a message, a credit, the receiver's entry, its turn on a link.
// Of one-sided programs: for a signal, the other blocks of a barrier, packets.
enum {
  RUNNING, ENDED, WAITS_DATA, WAITS_CREDIT, WAITS_DEP, WRONG_GRID, WAITS_ENTRY, WAITS_TURN, WAITS_SIGNAL, WAITS_BARRIER, WAITS_PACKETS
};
// What a kernel can do beyond FIFOs, for programs that need it; chosen when it is compiled. PORTS: one-sided programs.
enum { LL = 1, DIRECT = 2, CLOCK = 4, PORTS = 8 };
// What an op of a one-sided program does: nothing, move data, signal, wait for signals, meet the other blocks of a barrier.
enum { RESTS, MOVES, SIGNALS, AWAITS, MEETS };

struct Block { int op0, nops, into, out; };  // its ops; its connections, -1 where it has none
// src, dst: buffers, *_at: chunks in them. put, put_at: the receiver's buffer, where the op PUTS.
struct Op { int flags, src, dst, count, dep0, ndep; i64 src_at, dst_at, put_at; int put, padding; };
struct Dep { int block, op; };
// An op of a one-sided program. Its sources, destinations and ports are runs of `terms`. PUBLISHES and REDUCES in `flags`.
// A move combines its sources in their order and stores the result at every destination; `pairs`: source k goes to
// destination k instead.
struct Act { int kind, flags, count, pairs, dep0, ndep, src0, nsrc, dst0, ndst, port0, nports; };
// Chunks of a buffer: `at` is the first; `flag`: the connection whose `tail` says that the first has been written in this
// launch, the next ones for the next chunks; -1: no packets. Of ports: `flag` is the connection, and `at` the blocks of a
// barrier.
struct Term { int buffer, flag; i64 at; };
// A connection. fifo: `nslots` slots, each of `slot_chunks` slices of a chunk (of lines, for LL; see lines_of). tail, head:
// messages sent and taken, in the receiver's and in the sender's memory; LL has no tail. entry: launches that the receiver
// has begun, in the sender's memory. sent, taken: tail and head where the last launch left them.
// Of one-sided programs: tail counts signals, or arrivals at a barrier, or is the last launch that has written a packet; sent
// and taken count signals and waits.
struct Conn { char* fifo; u64 *tail, *head, *entry; u64 sent, taken; };
struct Status { int kind, op, slice, part, what, padding; };  // what: the dependency or the connection waited for
struct Crew { const u64* beat; u64 blocks; };  // one of the launches that run a program together

// Logical time, in ps. A transfer of b bytes takes ceil(b * num / den) on its route, as long on each limit that it shares.
struct Route { u64 free, busy, carried; i64 num, den, alpha; int cap0, ncaps, line, padding; };  // line: whose turns it takes
struct Limit { u64 served; i64 num, den; };
struct Clock {
  Route* routes;
  Limit* limits;
  const int* caps;       // limits by route, from cap0 on
  u64* turns;            // by line: transfers begun
  const int* route_of;   // by connection
  const u32* tickets;    // by message of a connection, from ticket0 on: which turn of its line it takes
  const i64* ticket0;    // by connection
  u64 *sent_at, *freed_at;  // by connection and slot: when a message arrives, when its room is given back
  u64* ends;             // by slice and op: when it ended
  u64 *clocks, *walls;   // by block: its logical time at the end; ns after the start
  u64* start;            // ns at which all began, by block 0
  i64 nops, bytes;       // of the launch, of an element
};

struct Prog {
  const Block* blocks;
  const Op* ops;
  const Dep* deps;
  Conn* conns;
  char* const* buffers;
  u64 *done, *run, *beat, *abort;  // by block: run << 40 | slice << 16 | op + 1 of the last that others wait for; launches; parts
  Status* status;
  const Crew* crews;
  const Clock* clock;  // null without
  const Act* acts;     // of one-sided programs, which have no `ops`
  const Term* terms;
  i64 elements, step;  // of a chunk, of a slice of it
  i64 stride;          // bytes from slot to slot, where calls of several sizes share the FIFOs; 0: as this call needs
  u64 timeout;         // ns
  int nblocks, slices, part, nslots, slot_chunks, ncrews;  // nblocks: of this launch; ncrews 0: there is no other
  int sleeps, padding;  // 1, CPU threads: long waits sleep, and `tail`, `head`, `done` have a word after each for the sleepers
};
