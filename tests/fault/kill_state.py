"""python3 kill_state.py SLUICE FOLDER KILLS: see test_state_kill.sh."""
import glob
import json
import os
import random
import struct
import subprocess
import sys
import time

SLUICE, FOLDER, KILLS = sys.argv[1], sys.argv[2], int(sys.argv[3])
PROMPT, NEW, EVERY, ROWS = 90, 160, 3, 16
STATE, REPORT, CACHE = (FOLDER + "/" + f for f in ("s", "report", "cache"))
seed = int(os.environ.get("SEED", 1))
print("# seed %d" % seed)
rng = random.Random(seed)
ids = ",".join(str(rng.randrange(500)) for _ in range(PROMPT))


def command(*words):
    return [SLUICE, "run", FOLDER + "/model", "--ids", ids, "-n", str(NEW),
            "--ignore-eos", "-t", "1", "-m", "64M", "--rows", str(ROWS), *words]


def positions():
    """In the header of the state; 0: there is none."""
    try:
        with open(STATE, "rb") as f:
            head = f.read(64)
    except FileNotFoundError:
        return 0
    return struct.unpack_from("<I", head, 8 + 8 + 32 + 4)[0]


def kill_one(words, longest):
    """True: it was killed before it was over."""
    p = subprocess.Popen(command(*words), stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL)
    try:
        p.wait(rng.uniform(0, longest))
        return False
    except subprocess.TimeoutExpired:
        p.kill()
        p.wait()
        return True


def whole(words):
    return subprocess.run(command("--report", REPORT, *words), check=False,
                          capture_output=True)


def counts():
    with open(REPORT) as f:
        r = json.load(f)
    return r["prompt_tokens_read"], r["prompt_tokens_loaded"]


def attack_state(truth, longest, kills):
    words = ("--state", STATE, "--state-every", str(EVERY))
    killed = amid = 0
    while killed < kills:
        before = positions()
        if kill_one(words, longest):
            killed += 1
            amid += PROMPT < positions() < PROMPT + NEW - 1
        if positions() < before:
            return "a save went back from %d" % before
        if rng.random() < 0.3 or positions() >= PROMPT + NEW - 1 or \
                killed == kills:
            at = positions()
            r = whole(words)
            if r.returncode or r.stdout != truth:
                return "wrong after %d kills: %r" % (killed, r.stderr)
            read, loaded = counts()
            # All that was saved is used, unless the answer was whole.
            if at < PROMPT + NEW - 1 and (loaded != at or
                                          read > max(1, PROMPT - at)):
                return "%d were saved, %d used, %d read" % (at, loaded, read)
            os.remove(STATE)
    if glob.glob(STATE + "?*"):
        print("# left over: %s" % glob.glob(STATE + "?*"))
    print("# %d kills, %d amid the answer" % (killed, amid))
    return None if amid else "no kill hit"


def attack_cache(truth, longest, kills):
    words = ("--prefix-cache", CACHE + ",200K")
    killed = 0
    while killed < kills:
        others = [subprocess.Popen(command(*words), stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL)
                  for _ in range(1)]
        killed += kill_one(words, longest)
        for p in others:
            if p.communicate()[0] != truth:
                return "a neighbour is wrong after %d kills" % killed
        r = whole(words)
        if r.returncode or r.stdout != truth:
            return "wrong after %d kills: %r" % (killed, r.stderr)
        size = sum(os.path.getsize(f) for f in glob.glob(CACHE + "/*.seq"))
        if size > 200 << 10:
            return "the folder holds %d bytes" % size
        if rng.random() < 0.5:
            for f in glob.glob(CACHE + "/*.seq"):
                os.remove(f)
    return None


begin = time.monotonic()
r = subprocess.run(command("--state", STATE, "--state-every", str(EVERY)),
                   capture_output=True, check=True)
longest = 1.1 * (time.monotonic() - begin)
os.remove(STATE)
tests = [("state: old or new, and no row is read twice", attack_state),
         ("cache: never another token, never more bytes", attack_cache)]
for number, (name, attack) in enumerate(tests, 1):
    wrong = attack(r.stdout, longest, (KILLS + 2 - number) // 2)
    if wrong:
        print("# " + wrong)
    print("%sok %d - %s" % ("not " if wrong else "", number, name))
print("1..%d" % len(tests))
