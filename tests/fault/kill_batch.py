"""python3 kill_batch.py SLUICE FOLDER KILLS: see test_batch_kill.sh."""
import json
import os
import random
import re
import subprocess
import time

from killing import FOLDER, KILLS, SLUICE, run_for

LINES = 160
IN, OUT = FOLDER + "/in.jsonl", FOLDER + "/out.jsonl"
seed = int(os.environ.get("SEED", 1))
print("# seed %d" % seed)
rng = random.Random(seed)


def write_input():
    with open(IN, "w") as f:
        for i in range(LINES):
            if i % 20 == 7:
                f.write("this line is bad\n")
                continue
            name = "r%d" % (i - 1 if i % 20 == 8 and i > 8 else i)
            f.write(json.dumps({
                "id": name, "max_tokens": rng.randrange(1, 24),
                "prompt": [rng.randrange(500)
                           for _ in range(rng.randrange(1, 40))],
                "return_token_ids": True}) + "\n")


def command(out, *words):
    return [SLUICE, "batch", FOLDER + "/model", "-i", IN, "-o", out, "-t", "1",
            "-m", "64M", "--sequences", "6", *words]


def whole_lines(path):
    if not os.path.exists(path):
        return []
    with open(path, "rb") as f: # the time of writing may differ
        text = re.sub(rb'"created":\d+,', b"", f.read())
    return text.split(b"\n")[:-1]


ENDED = 0, 3 # all have answers; some of them are errors


def fresh():
    for path in (OUT, OUT + ".held", OUT + ".partial"):
        if os.path.exists(path):
            os.remove(path)


def attack(words, truth, kills, longest):
    """Kill `kills` jobs; returns what went wrong, or None."""
    fresh()
    before, amid = [], 0
    while kills > 0:
        status, _ = run_for(rng.uniform(0, longest), command(OUT, *words))
        kills -= status == -9
        amid += status == -9 and 0 < len(whole_lines(OUT)) < LINES
        now = whole_lines(OUT)
        if now[:len(before)] != before:
            return "a finished answer has gone"
        if len(set(now)) != len(now) or not set(now) <= set(truth):
            return "an answer came twice, or is wrong"
        before = now
        if status in ENDED:
            if sorted(now) != sorted(truth):
                return "the job ended with other answers"
            fresh()
            before = []
        elif status != -9:
            return "exit status %d" % status
    p = subprocess.run(command(OUT, *words), capture_output=True)
    now = whole_lines(OUT)
    if p.returncode not in ENDED or sorted(now) != sorted(truth):
        return "the same command did not finish the job"
    if "--keep-order" in words and now != truth:
        return "the order is wrong"
    if not amid:
        return "no kill came amid the answers"
    return None


write_input()
begin = time.monotonic()
first = subprocess.run(command(FOLDER + "/truth", "--keep-order"),
                       stderr=subprocess.DEVNULL)
assert first.returncode in ENDED
longest = 1.2 * (time.monotonic() - begin)
truth = whole_lines(FOLDER + "/truth")
assert len(truth) == LINES
for number, words in enumerate(([], ["--keep-order"])):
    wrong = attack(words, truth, (KILLS + 1 - number) // 2, longest)
    print("ok" if not wrong else "not ok", number + 1, "-", KILLS,
          "kills", *words, ": " + wrong if wrong else "")
print("1..2")
