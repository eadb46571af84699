"""MSCCL++'s loader of execution plans as a list of rules (design page msccl_ir.md), sharing no code with the exporter.

`check(text)` raises AssertionError with the rule that a plan breaks; what the kernel needs beyond the loader (block
syncs, sizes of its arrays) is checked too.
"""

import json

NAMES = (
    "nop barrier put pws pwsf get copy signal wait flush re res rre rres ppkt rppkt respkt cpkt upkt repkt recpkt "
    "recspkt "
    "glres gstore gstorepkt rlxsignal rlxwait pipeline sem_acquire sem_release"
)
SYNC = "nop barrier signal wait flush rlxsignal rlxwait pipeline sem_acquire sem_release"
OPS = set(NAMES.split())
DATA = OPS - set(SYNC.split())


def check(text):
    plan = json.loads(text)
    for key in ("name", "collective", "protocol", "inplace", "gpus"):
        assert key in plan, f"{key} is required"
    assert plan["protocol"] in ("Simple", "LL")
    assert isinstance(plan["inplace"], bool)
    assert plan.get("buffer_alignment", 16) == 16 and plan.get("num_threads_per_block", 1024) <= 1024
    packets = plan["protocol"] == "LL"
    assert plan.get("use_double_scratch_buffer", False) == packets
    low, high = plan.get("min_message_size", 0), plan.get("max_message_size", 2**64 - 1)
    assert 0 <= low <= high
    gpus = plan["gpus"]
    pairs = {}
    for rank, gpu in enumerate(gpus):
        assert gpu["id"] == rank, "id is the place in the list"
        assert gpu["input_chunks"] >= 1 and gpu["output_chunks"] >= 1 and gpu["scratch_chunks"] >= 0
        for channel in gpu["channels"]:
            if channel["channel_type"] == "switch":
                assert channel["buffer_type"] in ("i", "o", "s")
                for group in channel["rank_groups"]:
                    assert len(group["ranks"]) == group["size"] > 1 and rank in group["ranks"]
                    assert all(channel in gpus[member]["channels"] for member in group["ranks"]), "one object for all"
                continue
            for peer in channel["connected_to"]:
                assert 0 <= peer < len(gpus) and peer != rank
                pairs[rank, peer, channel["channel_type"]] = pairs.get((rank, peer, channel["channel_type"]), 0) + 1
    for (rank, peer, kind), count in pairs.items():
        assert pairs.get((peer, rank, kind)) == count, "both ends have equally many channels"
    side = "output_chunks" if plan["collective"] == "allgather" else "input_chunks"
    chunk = high // max(gpu[side] for gpu in gpus)  # all ranks have chunks of one size, the largest buffer bounds it
    for gpu in gpus:
        # the loader makes the scratch for min(the allocation that the input lies in, the largest message)
        half = -(-high // gpu["input_chunks"]) * gpu["scratch_chunks"] * 4 // 2 if packets else 0
        assert half < 2**32, "where the second half of the scratch begins is 32 bit"
        _gpu(gpu, gpus, packets, chunk, half)
    return plan


def _gpu(gpu, gpus, packets, chunk, half):
    assert gpu["threadblocks"], "a kernel has a block"
    channels = {"memory": 0, "port": 0, "switch": 0}
    switches = []
    for channel in gpu["channels"]:
        entries = "rank_groups" if channel["channel_type"] == "switch" else "connected_to"
        channels[channel["channel_type"]] += len(channel[entries])
        if channel["channel_type"] == "switch":
            switches += [(channel["buffer_type"], group["ranks"]) for group in channel["rank_groups"]]
    used = {}
    for number, block in enumerate(gpu["threadblocks"]):
        assert block["id"] == number
        ops = block["ops"]
        assert len(ops) <= 64, "64 operations"
        mine = {c["channel_type"]: c["channel_ids"] for c in block["channels"]}
        for kind, ids in mine.items():
            assert len(ids) <= 16 and all(0 <= i < channels[kind] for i in ids) and len(set(ids)) == len(ids)
            for i in ids if kind != "switch" else ():
                assert used.setdefault((kind, i), number) == number, "two blocks count the signals of one channel"
        refs = {r["access_channel_type"]: r["remote_buffer_ids"] for r in block.get("remote_buffer_refs", [])}
        for kind, ids in refs.items():
            assert len(ids) <= 16
            assert all(kind in gpu["remote_buffers"][i]["access_channel_types"] for i in ids)
        for op in ops:
            _op(op, gpu, gpus, mine | {"groups": switches}, refs, packets, chunk, half)
        _joins(ops)
    acquired, released = [0] * len(gpu.get("semaphores", [])), [0] * len(gpu.get("semaphores", []))
    for block in gpu["threadblocks"]:
        for op in block["ops"]:
            for i in op.get("semaphore_ids", []):
                (acquired if op["name"] == "sem_acquire" else released)[i] += 1
    assert acquired == released, "the next launch finds the semaphores as this one did"


def _op(op, gpu, gpus, mine, refs, packets, chunk, half):
    name = op["name"]
    assert name in OPS
    kind = op.get("channel_type", "memory")
    ids = op.get("channel_ids", [])
    assert len(ids) <= 8 and all(0 <= i < len(mine[kind]) for i in ids)
    src, dst = op.get("src_buff", []), op.get("dst_buff", [])
    assert len(src) <= 10 and len(dst) <= 10
    if name in ("signal", "wait"):
        assert ids
    if name == "flush":
        assert kind == "port" and len(dst) == len(ids) > 0, (
            "the kernel flushes as many channels as there are destinations"
        )
    if name in DATA:
        assert src and dst
    if name in ("put", "ppkt"):
        assert len(src) == len(dst)
        assert kind == "port" or len({b["type"] for b in src}) == 1
        assert all("buffer_id" in b for b in dst) and all("type" in b for b in src)
    if name == "rppkt":
        assert len(src) == 1 and src[0]["type"] == "s"
    if name in ("pws", "pwsf"):
        assert kind == "port" and len(src) == len(dst) == len(ids), "a memory channel never signals"
    if name in ("put", "pws", "pwsf", "rppkt") and kind == "port":
        assert len(ids) == len(dst)
        assert len(set(ids)) == len(ids)
    assert not (name == "ppkt" and kind == "port"), "sends without the context's own memory ids"
    if name in ("copy", "cpkt", "upkt", "re", "repkt"):
        assert len(dst) == 1 and all("type" in b for b in (*src, *dst))
    assert ("pkt" not in name) or packets
    if packets:
        assert name not in ("put", "get", "pws", "pwsf"), "plain puts do not know which half of the scratch is in turn"
    for side, buffers in (("src", src), ("dst", dst)):
        for place, buff in enumerate(buffers):
            assert sum(key in buff for key in ("type", "buffer_id", "switch_channel_id")) == 1
            assert ("switch_channel_id" in buff) == (name == "glres" or (name == "gstore" and side == "dst"))
            if "switch_channel_id" in buff:
                assert kind == "switch" and len(src) == len(dst) == 1 and not packets
                where, ranks = mine["groups"][mine["switch"][buff["switch_channel_id"]]]
                owner = min((gpus[member] for member in ranks), key=lambda g: g["input_chunks"] + g["output_chunks"])
            elif "buffer_id" in buff:
                remote = gpu["remote_buffers"][refs[kind][buff["buffer_id"]]]
                owner, where = gpus[remote["rank"]], remote["type"]
            else:
                owner, where = gpu, buff["type"]
            size = {"i": owner["input_chunks"], "o": owner["output_chunks"], "s": owner["scratch_chunks"]}[where]
            assert buff["size"] >= 1 and buff["index"] >= 0
            if name != "flush":
                assert buff["index"] + buff["size"] <= size
            plain = {"ppkt": "src", "cpkt": "src", "upkt": "dst"}.get(name) == side or ("re" in name and place == 0)
            if "pkt" in name and not plain:
                assert where == "s", "packets lie in scratch"
            start, wide = (half, 2) if packets and where == "s" else (0, 1)
            assert start + (buff["index"] + buff["size"]) * wide * chunk < 2**32, "offsets are 32 bit"
            if packets and where == "s":
                assert gpu["scratch_chunks"] == size, (
                    "the sender's own half is added to the place of a packet on another rank"
                )


def _joins(ops):
    """A block sync between wait and data, and data and signal.

    Thread k of a block hands the k-th put of an op to its port channel, and the k-th signal and flush, in order.
    """
    waited = data = False
    threads = {}  # port channel → the thread that has put through it
    for op in ops:
        name, served = op["name"], list(enumerate(op.get("channel_ids", [])))
        ports = op.get("channel_type") == "port"
        if name in ("nop", "barrier"):
            waited = data = False
            threads = {}
        elif name in ("wait", "flush", "sem_acquire"):
            if name == "flush":
                assert not data and all(threads.get(i, {k}) == {k} for k, i in served)
            waited = True
        elif name in ("signal", "sem_release"):
            assert not waited and not data, "the threads are not joined before a signal"
            if ports:
                assert all(threads.get(i, {k}) == {k} for k, i in served), "another thread put through the channel"
        elif name in DATA:
            assert not waited, "the threads are not joined after a wait"
            if name in ("put", "pws", "pwsf") and ports:
                for k, i in served:
                    threads.setdefault(i, set()).add(k)
                if name != "put":
                    assert not data and all(threads[i] == {k} for k, i in served), "the signal is of another thread"
                waited = name == "pwsf"
            else:
                data = True
