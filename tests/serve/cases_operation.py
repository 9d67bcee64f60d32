"""Keys, limits, sockets, floods, kills: whoever does whatever, the others are
served, and files are whole."""
import json
import os
import random
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time

from server import *

program, folder = sys.argv[1:3]
model = folder + "/model"
KILLS = int(os.environ.get("KILLS", "4"))
MUTATIONS = int(os.environ.get("MUTATIONS", "300"))
STREAMS = int(os.environ.get("STREAMS", "60"))
REQUESTS = int(os.environ.get("REQUESTS", "400"))
seed = int(os.environ.get("SEED", time.time_ns() % 100000))
random.seed(seed)
print("# seed", seed)
key_file = folder + "/keys"
with open(key_file, "w") as f:
    f.write("# ours\nsecret-one\n\nsecret-two\n")
os.chmod(key_file, 0o600)
data = folder + "/data"
log = folder + "/access"

# ---- keys ----

table = open("bin/serve/routes.c").read()
routes = re.findall(r'\{ "([A-Z]+)", "([^"]+)",\s*\w+,\s*(ROUTE_\w+)', table)
s = Server(program, model, "--api-key-file", key_file, "--data", data,
           "--access-log", log)
bad = []
for method, path, kind in routes:
    path = path.replace("{id}", "x")
    for headers, known in (({}, False), ({"Authorization": "Bearer no"}, False),
                           ({"Authorization": "Bearer secret-two"}, True),
                           ({"x-api-key": "secret-one"}, True)):
        status = s.ask(method, path, "{}" if method == "POST" else None,
                       headers)[0]
        if (status == 401) != (kind != "ROUTE_OPEN" and not known):
            bad.append((method, path, headers, status))
verdict(len(routes) > 20 and not bad,
        "%d routes: all ask for a key, but health and the page" % len(routes),
        bad)
opened = sorted(p for _, p, k in routes if k == "ROUTE_OPEN")
verdict(opened == ["/", "/health", "/page.css", "/page.js"], "and those are "
        "all that are open", opened)
# A line is written after its answer was sent.
until(lambda: open(log).read().count("\n") >= 4 * len(routes))
text = open(log).read()
lines = [json.loads(line) for line in text.splitlines()]
verdict(len(lines) >= 4 * len(routes) and "secret" not in text and
        all({"status", "path", "ms", "key"} <= set(e) for e in lines),
        "the access log has a line of JSON for each, and no key")
s.headers = {"Authorization": "Bearer secret-one"}
verdict(s.post("/v1/completions", {"prompt": "a", "max_tokens": 2})[0] == 200,
        "a key opens")
os.chmod(key_file, 0o644)
other = subprocess.run([program, "serve", model, "--api-key-file", key_file],
                       capture_output=True, text=True, timeout=120)
verdict(other.returncode == 1 and "chmod 600" in other.stderr,
        "a key file that others can read is refused", other.stderr)
os.chmod(key_file, 0o600)
other = subprocess.run([program, "serve", model, "--host", "0.0.0.0",
                        "--port", "0"], capture_output=True, text=True,
                       timeout=120)
verdict(other.returncode == 1 and "--api-key-file" in other.stderr,
        "an address that others reach needs keys", other.stderr)
other = subprocess.run([program, "serve", model, "--data", data, "--port",
                        "0"], capture_output=True, text=True, timeout=120)
verdict(other.returncode == 1 and "another server" in other.stderr,
        "two servers do not share a folder of data", other.stderr)
s.stop()

manual = open("bin/serve/README.md").read()
missing = [p for _, p, _ in routes
           if "$U" + p.replace("{id}", "ID") not in manual and
           "$U" + p.replace("{id}", "NAME") not in manual and
           p not in ("/page.css", "/page.js")]
verdict(not missing, "the manual has a command for every path", missing)

# ---- who may ask, and how much ----

s = Server(program, model, "--max-body", "100K", "--max-connections", "8")
ask = {"prompt": "a", "max_tokens": 2}
for name, headers, status in [
    ("a page of another site", {"Origin": "http://evil.example"}, 403),
    ("a name that was made to lead here", {"Host": "evil.example"}, 403),
    ("the page itself", {"Origin": "http://127.0.0.1:%d" % s.port}, 200),
]:
    got = s.ask("POST", "/v1/completions", ask, headers)[0]
    verdict(got == status, "%s: %d" % (name, status), got)
status, e = s.post("/v1/completions", {"prompt": "a" * 200000})
verdict(status == 413 and e["error"]["code"] == "body_too_large",
        "a body above the limit: 413", (status, e))
chunks = b"".join(b"2000\r\n" + b"a" * 8192 + b"\r\n" for _ in range(20))
got = s.raw(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
verdict(b" 413 " in got.split(b"\r\n")[0], "in chunks, too", got[:200])
got = s.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\n" +
            b"X-Long: " + b"a" * 100000 + b"\r\n\r\n")
verdict(b" 431 " in got.split(b"\r\n")[0] or b" 413 " in got[:20],
        "headers above the limit: refused", got[:200])
got = s.raw(b"GET /v1/models/a%0d%0aX-Evil:%201 HTTP/1.1\r\n"
            b"Host: localhost\r\n\r\n")
verdict(b" 404 " in got.split(b"\r\n")[0] and b"\nX-Evil" not in got,
        "CRLF in a path becomes no header", got)
held = [socket.create_connection((s.host, s.port)) for _ in range(8)]
until(lambda: s.get("/health")[0] == 503)
status, e = s.get("/health")
verdict(status == 503 and e["error"]["code"] == "too_many_connections",
        "above the number of connections: 503", (status, e))
for c in held:
    c.close()
verdict(until(lambda: s.get("/health")[0] == 200), "when they go, others come")

# Half-open sockets, a byte now and then, a reader that does not read.
slow = [socket.create_connection((s.host, s.port)) for _ in range(4)]
slow[0].sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-"
                b"Length: 100\r\n\r\n{")
slow[1].sendall(b"G")
body = json.dumps({"prompt": "a", "max_tokens": 3000, "stream": True,
                   "ignore_eos": True}).encode()
slow[2].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
slow[2].sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-"
                b"Length: %d\r\n\r\n" % len(body) + body)
good = 0
for i in range(10):
    slow[1].sendall(b"x")
    good += s.post("/v1/completions", ask)[0] == 200
verdict(good == 10, "slow and silent clients keep nobody waiting", good)
for c in slow:
    c.close()
verdict(until(lambda: not s.get("/queue")[1]["requests"]),
        "and cost nothing once they are gone")

# ---- anything at all ----

seeds = [b'POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n'
         b'Content-Length: 79\r\n\r\n{"messages":[{"role":"user","content":'
         b'"Hi"}],"max_tokens":2,"temperature":0.5 }',
         b'POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 71'
         b'\r\n\r\n{"max_tokens":2,"messages":[{"role":"user","content":"Hi"}],'
         b'"system":""}',
         b'POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Length: 52'
         b'\r\n\r\n{"input":[{"role":"user","content":"Hi"}],"tools":[]}',
         b'GET /v1/files/x?limit=3&after=%00 HTTP/1.1\r\nHost: localhost\r\n'
         b'Cookie: a=b\r\n\r\n',
         b'POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 14'
         b'\r\n\r\n{"prompt":"a"}']
for i in range(MUTATIONS):
    m = bytearray(random.choice(seeds))
    for _ in range(random.choice([1, 1, 2, 5, 30])):
        at = random.randrange(len(m))
        what = random.randrange(4)
        if what == 0:
            m[at] = random.randrange(256)
        elif what == 1:
            del m[at:at + random.randrange(1, 9)]
        elif what == 2:
            m[at:at] = random.choice([b'"', b"{", b"[", b"\r\n", b"1e999",
                                      b"\x00", b"\\ud800", b"-", b"null"])
        else:
            m[at:at] = m[at:at + random.randrange(1, 40)]
        m = m or bytearray(b"x")
    try:
        s.raw(bytes(m), timeout=0.05)
    except OSError:
        pass
verdict(s.process.poll() is None and
        until(lambda: s.get("/health")[0] == 200) and
        s.post("/v1/completions", ask)[0] == 200,
        "%d random requests: it answers the next" % MUTATIONS,
        s.said()[-1000:])
verdict(s.stop() == 0, "and ends with 0", s.said()[-1500:])

# ---- many ----

s = Server(program, model, "--max-queue", "100000", "--tick", "200")


def stream_one(i):
    text = s.stream("/v1/completions", {"prompt": "x%d" % (i % 7),
                                        "max_tokens": 6, "stream": True})
    return "".join(json.loads(d)["choices"][0]["text"] for _, d in text[:-1])


whole = {i: s.post("/v1/completions", {"prompt": "x%d" % i, "max_tokens": 6})
         [1]["choices"][0]["text"] for i in range(7)}


def wave(n):
    got = together([lambda i=i: stream_one(i) for i in range(n)])
    return [g for i, g in enumerate(got) if g != whole[i % 7]]


wrong, rss = [], 0
for n in range(0, REQUESTS, STREAMS):
    wrong += wave(STREAMS)
    if not rss and n >= REQUESTS / 10:
        time.sleep(6)  # what is free goes back every five seconds
        rss = s.rss()
verdict(not wrong, "%d streams at a time, %d in all: right" %
        (STREAMS, REQUESTS), wrong[:3])
if os.environ.get("SANITIZED"):
    skip("memory stays", "a sanitizer keeps what is freed")
else:
    verdict(until(lambda: s.rss() < rss * 1.05, 12),
            "memory stays: within 5 %% of %d" % rss, s.rss())
before = s.fds()
c = s.connect()
c.request("GET", "/health")
c.getresponse().read()
until(lambda: s.fds() <= before + 1)
verdict(s.fds() < 60, "no descriptor is left", s.fds())
c.close()
s.stop()

# ---- files and batches, through kills ----

LINES = 12
with open(folder + "/lines", "w") as f:
    for i in range(LINES):
        f.write(json.dumps({
            "custom_id": "c%d" % i, "method": "POST",
            "url": "/v1/completions",
            "body": {"prompt": "p%d" % i, "max_tokens": 200 + 20 * i,
                     "ignore_eos": True}} if i != 5 else {
            "custom_id": "c5", "method": "POST", "url": "/v1/completions",
            "body": {"prompt": 5}}) + "\n")
subprocess.run([program, "batch", model, "-i", folder + "/lines", "-o",
                folder + "/want", "-m", "256M"], stderr=subprocess.DEVNULL)
want = {}
for line in open(folder + "/want"):
    o = json.loads(line)
    if not o["error"]:
        want[o["custom_id"]] = o["response"]["body"]["choices"]


def upload(s, path):
    return s.upload(open(path).read())


shutil.rmtree(data)
s = Server(program, model, "--data", data)
status, file = upload(s, folder + "/lines")
verdict(status == 200 and file["bytes"] == os.path.getsize(folder + "/lines"),
        "a file is uploaded", (status, file))
got = s.ask("GET", "/v1/files/%s/content" % file["id"])[2]
verdict(got == open(folder + "/lines", "rb").read(), "and is the same")
status, batch = s.post("/v1/batches", {
    "input_file_id": file["id"], "endpoint": "/v1/completions",
    "completion_window": "24h", "metadata": {"a": "b"}})
verdict(status == 200 and batch["status"] == "validating", "a batch is made",
        batch)
path = "/v1/batches/" + batch["id"]
counts, chats = [], []


def ask_talk():
    try:
        chats.append(s.post("/v1/completions", {
            "prompt": "x1", "max_tokens": 6})[1]["choices"][0]["text"])
    except (OSError, ValueError, http.client.HTTPException):
        pass  # killed


for _ in range(KILLS):
    threading.Thread(target=ask_talk, daemon=True).start()
    time.sleep(random.uniform(0.02, 0.35))
    try:
        counts.append(s.get(path)[1]["request_counts"]["completed"])
    except OSError:
        pass
    s.kill()
    s = Server(program, model, "--data", data)
until(lambda: s.get(path)[1]["status"] == "completed")
verdict(all(c == whole[1] for c in chats), "chats beside it: %d answered, and "
        "right" % len(chats), chats)
batch = s.get(path)[1]
verdict(batch["status"] == "completed" and batch["request_counts"] == {
    "total": LINES, "completed": LINES - 1, "failed": 1} and
    batch["metadata"] == {"a": "b"}, "killed %d times it is completed" % KILLS,
    batch)
out = s.ask("GET", "/v1/files/%s/content" % batch["output_file_id"])[2]
lines = [json.loads(line) for line in out.splitlines()]
verdict(sorted(o["custom_id"] for o in lines) == sorted(want) and
        all(o["response"]["body"]["choices"] == want[o["custom_id"]]
            for o in lines), "every line once, with the answer of batch",
        [o["custom_id"] for o in lines])
out = s.ask("GET", "/v1/files/%s/content" % batch["error_file_id"])[2]
verdict(json.loads(out)["custom_id"] == "c5", "the bad line is in the errors")
verdict(s.ask("DELETE", "/v1/files/" + file["id"])[0] == 200 and
        s.get("/v1/files/" + file["id"])[0] == 404, "a file is deleted")
status, list_ = s.get("/v1/files?limit=1")
verdict(len(list_["data"]) == 1 and list_["has_more"] and
        len(s.get("/v1/files?after=" + list_["last_id"])[1]["data"]) == 1,
        "files are listed in pages", list_)

# A batch gives way to a chat, and is cancelled.
file = upload(s, folder + "/lines")[1]
verdict(s.ask("DELETE", "/v1/files/" + file["id"])[0] == 200, "unused: gone")
with open(folder + "/long", "w") as f:
    for i in range(40):
        f.write(json.dumps({"custom_id": str(i), "body": {
            "prompt": "long %d" % i, "max_tokens": 4000,
            "ignore_eos": True}}) + "\n")
file = upload(s, folder + "/long")[1]
batch = s.post("/v1/batches", {"input_file_id": file["id"], "endpoint":
                               "/v1/completions"})[1]
path = "/v1/batches/" + batch["id"]
until(lambda: s.metric("running_batch") == 16)
verdict(s.ask("DELETE", "/v1/files/" + file["id"])[0] == 409,
        "a file that a batch reads stays")
asked = s.metric("passes_total")
status, answer = s.post("/v1/completions", {"prompt": "x1", "max_tokens": 6})
passes = s.metric("passes_total") - asked
verdict(answer["choices"][0]["text"] == whole[1] and passes < 40,
        "a request gets a place from a batch that has all", passes)
verdict(s.post(path + "/cancel", {})[0] == 200 and
        until(lambda: s.get(path)[1]["status"] == "cancelled") and
        until(lambda: s.metric("running_batch") == 0),
        "a batch is cancelled", s.get(path))
verdict(s.stop() == 0, "SIGTERM ends it with 0", s.said()[-500:])
status = subprocess.run(["ls", data + "/batches"], capture_output=True,
                        text=True).stdout
verdict(".out" not in status and ".in" not in status,
        "nothing of the journals is left", status)

# A small place.
s = Server(program, model, "--data", data + "2,100")
status, e = upload(s, folder + "/lines")
verdict(status == 413 and e["error"]["code"] == "storage_full" and
        s.get("/v1/files")[1]["data"] == [] and
        until(lambda: os.listdir(data + "2/files") == []),
        "more than --data allows: 413, and nothing is left", (status, e))
s.stop()

# ---- while it is loaded ----

s = Server(program, model, "--unix", folder + "/early", "--simulate-drive",
           "0.0005", wait=False)


def early(request):
    with socket.socket(socket.AF_UNIX) as c:
        # The file is there before somebody listens.
        until(lambda: c.connect_ex(folder + "/early") == 0)
        c.sendall(request + b"\r\nHost: x\r\nConnection: close\r\n\r\n")
        got = c.makefile("rb").read()
    head, _, body = got.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


refused = early(b"POST /v1/completions HTTP/1.1\r\nContent-Length: 0")
seen = []
until(lambda: seen.append(early(b"GET /health HTTP/1.1")) or
      seen[-1][0] == 200)
before = [h for status, h in seen if status == 503]
known = [h for h in before if h["bytes_to_load"]]
part = [h["loaded_bytes"] for h in known]
verdict(all(h["status"] == "loading" for h in before) and
        len(set(h["bytes_to_load"] for h in known)) == 1 and
        part == sorted(part) and part[-1] <= known[0]["bytes_to_load"] and
        any(0 < n < known[0]["bytes_to_load"] for n in part),
        "/health says how much of the weights is there", seen)
verdict(seen[-1][1]["status"] == "ready" and
        "loaded_bytes" not in seen[-1][1], "and then that it is ready",
        seen[-1])
verdict(refused[0] == 503 and refused[1]["error"]["code"] == "loading",
        "a request that comes too early: 503", refused)
s.stop()

# ---- sockets ----

s = Server(program, model, "--unix", folder + "/sock")
with socket.socket(socket.AF_UNIX) as c:
    c.connect(folder + "/sock")
    c.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    verdict(b"200 OK" in c.recv(4096), "a socket in the file system")
s.stop()
verdict(not os.path.exists(folder + "/sock"), "it goes with the server")
if shutil.which("openssl"):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes",
                    "-keyout", folder + "/key.pem", "-out",
                    folder + "/cert.pem", "-days", "2", "-subj",
                    "/CN=sluice", "-addext", "subjectAltName=IP:127.0.0.1"],
                   check=True, capture_output=True)
    s = Server(program, model, "--tls-cert", folder + "/cert.pem",
               "--tls-key", folder + "/key.pem")
    context = ssl.create_default_context(cafile=folder + "/cert.pem")
    c = http.client.HTTPSConnection(s.host, s.port, context=context)
    c.request("POST", "/v1/completions", json.dumps(
        {"prompt": "x1", "max_tokens": 6}))
    verdict(json.loads(c.getresponse().read())["choices"][0]["text"] ==
            whole[1], "HTTPS")
    c.close()
    s.stop()
else:
    skip("HTTPS", "no openssl")
done()
