// Logical time, carried along with the messages: what a block does cannot begin before what it waits for has ended, a
// transfer takes its route, and each limit that it shares, for bytes / rate, and arrives alpha later. Transfers of one line
// (routes that share limits) begin in the order of their tickets, that of the reference executor; the times are the kernel's
// own. By the first thread of a block.
#pragma once
#include "wait.cuh"

struct Hand {
  u64 now, arrival, start, sent0;
};

DEV u64 later(u64 a, u64 b) { return a > b ? a : b; }
DEV u64 lasts(i64 bytes, i64 num, i64 den) { return (u64)((bytes * num + den - 1) / den); }

// All begin at one moment: block 0 says when. Where a launch was cut short nobody waits.
DEV Hand take_hand(const Prog& p, int me, u64 sent) {
  const Clock& clock = *p.clock;
  if (me == 0) release(clock.start, clock_ns());
  await(p, clock.start, 1);
  return Hand{0, 0, glance(clock.start), sent};
}

// What begins now may begin at hand.now. 0, or why it may not.
APART int keep_time(const Prog& p, Hand& hand, const Block& block, const Op& op, int slice, int part, u64 taken, u64 sent, i64 elements) {
  const Clock& clock = *p.clock;
  if (part == 0)
    for (int d = op.dep0; d < op.dep0 + op.ndep; ++d) {
      const Dep& dep = p.deps[d];
      hand.now = later(hand.now, clock.ends[slice * clock.nops + p.blocks[dep.block].op0 + dep.op]);
    }
  if (op.flags & RECEIVES) hand.now = later(hand.now, clock.sent_at[(i64)block.into * p.nslots + taken % p.nslots]);
  if (!(op.flags & SENDS)) return 0;
  hand.now = later(hand.now, clock.freed_at[(i64)block.out * p.nslots + sent % p.nslots]);
  Route& route = clock.routes[clock.route_of[block.out]];
  const u64 ticket = clock.tickets[clock.ticket0[block.out] + (i64)(sent - hand.sent0)];
  if (!await(p, clock.turns + route.line, ticket)) return WAITS_TURN;
  const i64 size = elements * clock.bytes;
  const u64 begin = later(hand.now, route.free);
  u64 end = begin + lasts(size, route.num, route.den);
  for (int k = route.cap0; k < route.cap0 + route.ncaps; ++k) {
    Limit& limit = clock.limits[clock.caps[k]];
    limit.served = later(limit.served, begin) + lasts(size, limit.num, limit.den);
    end = later(end, limit.served);
  }
  route.free = hand.now = end;
  route.busy += end - begin;
  route.carried += (u64)size;
  hand.arrival = end + (u64)route.alpha;
  release(clock.turns + route.line, ticket + 1);
  return 0;
}

// Before the counters say that the part has ended.
DEV void tell_time(const Prog& p, const Hand& hand, const Block& block, int flags, i64 op, int slice, u64 taken, u64 sent) {
  const Clock& clock = *p.clock;
  if (flags & SENDS) clock.sent_at[(i64)block.out * p.nslots + sent % p.nslots] = hand.arrival;
  if (flags & RECEIVES) clock.freed_at[(i64)block.into * p.nslots + taken % p.nslots] = hand.now;
  if (flags & PUBLISHES) clock.ends[slice * clock.nops + op] = hand.now;
}
