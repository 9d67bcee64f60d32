"""Routing traces and counts of caches, with nothing of ours in them.

    traces.py make FILE SEED       a random trace with popular experts, experts
                                   that come back, prompts, batches and drafts
    traces.py frames FILE          frame counts worth trying, as N,N,...
    traces.py check FILE COUNTS    hits and loads in the JSON of `sluice replay
                                   --policy lru,fifo,min` are those counted here
    traces.py golden FILE NAME GOLDEN
                                   and these are those of a golden file

A request is one expert of one row; requests come by step, layer, row and rank.
LRU, FIFO and MIN see one request after the other; MIN, which knows the future,
may decline to keep what is asked for later than everything it has. A load of a
group: the experts of all rows of a step and layer are looked up together, then
let in one after the other, in an LRU of its own.
"""
import heapq
import json
import random
import struct
import sys
import zlib
from collections import OrderedDict, deque

HEADER = struct.Struct('<8sHHIIHHHHHHQQQQQIIIII')
NEVER = 1 << 60


# ---- files ----
def write(path, layers, experts, top_k, rows):
    """rows: (step, sequence, position, phase, [layer][rank] ids)."""
    records = b''
    for step, sequence, position, phase, ids in rows:
        flat = [i for layer in ids for i in layer]
        body = struct.pack('<IIIIIBBH', 24 + 2 * len(flat) + 4, sequence,
                           position, 0xffffffff, step, phase,
                           2 if position == 0 else 0, layers)
        body += struct.pack('<%dH' % len(flat), *flat)
        records += body + struct.pack('<I', zlib.crc32(body))
    head = HEADER.pack(b'MOETRACE', 1, 0, 128, 1 | 16, layers, 1, layers + 1,
                       experts, top_k, 2, 1000, 0, len(rows), 0, 0, 0, 0,
                       len({r[1] for r in rows}), len({r[0] for r in rows}),
                       24).ljust(124, b'\0')
    with open(path, 'wb') as f:
        f.write(head + struct.pack('<I', zlib.crc32(head)) + records)


def read(path):
    """The requests: a list of steps of [layer][row] of ids."""
    data = open(path, 'rb').read()
    head = HEADER.unpack_from(data)
    at, flags, layers, experts, top_k = head[3], *head[4:6], *head[8:10]
    assert head[0] == b'MOETRACE' and not flags & ~0x11f, 'columns unknown'
    steps, last = [], None
    while at < len(data):
        size, _, _, _, step, _, _, n = struct.unpack_from('<IIIIIBBH', data, at)
        flat = struct.unpack_from('<%dH' % (n * top_k), data, at + 24)
        if step != last:
            steps.append([[] for _ in range(layers)])
            last = step
        for layer in range(n):
            steps[-1][layer].append(
                flat[layer * top_k:(layer + 1) * top_k])
        at += size
    return steps, layers * experts


# ---- making ----
def make(path, seed):
    r = random.Random(seed)
    layers, experts, top_k = 6, 48, 4
    popular = [sorted(range(experts), key=lambda e: r.random())
               for _ in range(layers)]
    before = {}

    def choose(sequence, layer):
        chosen = []
        while len(chosen) < top_k:
            old = before.get((sequence, layer))
            e = r.choice(old) if old and r.random() < 0.45 else \
                popular[layer][min(int(r.expovariate(0.09)), experts - 1)]
            if e not in chosen:
                chosen.append(e)
        before[sequence, layer] = chosen
        return chosen

    rows, position = [], [0, 0, 0]
    for step in range(90):
        if step in (0, 20, 50):  # a prompt, beside what already runs
            company = [(r.randrange(1 + step // 20), 1), (step // 20, 7)]
        else:
            company = [(s, r.choice((1, 1, 1, 2))) for s in range(3)
                       if position[s] and r.random() < 0.8] or [(0, 1)]
        for sequence, count in sorted(dict(company).items()):
            for i in range(count):
                phase = 0 if count == 7 else 2 if i else 1
                rows.append((step, sequence, position[sequence], phase,
                             [choose(sequence, m) for m in range(layers)]))
                position[sequence] += 1
    write(path, layers, experts, top_k, rows)


# ---- counting ----
def requests(steps):
    for s, step in enumerate(steps):
        for layer, rows in enumerate(step):
            for ids in rows:
                for e in ids:
                    yield s, (layer, e)


def queue(steps, frames, touch):
    """LRU, or FIFO if a hit does not touch: hits a step."""
    kept, hits = OrderedDict(), [0] * len(steps)
    for s, block in requests(steps):
        if block in kept:
            hits[s] += 1
            if touch:
                kept.move_to_end(block)
        elif frames:
            if len(kept) == frames:
                kept.popitem(last=False)
            kept[block] = True
    return hits


def best(steps, frames):
    """MIN: the block of farthest next use goes, or is not let in."""
    future = {}
    for i, (_, block) in enumerate(requests(steps)):
        future.setdefault(block, deque()).append(i)
    kept, heap, hits = {}, [], [0] * len(steps)
    for s, block in requests(steps):
        uses = future[block]
        uses.popleft()
        when = uses[0] if uses else NEVER
        if block in kept:
            hits[s] += 1
        elif len(kept) == frames:
            while heap and kept.get(heap[0][1]) != -heap[0][0]:
                heapq.heappop(heap)  # of an earlier use
            if not heap or -heap[0][0] <= when:
                continue
            del kept[heapq.heappop(heap)[1]]
        kept[block] = when
        heapq.heappush(heap, (-when, block))
    return hits


def loads(steps, frames):
    kept, count = OrderedDict(), [0] * len(steps)
    for s, step in enumerate(steps):
        for layer, rows in enumerate(step):
            group = list(OrderedDict.fromkeys(
                (layer, e) for ids in rows for e in ids))
            count[s] += sum(block not in kept for block in group)
            for block in group:
                if block in kept:
                    kept.move_to_end(block)
                else:
                    if len(kept) == frames:
                        kept.popitem(last=False)
                    kept[block] = True
    return count


def count(steps, frames):
    return {'LRU': queue(steps, frames, True),
            'FIFO': queue(steps, frames, False), 'MIN': best(steps, frames),
            'LRU_group_loads': loads(steps, frames)}


def frame_counts(total):
    share = (2, 10, 35) if total > 1000 else (2, 5, 10, 20, 35, 60, 90)
    return sorted({1, 3, 4, 24, *(total * p // 100 for p in share), total})


def check(path, counts):
    steps, total = read(path)
    results = json.load(open(counts))
    assert len(results) == 3 * len(frame_counts(total))
    hits, counted = 0, {}
    for x in results:
        if x['frames'] not in counted:
            counted[x['frames']] = count(steps, x['frames'])
        mine = counted[x['frames']]
        name = x['policy'].upper()
        where = '%s of %d frames' % (name, x['frames'])
        assert x['step_hits'] == mine[name], where
        if name == 'LRU':
            assert x['step_loads'] == mine['LRU_group_loads'], where
            assert x['loads'] == sum(mine['LRU_group_loads']), where
        hits += sum(mine[name])
    assert hits > 0
    print('# %d results, %d hits' % (len(results), hits))


def golden(path, name, golden_path):
    steps, _ = read(path)
    for frames, want in json.load(open(golden_path))[name].items():
        mine = count(steps, int(frames))
        for what, numbers in want.items():
            got = mine[what] if isinstance(numbers, list) else sum(mine[what])
            assert got == numbers, (name, frames, what)


if __name__ == '__main__':
    command, path = sys.argv[1:3]
    if command == 'make':
        make(path, int(sys.argv[3]))
    elif command == 'frames':
        print(','.join(map(str, frame_counts(read(path)[1]))))
    elif command == 'check':
        check(path, sys.argv[3])
    elif command == 'golden':
        golden(path, *sys.argv[3:])
    else:
        sys.exit(__doc__)
