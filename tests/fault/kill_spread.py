"""python3 kill_spread.py SLUICE FOLDER KILLS: see test_spread_kill.sh."""
import os
import random
import shutil
import subprocess
import time

from killing import FOLDER, KILLS, SLUICE, digests, run_for, unlike, verdict

MODEL, TRUTH, OUT = FOLDER + "/model", FOLDER + "/truth", FOLDER + "/out"
MOVED = FOLDER + "/moved"
seed = random.randrange(1 << 30)
print("# seed %d" % seed)
rng = random.Random(seed)
PARTS = {"a": 1, "b": 2, "c": 1}


def command(model, out, *words):
    to = ["%s/%s=%d" % (out, p, w) for p, w in PARTS.items()]
    return [SLUICE, "spread", model, *words] + [
        w for t in to for w in ("--to", t)]


def contents(out):
    return {part + "/" + name: sha for part in PARTS
            for name, sha in digests(out + "/" + part, ".part").items()}


def shards(model):
    return digests(model, ".safetensors")


def fresh():
    shutil.rmtree(OUT, ignore_errors=True)
    shutil.rmtree(MOVED, ignore_errors=True)
    shutil.copytree(MODEL, MOVED)
    os.mkdir(OUT)


def lost(now):
    """A shard that is neither there nor whole in its parts."""
    left = shards(MOVED)
    for name, sha in whole.items():
        part = name.replace(".safetensors", ".part")
        parts = [now.get(p + "/" + part) == truth[p + "/" + part]
                 for p in PARTS]
        if left.get(name) != sha and not all(parts):
            return name
    return None


def attack(kills, longest):
    before = {}
    fresh()
    move = True
    while kills > 0:
        words = ["--jobs", str(rng.randrange(1, 5))] + ["--move"] * move
        status, said = run_for(rng.uniform(0, longest),
                               command(MOVED, OUT, *words))
        kills -= status == -9
        if status not in (0, -9):
            return "exit status %d: %s" % (status, said)
        now = contents(OUT)
        if unlike(now, before, truth):
            return unlike(now, before, truth)
        if lost(now):
            return lost(now) + " is lost"
        before = now
        if status == 0:
            if now != truth or (move and shards(MOVED)):
                return "it ended with other files"
            fresh()
            before = {}
            move = rng.random() < .7
    p = subprocess.run(command(MOVED, OUT, "--move"), capture_output=True)
    if p.returncode or contents(OUT) != truth:
        return "the same command did not finish: %s" % p.stderr
    for part in PARTS:
        if [n for n in os.listdir(OUT + "/" + part)
                if not n.endswith(".part")]:
            return "something is left behind"
    words = [w for part in PARTS for w in ("--parts", OUT + "/" + part)]
    status = -9
    while status == -9:  # kills during the way back
        status, _ = run_for(rng.uniform(0, 2 * longest),
                            [SLUICE, "spread", MOVED, "--join", MOVED, *words])
        if any(whole.get(n) != s for n, s in shards(MOVED).items()):
            return "join left a shard half done"
    if status or shards(MOVED) != whole:
        return "join gave other shards"
    return None


os.mkdir(TRUTH)
begin = time.monotonic()
subprocess.run(command(MODEL, TRUTH, "--jobs", "1"), check=True,
               stdout=subprocess.DEVNULL)
longest = 1.5 * (time.monotonic() - begin)
truth, whole = contents(TRUTH), shards(MODEL)
assert len(truth) == 3 * len(whole) > 9
verdict(attack(KILLS, longest))
