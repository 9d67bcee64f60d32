"""python3 kill_spread.py SLUICE FOLDER KILLS: see test_spread_kill.sh."""
import hashlib
import os
import random
import shutil
import subprocess
import sys
import time

SLUICE, FOLDER, KILLS = sys.argv[1], sys.argv[2], int(sys.argv[3])
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


def digest(path):
    return hashlib.sha256(open(path, "rb").read()).hexdigest()


def contents(out):
    found = {}
    for part in PARTS:
        folder = out + "/" + part
        for name in os.listdir(folder) if os.path.isdir(folder) else []:
            if name.endswith(".part"):
                found[part + "/" + name] = digest(folder + "/" + name)
    return found


def shards(model):
    return {n: digest(model + "/" + n) for n in os.listdir(model)
            if n.endswith(".safetensors")}


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
        p = subprocess.Popen(command(MOVED, OUT, *words),
                             stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE)
        try:
            p.wait(rng.uniform(0, longest))
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()
            kills -= 1
        if p.returncode not in (0, -9):
            return "exit status %d: %s" % (p.returncode, p.stderr.read())
        now = contents(OUT)
        if any(now.get(n) != before[n] for n in before):
            return "a finished file has gone or changed"
        if any(truth.get(n) != now[n] for n in now):
            return "a file is not what one go gives"
        if lost(now):
            return lost(now) + " is lost"
        before = now
        if p.returncode == 0:
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
    while True:  # kills during the way back
        p = subprocess.Popen([SLUICE, "spread", MOVED, "--join", MOVED, *words],
                             stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
        try:
            p.wait(rng.uniform(0, 2 * longest))
            break
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()
        if any(whole.get(n) != s for n, s in shards(MOVED).items()):
            return "join left a shard half done"
    if p.returncode or shards(MOVED) != whole:
        return "join gave other shards"
    return None


os.mkdir(TRUTH)
begin = time.monotonic()
subprocess.run(command(MODEL, TRUTH, "--jobs", "1"), check=True,
               stdout=subprocess.DEVNULL)
longest = 1.5 * (time.monotonic() - begin)
truth, whole = contents(TRUTH), shards(MODEL)
assert len(truth) == 3 * len(whole) > 9
wrong = attack(KILLS, longest)
print("ok 1 - %d kills" % KILLS if not wrong else "not ok 1 - " + wrong)
print("1..1")
