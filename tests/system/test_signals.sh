#!/bin/sh
# Goal    TERM, INT and HUP act within a second wherever a command waits or
#         loops, and leave no temporary file; the first INT says what happens;
#         what was ignored at the start stays ignored.
# Method  each is sent to a run, a profile, and a batch whose input is endless,
#         or idle. A status of 128 + N, and the time that it took.
. tests/tap.sh
M=$D/m
mkdir "$D/tmp"
"$S" synth "$M" --preset tiny --num-hidden-layers 5 --num-experts 16 \
    --hidden-size 64 > "$D/out" 2> "$D/err" || exit 1
SLOW="--simulate-drive 0.01,20000 -c 64 -m 31M --ignore-eos"
# A signal that comes before a command catches it says nothing of the command;
# some leave it to the system, so this is for a second at most.
catches() { # PID: it has a handler for TERM, and has gone on for a while
    for _ in $(seq 16); do
        caught=$(sed -n 's/^SigCgt:.*\(....\)$/\1/p' "/proc/$1/status")
        [ $((0x${caught:-0} & 0x4000)) -ne 0 ] && break
        sleep 0.05
    done
    sleep 0.2
}
# ends SIGNAL STATUS: the process $job ends so, soon after the signal
ends() {
    catches $job
    kill -"$1" $job 2> /dev/null
    begin=$(date +%s%N)
    (sleep 6 && kill -9 $job) 2> /dev/null &
    killer=$!
    wait $job
    status=$?
    kill $killer 2> /dev/null
    ms=$((($(date +%s%N) - begin) / 1000000))
    [ $status -eq "$2" ] && [ $ms -lt 3000 ] && return
    echo "# status $status after $ms ms"
    return 1
}
for s in TERM:143 HUP:129; do
    rm -f "$D/o"*
    mkfifo "$D/p"
    yes 'this is no JSON' > "$D/p" 2> /dev/null &
    writer=$!
    "$S" batch "$M" -i - -o "$D/o" < "$D/p" > "$D/out" 2> "$D/err" &
    job=$!
    ends ${s%:*} ${s#*:}
    verdict $? "${s%:*} in endless refused lines"
    "$S" batch "$M" -i /dev/zero -o "$D/o2" > "$D/out" 2> "$D/err" &
    job=$!
    ends ${s%:*} ${s#*:}
    verdict $? "${s%:*} in a line without an end"
    kill $writer 2> /dev/null
    rm "$D/p"
    mkfifo "$D/p"
    sleep 20 > "$D/p" &
    writer=$!
    "$S" batch "$M" -i - -o "$D/o" < "$D/p" > "$D/out" 2> "$D/err" &
    job=$!
    ends ${s%:*} ${s#*:}
    verdict $? "${s%:*} while it waits for a line"
    kill $writer 2> /dev/null
    rm "$D/p"
    "$S" run "$M" --ids 3 -n 60 $SLOW > "$D/out" 2> "$D/err" &
    job=$!
    ends ${s%:*} ${s#*:}
    verdict $? "${s%:*} in a run"
    TMPDIR=$D/tmp "$S" profile "$M" --ids 3 -n 60 $SLOW -o "$D/page" \
        > "$D/out" 2> "$D/err" &
    job=$!
    ends ${s%:*} ${s#*:} && [ -z "$(ls -A "$D/tmp")" ] && [ ! -e "$D/page" ]
    verdict $? "${s%:*} in a profile: nothing is left"
done
# INT is ignored in the background of a shell: python sets it as a terminal has.
python3 - "$S" "$M" "$D" << 'PY' > "$D/out" 2> "$D/err"
import signal, subprocess, sys, time
s, m, d = sys.argv[1:]
def start(ignored):
    def before():
        for n in (signal.SIGINT, signal.SIGHUP):
            signal.signal(n, signal.SIG_IGN if ignored else signal.SIG_DFL)
    return subprocess.Popen([s, "run", m, "--ids", "3", "-n", "30", "-c", "64",
                             "-m", "31M", "--ignore-eos", "--simulate-drive",
                             "0.01,20000"], preexec_fn=before,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
def handled(p, mask): # until its handlers are there, and somewhat longer
    for _ in range(100):
        status = open("/proc/%d/status" % p.pid).read()
        if int(status.split("SigCgt:")[1].split()[0], 16) & mask:
            break
        time.sleep(.05)
    time.sleep(.2)
p = start(False)
handled(p, 1 << signal.SIGINT - 1)
p.send_signal(signal.SIGINT)
_, err = p.communicate()
print("said" if p.returncode == 130 and b"interrupted: what has begun" in err
      else "silent: %d %r" % (p.returncode, err))
p = start(True)
handled(p, 1 << signal.SIGTERM - 1)
p.send_signal(signal.SIGINT)
p.send_signal(signal.SIGHUP)
out, _ = p.communicate()
print("kept" if p.returncode == 0 and out.count(b",") == 29
      else "not kept: %d" % p.returncode)
PY
grep -q '^said' "$D/out"
verdict $? "the first INT says what happens"
grep -q '^kept' "$D/out"
verdict $? "ignored signals stay ignored"
# A parent may have made the streams non-blocking.
python3 - "$S" "$M" "$D" << 'PY' > "$D/out" 2> "$D/err"
import fcntl, os, subprocess, sys, termios, threading, time
s, m, d = sys.argv[1:]
r, w = os.pipe()
r2, w2 = os.pipe()
os.set_blocking(r, False)
os.set_blocking(w2, False)
p = subprocess.Popen([s, "batch", m, "-i", "-", "-o", "-", "-c", "64"], stdin=r,
                     stdout=w2, stderr=subprocess.PIPE)
os.close(r)
os.close(w2)
def feed():
    with os.fdopen(w, "w") as f:
        for i in range(3000):
            if i == 5:
                f.flush()
                time.sleep(.5)
            f.write("%d no JSON %s\n" % (i, "x" * 20))
threading.Thread(target=feed).start()
def waiting(): # bytes in the pipe
    return int.from_bytes(fcntl.ioctl(r2, termios.FIONREAD, bytes(4)), "little")
was, quiet = 0, 0
while quiet < 6: # until it is full
    time.sleep(.05)
    now = waiting()
    quiet = quiet + 1 if now == was and now > 50000 else 0
    was = now
with os.fdopen(r2, "rb") as f:
    lines = f.read().splitlines()
print(p.wait(), len(lines), p.stderr.read()[-200:])
PY
grep -q '^3 3000 ' "$D/out"
verdict $? "streams that do not block are polled"
echo "1..$n"
