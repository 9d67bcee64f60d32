"""Compressed lines: see test_batch_packed.sh."""
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time

SLUICE, FOLDER = sys.argv[1:]
MODEL, OUT = FOLDER + "/m", FOLDER + "/out.jsonl"
count = 0


def check(good, name):
    global count
    count += 1
    print(("ok" if good else "not ok"), count, "-", name, flush=True)


def zstd(data, *words):
    return subprocess.run(["zstd", "-qc", *words], input=data,
                          capture_output=True, check=True).stdout


def batch(data, name, *words, keep=False, pipe=False):
    path = FOLDER + "/" + name
    with open(path, "wb") as f:
        f.write(data)
    if os.path.exists(OUT) and not keep:
        os.remove(OUT)
    return subprocess.run([SLUICE, "batch", MODEL, "-i", "-" if pipe else path,
                           "-o", OUT, "-t", "1", "-m", "96M", "--keep-order",
                           *words], capture_output=True,
                          input=data if pipe else None)


def answers():
    with open(OUT, encoding="utf-8") as f:
        got = [json.loads(x) for x in f.read().split("\n")[:-1]]
    for x in got:
        x["response"]["body"].pop("created")
    return got


lines = [json.dumps({"custom_id": "l%d" % i, "prompt": "Word " * (i % 7 + 1),
                     "max_tokens": 4}) + "\n" for i in range(30)]
text = "".join(lines).encode()
plain = batch(text, "in.jsonl")
want = answers()
check(plain.returncode == 0 and len(want) == 30, "the lines as they are")

kinds = {"gzip": (lambda d: gzip.compress(d), ".jsonl.gz")}
if shutil.which("zstd"):
    kinds["zstd"] = (zstd, ".jsonl.zst")
probe = batch(gzip.compress(text), "probe.gz")
built = b"compressed by" not in probe.stderr
for name in ("gzip", "zstd"):
    if name not in kinds or not built:
        count += 1
        print("ok %d - %s # SKIP %s" % (count, name, "no zstd command"
              if built else "built without zlib or libzstd"))
        continue
    pack, end = kinds[name]
    whole = batch(pack(text), "in" + end)
    good = whole.returncode == 0 and answers() == want
    whole = batch(pack(text), "in" + end, pipe=True)
    good = good and whole.returncode == 0 and answers() == want
    half = len(lines) // 2
    two = (pack(b"\xef\xbb\xbf" + "".join(lines[:half]).encode()) +
           pack("".join(lines[half:]).encode()))
    parts = batch(two, "two" + end)
    good = good and parts.returncode == 0 and answers() == want
    check(good, name + ": a file, a pipe, two streams with a mark")
    packed = pack(text)
    cut = batch(packed[:-9], "cut" + end)
    good = (cut.returncode == 1 and b"too early" in cut.stderr and
            not os.path.exists(OUT))
    bad = batch(packed[:40] + b"\0\xff" * 8 + packed[56:], "bad" + end)
    check(good and bad.returncode == 1 and not os.path.exists(OUT) and
          (b"damaged" in bad.stderr or b"too early" in bad.stderr),
          name + ": cut off or damaged, before there is an output")
    wide = batch(pack(text.decode().encode("utf-16")), "wide" + end)
    check(wide.returncode == 1 and b"UTF-16" in wide.stderr,
          name + ": what is in it has its mark named")

if built:
    path = FOLDER + "/kill.jsonl.gz"
    with open(path, "wb") as f:
        f.write(gzip.compress(text))
    os.path.exists(OUT) and os.remove(OUT)
    kills = 0
    while kills < 4:
        p = subprocess.Popen([SLUICE, "batch", MODEL, "-i", path, "-o", OUT,
                              "-t", "1", "-m", "96M", "--keep-order"],
                             stderr=subprocess.DEVNULL)
        time.sleep(0.1 + 0.1 * kills)
        p.send_signal(signal.SIGKILL)
        p.wait()
        kills += 1
    last = subprocess.run([SLUICE, "batch", MODEL, "-i", path, "-o", OUT, "-t",
                           "1", "-m", "96M", "--keep-order"],
                          capture_output=True)
    check(last.returncode == 0 and answers() == want,
          "killed four times and gone on with: the same answers")
print("1..%d" % count)
