#!/bin/sh
# Goal    the pages of profile and replay hold what they promise, and a browser
#         shows them: light, dark, narrow, with nothing cut off or overlapping.
# Method  pages of a tiny run; what is in the file is checked as text; Chromium,
#         where it is, lays the page out and a script that only the test adds
#         measures every text and chart; screenshots in both schemes, kept in
#         $BUILD/screens for people, must have the right background and be no
#         blank sheet.
B=${BUILD:-build}
S=$B/sluice
D=$(mktemp -d) || exit 1
trap 'rm -rf "$D"' EXIT
n=0
verdict() { # status name
    n=$((n + 1))
    [ "$1" -eq 0 ] && echo "ok $n - $2" || echo "not ok $n - $2"
}
skip() {
    n=$((n + 1))
    echo "ok $n - $1 # SKIP no chromium"
}
"$S" synth "$D/m" --preset tiny > "$D/out" 2>&1 || exit 1
IDS=5,9,2,44,17,3,8,90,21,6,7

"$S" profile "$D/m" --ids $IDS -n 6 --ignore-eos -m 33500K --device 0.04,100 \
    --device 0.06 --report "$D/r" --timeline="$D/l" --trace "$D/t2" \
    -o "$D/run.html" > "$D/ids" 2> "$D/err"
s=$?
[ $s -eq 0 ] || sed 's/^/# /' "$D/err"
[ $s -eq 0 ] && [ "$(tr ',' '\n' < "$D/ids" | wc -l)" -eq 6 ] && [ -s "$D/r" ]
verdict $? 'a run, and its page'
"$S" profile --report "$D/r" --timeline "$D/l" --trace "$D/t2" \
    -o "$D/files.html" 2> "$D/err" &&
    [ "$(sed 's/[^:]*: *//;s/.*class=.sub.*//' "$D/run.html" | wc -l)" -eq \
      "$(sed 's/[^:]*: *//;s/.*class=.sub.*//' "$D/files.html" | wc -l)" ]
verdict $? 'the same page from the files'
"$S" profile --report "$D/r" -o "$D/report.html" 2> "$D/err" &&
    ! grep -q 'Over time' "$D/report.html" && grep -q 'By layer\|by layer' \
    "$D/report.html"
verdict $? 'without a timeline: what the report has'
"$S" profile -m 37M --ids $IDS -n 5 --ignore-eos --prefetch none \
    --device 0.04 -o "$D/whole.html" "$D/m" > "$D/out" 2> "$D/err"
grep -qF "$D/m" "$D/whole.html"
verdict $? 'the page names the model, whichever word it is'
grep 'trunk is resident. .* more memory would hold more' "$D/whole.html" |
    grep -q 'raise their hits from [0-9]* to [0-9]* % and save .* s a token'
s=$?
[ $s -eq 0 ] || grep 'resident' "$D/whole.html" | sed 's/^/# /'
verdict $s 'the trunk resident: what more memory would save is simulated'
"$S" run "$D/m" --ids $IDS -n 4 --ignore-eos -m 36M --trace "$D/t" \
    > "$D/out" 2> "$D/err" &&
    "$S" replay "$D/t" --policy dhd,lru,min --prefetch none,path \
        --frames 20,40,80,120 --html "$D/counts.html" > "$D/out" &&
    "$S" replay "$D/t" --policy dhd,lru --memory 34M,36M,40M --device 0.5 \
        --compute 0.01 --html "$D/timed.html" > "$D/out"
verdict $? 'curves of replay'

"$S" profile "$D/m" --ids $IDS -n 4 --ignore-eos -m 33500K --device 0.04 \
    --device 0.06 --device 0.06 --device 0.04 -o "$D/four.html" > "$D/out" \
    2> "$D/err" && grep -q 'Drives <span' "$D/four.html" &&
    ! grep -q 'Drive 0' "$D/four.html"
verdict $? 'four drives: a heat strip each'

alone() {
    ! grep -qE '<script|src=|@import|url\(|<link|https?://' "$1"
}
s=0
for p in run report counts timed; do alone "$D/$p.html" || s=1; done
verdict $s 'no page needs anything else'

p=$(python3 -c 'import json, sys
r = json.load(open(sys.argv[1]))
print(r["policy"], "--prefetch", r["prefetch"])' "$D/r")
"$S" replay "$D/t2" --policy $p --compute "$D/r" --json --simulate-drive \
    0.04,100 --simulate-drive 0.06 > "$D/two"
"$S" replay "$D/t2" --policy $p --compute "$D/r" --json --simulate-drive \
    0.04,100 --simulate-drive 0.06 --simulate-drive 0.06 > "$D/three"
python3 - "$D/r" "$D/run.html" "$D/two" "$D/three" << 'PY'
import html, json, re, sys
r = json.load(open(sys.argv[1]))
page = html.unescape(open(sys.argv[2]).read())
d = r["decode"]
def number(text):
    return float(re.search(r"[\d.e+-]+", text).group())
def near(a, b, what):
    if abs(a - b) > .006 * abs(b) + 1e-9:
        sys.exit(f"# {what}: {a}, report {b}")
answer = re.search(r'class="answer">(.*?)</div>', page, re.S).group(1)
for unit, scale in (("s", 1), ):
    near(number(re.search(r"A token takes ([\d.e-]+) s", answer).group(1)),
         d["seconds_per_token"], "seconds in the answer")
io = d["io_s"] / d["tokens"]
near(number(re.search(r"reading takes ([\d.e-]+) s", answer).group(1)), io,
     "io in the answer")
now, three = (json.load(open(f))[0]["seconds_per_token"]
              for f in sys.argv[3:])
near(number(re.search(r"same rate would save ([\d.e-]+) s", answer).group(1)),
     max(now - three, 0), "what a drive saves")
if not re.search("<b>(I/O-bound|The router is|One drive)", answer):
    sys.exit("# called " + answer[:60])
for part in ("Drive 0", "Drive 1", "Ring", "Compute by kernel", "Time by layer",
             "One pass, close up", "Demanded experts, queue", "Trunk, device",
             "Where the experts were", "expert_frames", "prefetch_hits"):
    if part not in page:
        sys.exit("# no " + part)
if "guess" in page:
    sys.exit("# an old name of a field")
PY
verdict $? 'the answer follows from the report'

"$S" profile > "$D/out" 2> "$D/err"
[ $? -eq 2 ] && grep -q 'needs a model' "$D/err"
verdict $? 'nothing to draw: usage'
"$S" profile --report "$D/l" > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && [ "$(wc -l < "$D/err")" -eq 1 ]
verdict $? 'no report: one sentence'
"$S" profile --report "$D/r" --timeline "$D/m/config.json" -o "$D/x.html" \
    > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && grep -q 'not a timeline' "$D/err" && [ ! -e "$D/x.html" ]
verdict $? 'no timeline: one sentence, no page'
head -c 30000 "$D/l" > "$D/cut"
"$S" profile --report "$D/r" --timeline "$D/cut" -o "$D/cut.html" \
    > "$D/out" 2> "$D/err"
s=$?
[ $s -eq 0 ] || grep -q 'it has no pass' "$D/err"
verdict $? 'a timeline cut short'

CHROME=$(command -v chromium || command -v chromium-browser ||
         command -v google-chrome)
chrome() {
    timeout 100 "$CHROME" --headless --no-sandbox --disable-gpu --disable-quic \
        --no-first-run --disable-background-networking \
        --disable-component-update --disable-sync --hide-scrollbars \
        --user-data-dir="$D/user" "$@" 2> "$D/chrome.err"
}
# What is wrong with the layout, as text in the element with id "verdict".
cat > "$D/measure.js" << 'JS'
<style>svg text{letter-spacing:.07em} /* as in a wide font */</style>
<script>
addEventListener('load', () => {
  const bad = [], w = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > w)
    bad.push('page is wider than the window');
  for (const svg of document.querySelectorAll('figure svg.chart')) {
    const box = svg.closest('figure').getBoundingClientRect();
    const name = svg.getAttribute('aria-label');
    if (box.width < 100 || box.height < 50) bad.push(name + ': no size');
    const shown = [...svg.querySelectorAll('text')].filter(
        t => getComputedStyle(t).display !== 'none');
    if (shown.some(t => t.getBoundingClientRect().height < 11))
      bad.push(name + ': text is too small');
    const texts = shown.map(t => [t.textContent, t.getBoundingClientRect()]);
    for (const [s, b] of texts)
      if (b.left < box.left - 8 || b.right > box.right + 8 ||
          b.top < box.top - 8 || b.bottom > box.bottom + 8)
        bad.push(name + ': "' + s + '" is outside');
    texts.forEach(([s, a], i) => texts.slice(i + 1).forEach(([t, b]) => {
      if (a.left < b.right - 1 && b.left < a.right - 1 &&
          a.top < b.bottom - 2 && b.top < a.bottom - 2)
        bad.push(name + ': "' + s + '" and "' + t + '" overlap');
    }));
    const filled = [...svg.querySelectorAll('path,rect')].filter(
        e => !e.matches('.hit') && getComputedStyle(e).fill !== 'none');
    for (const t of shown) {
      const b = t.getBoundingClientRect();
      for (let i = 0; i <= 8; i++) {
        const p = new DOMPoint(b.left + b.width * i / 8,
                               b.top + b.height / 2);
        if (!filled.some(e => e.isPointInFill(
            p.matrixTransform(e.getScreenCTM().inverse())))) continue;
        bad.push(name + ': "' + t.textContent + '" lies on what is drawn');
        break;
      }
    }
  }
  for (const e of document.querySelectorAll('p,li,summary,.tile,.answer,td'))
    if (e.scrollWidth > e.clientWidth + 1 && e.clientWidth)
      bad.push('cut off: ' + e.textContent.slice(0, 60));
  const v = document.createElement('pre');
  v.id = 'verdict';
  v.textContent = bad.length ? bad.join('\n') : 'fine';
  document.body.append(v);
});
</script>
JS
# All pages at all widths are frames of one page, since a browser takes long to
# start: a line NAME WIDTH VERDICT for each.
cat > "$D/frames.py" << 'PY'
import html, sys
folder, *wanted = sys.argv[1:]
measure = open(folder + "/measure.js").read()
print("<!doctype html><body>")
for word in wanted:
    name, width = word.split(":")
    page = html.escape(open(f"{folder}/{name}.html").read() + measure)
    print(f'<iframe data-name="{name} {width}" srcdoc="{page}" '
          f'style="width:{width}px;height:2000px;border:0"></iframe>')
print("""<script>
addEventListener('load', () => {
  const lines = [...document.querySelectorAll('iframe')].map(f => {
    const v = f.contentDocument.getElementById('verdict');
    const said = v ? v.textContent : 'not measured';
    if (f.contentWindow.innerWidth != f.dataset.name.split(' ')[1])
      return f.dataset.name + ' wrong width';
    return said.split('\\n').map(s => f.dataset.name + ' ' + s).join('\\n');
  });
  document.body.innerHTML = '';
  const pre = document.createElement('pre');
  pre.textContent = '\\n' + lines.join('\\n') + '\\n';
  document.body.append(pre);
});
</script>""")
PY
measure() { # page:width...
    python3 "$D/frames.py" "$D" "$@" > "$D/measured.html" &&
        chrome --window-size=1200,2000 --dump-dom \
            "file://$D/measured.html" > "$D/verdicts"
}
lays_out() { # page width
    grep -q "^$1 $2 fine\$" "$D/verdicts"
    s=$?
    [ $s -eq 0 ] || grep "^$1 $2 " "$D/verdicts" | sed 's/^/# /' | head -n 8
    return $s
}
cat > "$D/shot.py" << 'PY'
import struct, sys, zlib
data = open(sys.argv[1], "rb").read()
at, body = 8, b""
while at < len(data):
    size, = struct.unpack(">I", data[at:at + 4])
    kind, chunk = data[at + 4:at + 8], data[at + 8:at + 8 + size]
    if kind == b"IHDR":
        w, h, depth, color = struct.unpack(">IIBB", chunk[:10])
    if kind == b"IDAT":
        body += chunk
    at += 12 + size
n = {2: 3, 6: 4}[color]
raw = zlib.decompress(body)
# The first row: filters need only what is left of a pixel there.
row, out = raw[1:1 + w * n], bytearray()
for i, v in enumerate(row):
    left = out[i - n] if i >= n else 0
    out.append((v + {0: 0, 1: left, 2: 0, 3: left // 2, 4: left}[raw[0]]) & 255)
want = bytes.fromhex(sys.argv[2])
if bytes(out[:3]) != want:
    sys.exit(f"# corner is {bytes(out[:3]).hex()}")
if len(body) < 20000:
    sys.exit("# a blank sheet")
PY
shot() { # page scheme corner
    mkdir -p "$B/screens"
    chrome --blink-settings=preferredColorScheme=$2 --window-size=1100,4000 \
        --screenshot="$B/screens/$1-$2.png" "file://$D/$1.html" > "$D/out" &&
        python3 "$D/shot.py" "$B/screens/$1-$2.png" $3
}
if [ -n "$CHROME" ]; then
    latencies='9 15 21 27 33'
    wanted=
    for p in $latencies; do
        python3 - "$D/r" $p > "$D/h" << 'PY'
import json, sys
r, columns = json.load(open(sys.argv[1])), int(sys.argv[2])
for name in "demand", "trunk", "prefetch":
    latency = r["latency"].setdefault(name, {})
    latency["reads"] = 1
    for side in "queue_us", "device_us":
        # Four columns an octave; names of full width.
        latency[side] = [[2 ** (13 + c // 4) * (4 + c % 4) // 4, 1]
                         for c in range(columns)]
        columns += 1
json.dump(r, sys.stdout)
PY
        "$S" profile --report "$D/h" -o "$D/h$p.html" 2> "$D/err"
        wanted="$wanted h$p:1100 h$p:920"
    done
    for p in run counts four; do
        wanted="$wanted $p:640 $p:400"
    done
    measure run:1100 counts:1100 timed:1100 $wanted
    verdict $? 'Chromium measures them'
    for p in run counts timed; do
        lays_out $p 1100
        verdict $? "Chromium lays out $p, wide"
    done
    s=0
    for p in $latencies; do
        lays_out h$p 1100 && lays_out h$p 920 || s=1
    done
    verdict $s 'Chromium lays out latencies of 9 to 38 columns'
    for p in run counts four; do
        for w in 640 400; do
            lays_out $p $w
            verdict $? "Chromium lays out $p, $w pixels wide"
        done
    done
    shot run 1 fcfcfb
    verdict $? 'screenshot, light'
    shot run 0 161615
    verdict $? 'screenshot, dark'
else
    skip 'layout and screenshots'
fi
echo "1..$n"
