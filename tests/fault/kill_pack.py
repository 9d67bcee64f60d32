"""python3 kill_pack.py SLUICE FOLDER KILLS: see test_pack_kill.sh."""
import os
import random
import shutil
import subprocess
import time

from killing import FOLDER, KILLS, SLUICE, digests, run_for, unlike, verdict

MODEL, TRUTH, OUT = FOLDER + "/model", FOLDER + "/truth", FOLDER + "/out"
seed = random.randrange(1 << 30)
print("# seed %d" % seed)
rng = random.Random(seed)


def command(out, *words):
    return [SLUICE, "pack", MODEL, "--to", out, *words]


def attack(kills, longest):
    before = {}
    while kills > 0:
        jobs = str(rng.randrange(1, 5))
        status, _ = run_for(rng.uniform(0, longest),
                            command(OUT, "--jobs", jobs))
        kills -= status == -9
        if status not in (0, -9):
            return "exit status %d" % status
        now = digests(OUT, ".pack")
        if unlike(now, before, truth):
            return unlike(now, before, truth)
        before = now
        if status == 0 or len(now) == len(truth):
            if now != truth:
                return "it ended with other files"
            shutil.rmtree(OUT)
            before = {}
    p = subprocess.run(command(OUT), capture_output=True)
    if p.returncode or digests(OUT, ".pack") != truth:
        return "the same command did not finish"
    if [n for n in os.listdir(OUT) if not n.endswith(".pack")]:
        return "something is left behind"
    return None


begin = time.monotonic()
subprocess.run(command(TRUTH, "--jobs", "1"), check=True,
               stdout=subprocess.DEVNULL)
longest = 1.2 * (time.monotonic() - begin)
truth = digests(TRUTH, ".pack")
assert len(truth) > 3
verdict(attack(KILLS, longest))
