"""python3 kill_pack.py SLUICE FOLDER KILLS: see test_pack_kill.sh."""
import hashlib
import os
import random
import shutil
import subprocess
import sys
import time

SLUICE, FOLDER, KILLS = sys.argv[1], sys.argv[2], int(sys.argv[3])
MODEL, TRUTH, OUT = FOLDER + "/model", FOLDER + "/truth", FOLDER + "/out"
seed = random.randrange(1 << 30)
print("# seed %d" % seed)
rng = random.Random(seed)


def command(out, *words):
    return [SLUICE, "pack", MODEL, "--to", out, *words]


def contents(folder):
    if not os.path.isdir(folder):
        return {}
    names = sorted(os.listdir(folder))
    return {n: hashlib.sha256(open(folder + "/" + n, "rb").read()).hexdigest()
            for n in names if n.endswith(".pack")}


def attack(kills, longest):
    before = {}
    while kills > 0:
        jobs = str(rng.randrange(1, 5))
        p = subprocess.Popen(command(OUT, "--jobs", jobs),
                             stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
        try:
            p.wait(rng.uniform(0, longest))
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()
            kills -= 1
        if p.returncode not in (0, -9):
            return "exit status %d" % p.returncode
        now = contents(OUT)
        if any(now.get(n) != before[n] for n in before):
            return "a finished file has gone or changed"
        if any(truth.get(n) != now[n] for n in now):
            return "a file is not what one go gives"
        before = now
        if p.returncode == 0 or len(now) == len(truth):
            if now != truth:
                return "it ended with other files"
            shutil.rmtree(OUT)
            before = {}
    p = subprocess.run(command(OUT), capture_output=True)
    if p.returncode or contents(OUT) != truth:
        return "the same command did not finish"
    if [n for n in os.listdir(OUT) if not n.endswith(".pack")]:
        return "something is left behind"
    return None


begin = time.monotonic()
subprocess.run(command(TRUTH, "--jobs", "1"), check=True,
               stdout=subprocess.DEVNULL)
longest = 1.2 * (time.monotonic() - begin)
truth = contents(TRUTH)
assert len(truth) > 3
wrong = attack(KILLS, longest)
print("ok 1 - %d kills" % KILLS if not wrong else "not ok 1 - " + wrong)
print("1..1")
