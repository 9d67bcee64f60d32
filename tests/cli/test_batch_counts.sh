#!/bin/sh
# Goal    what a batch says of itself is what a count of its output says.
# Method  prompts of ids, a line with three, a line that is refused, a
#         duplicate, one that is no JSON; then the same job after five answers.
#         python counts the lines and the usage in the output.
. tests/tap.sh
"$S" synth "$D/m" --preset tiny > "$D/out" 2>&1 || exit 1
python3 - "$D/in" << 'EOF'
import json, sys
with open(sys.argv[1], "w") as f:
    for i in range(12):
        line = {"custom_id": f"r{i}", "max_tokens": 2 + i % 5,
                "prompt": list(range(3, 5 + 2 * i))}
        if i == 4:
            line["prompt"] = [[3, 4, 5], [6, 7], [8]]
        if i == 7:
            line["max_tokens"] = -4
        f.write(json.dumps(line) + "\n")
    f.write('{"custom_id": "r3", "prompt": [4]}\nnot json\n')
EOF
batch() { # options; a job with lines that are refused ends with 3
    "$S" batch "$D/m" -i "$D/in" "$@" > "$D/out" 2> "$D/err"
    [ $? -eq 3 ]
}
cat > "$D/count.py" << 'EOF'
import json, sys
report, out, before = sys.argv[1], sys.argv[2], int(sys.argv[3])
r = json.load(open(report))
b = r["batch"]
lines = [json.loads(l) for l in open(out)][before:]
good = [l["response"]["body"]["usage"] for l in lines if l["response"]]
prompt = sum(u["prompt_tokens"] for u in good)
new = sum(u["completion_tokens"] for u in good)
assert len(good) > 3 and b["answered"] == len(good), (b, len(good))
assert b["errors"] == len(lines) - len(good)
assert b["prompt_tokens"] == prompt, (b["prompt_tokens"], prompt)
assert b["new_tokens"] == new, (b["new_tokens"], new)
assert b["tokens"] + b["tokens_found_before"] == new, b
assert abs(b["requests_per_s"] * b["elapsed_s"] - len(good)) < 1e-6
assert abs(b["ids_per_s"] * b["elapsed_s"] - b["tokens"]) < 1e-6
assert abs(b["seconds_per_token"] * b["ids_per_s"] - 1) < 1e-9
read = r["prefill"]["read_bytes"] + r["decode"]["read_bytes"]
assert abs(b["bytes_per_token"] * b["tokens"] - read) < 1
assert b["tokens_per_s"] == b["ids_per_s"]
EOF
batch -o "$D/o" -m 64M --report "$D/r" && python3 "$D/count.py" "$D/r" "$D/o" 0
verdict $? 'counts of the report are those of the output file'
head -n 5 "$D/o" > "$D/o2"
batch -o "$D/o2" -m 64M --report "$D/r2" &&
    python3 "$D/count.py" "$D/r2" "$D/o2" 5 &&
    grep -q '"finished_before": 5' "$D/r2"
verdict $? 'a batch that goes on counts what it answered itself'
"$S" compare "$D/r" "$D/r2" > "$D/out" 2> "$D/err" &&
    grep -q '^requests a second .* /s ' "$D/out" &&
    grep -q '^read a new token .* GB ' "$D/out"
verdict $? 'two batches side by side'
job() { # words of --progress
    rm -f "$D/o3"
    batch -o "$D/o3" -m 34M --simulate-drive 0.3 --progress "$@"
}
line='^[0-9]* done, [0-9]* running, [0-9]* waiting.*layer [0-9]*/[0-9]*$'
job 0.02s && [ "$(grep -c "$line" "$D/err")" -gt 3 ] &&
    ! grep -q "$(printf '\033')" "$D/err"
verdict $? 'progress to a file: whole lines, no codes of a terminal'
job off && ! grep -q "$line" "$D/err" && job auto && ! grep -q "$line" "$D/err"
verdict $? 'off says nothing; auto nothing in the first minute'
"$S" batch "$D/m" -i "$D/in" -o "$D/o3" --progress 0 > "$D/out" 2> "$D/err"
[ $? -eq 2 ] && grep -q 'progress is auto, off or a number' "$D/err"
verdict $? 'every 0 seconds: refused'
cat > "$D/terminal.py" << 'EOF'
import fcntl, os, pty, re, struct, sys, termios
pid, fd = pty.fork()
if not pid:
    os.execv(sys.argv[1], sys.argv[1:])
fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
text = b""
while True:
    try:
        more = os.read(fd, 65536)
    except OSError:
        break
    if not more:
        break
    text += more
os.waitpid(pid, 0)
lines = re.findall(rb"\r\x1b\[K([^\r\n]*)", text)
assert sum(b" done, " in l for l in lines) > 2, text[-300:]
lines = [l for l in lines if b" done, " in l]
assert max(map(len, lines)) <= 39, max(lines, key=len)
EOF
rm -f "$D/o4"
python3 "$D/terminal.py" "$S" batch "$D/m" -i "$D/in" -o "$D/o4" -m 34M \
    --simulate-drive 0.15 > "$D/out" 2> "$D/err"
verdict $? 'a terminal of 40 columns: one line of at most 39'
echo "1..$n"
