#!/bin/sh
# Goal    the budget is a promise for what requests bring, too: very many piped
#         lines, ids and stop strings of a megabyte, long prompts are planned,
#         refused by line, or end the job in one sentence.
# Method  peak resident memory of the process, as the kernel counts it, below
#         --memory; each kind through a pipe and from a file.
# Alone:  it measures memory.
. tests/tap.sh
M=$D/m
"$S" synth "$M" --preset tiny --num-hidden-layers 5 --num-experts 16 \
    --hidden-size 64 > "$D/out" 2> "$D/err" || exit 1
cat > "$D/peak.py" << 'PY'
import json, resource, subprocess, sys, threading
s, m, d, kind, way, mib = sys.argv[1:]
mib = int(mib)
big = "k" * 1000000
def lines():
    if kind == "many":
        for i in range(250000):
            yield '{"custom_id": %d, "no": 1}' % i
    for i in range(12):
        q = {"custom_id": str(i), "max_tokens": 3, "prompt": [3, 4]}
        if kind == "ids":
            q["custom_id"] += big
        if kind == "stops":
            q.update(stop=[big, "x" + big], prompt="a")
        if kind == "prompt":
            q["prompt"] = [3] * 300000
        if kind == "text":
            q["prompt"] = "word " * 400000
        yield json.dumps(q)
out = d + "/o"
if way == "file":
    with open(d + "/in", "w") as f:
        for line in lines():
            f.write(line + "\n")
p = subprocess.Popen([s, "batch", m, "-i", d + "/in" if way == "file" else "-",
                      "-o", out, "-c", "64", "-m", "%dM" % mib],
                     stdin=None if way == "file" else subprocess.PIPE,
                     stderr=subprocess.PIPE)
def feed():
    try:
        for line in lines():
            p.stdin.write((line + "\n").encode())
        p.stdin.close()
    except BrokenPipeError:
        pass
if way == "pipe":
    t = threading.Thread(target=feed)
    t.start()
err = p.stderr.read().decode()
status = p.wait()
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
good = status in (0, 3) or (status == 1 and err.count("sluice: ") == 1)
print("%s by %s: status %d, %.1f of %d MiB" % (kind, way, status, peak, mib))
if not good or peak > mib:
    print(err[-600:])
    sys.exit(1)
PY
sanitized=
grep -q __asan_init "$S" || grep -q __tsan_init "$S" && sanitized=1
for kind in many ids stops prompt text; do
    for way in pipe file; do
        if [ $sanitized ]; then
            skip "$kind by $way" "a sanitizer takes memory of its own"
            continue
        fi
        rm -f "$D/o"* "$D/in"
        python3 "$D/peak.py" "$S" "$M" "$D" $kind $way 96 > "$D/out" 2> "$D/err"
        verdict $? "$(head -n 1 "$D/out")"
    done
done
echo "1..$n"
