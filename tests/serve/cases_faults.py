"""What breaks around a server, and the commands of its manual."""
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time

from server import *

program, folder = sys.argv[1:3]
model = folder + "/model"
ASK = {"prompt": "abc", "max_tokens": 4, "ignore_eos": True}

# ---- the manual ----

with open(folder + "/lines.jsonl", "w") as f:
    f.write(json.dumps({"custom_id": "a", "method": "POST",
                        "url": "/v1/chat/completions", "body": chat(
                            most=4000, ignore_eos=True)}) + "\n")
manual = open("bin/serve/README.md").read()
commands = re.findall(r"^    (curl .*)$", manual, re.M)


def text_of(answer):
    return answer["choices"][0]["text"]


def run(command, **names):
    for name, value in names.items():
        command = re.sub(r"\b%s\b" % name, value, command)
    done = subprocess.run("curl() { command curl -sS --fail-with-body \"$@\";"
                          "}\nU=http://127.0.0.1:%d\n%s" % (s.port, command),
                          shell=True, cwd=folder, capture_output=True,
                          timeout=150)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


if shutil.which("curl"):
    s = Server(program, model, "--data", folder + "/data",
               "--served-model-name", "k3", "--max-tokens", "8")
    make = next(c for c in commands if "@lines" in c)
    batch = next(c for c in commands if "input_file_id" in c)
    respond = next(c for c in commands if "/v1/responses -d" in c)
    wrong = []
    for command in commands:
        names = {}
        if "/files/ID" in command or "input_file_id" in command:
            names["ID"] = json.loads(run(make)[1])["id"]
        elif "/responses/ID" in command or "previous_response" in command:
            names["ID"] = json.loads(run(respond)[1])["id"]
        elif "/batches/ID" in command:
            names["ID"] = json.loads(run(make)[1])["id"]
            names["ID"] = json.loads(run(batch, **names)[1])["id"]
        elif "/queue/ID" in command:
            busy = threading.Thread(target=s.raw, args=(
                b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                b"Connection: close\r\nContent-Length: 36\r\n\r\n"
                b'{"prompt": "long","max_tokens":4000}',))
            busy.start()
            until(lambda: s.get("/queue")[1]["requests"])
            names["ID"] = s.get("/queue")[1]["requests"][0]["id"]
        elif "/models/NAME" in command:
            names["NAME"] = "k3"
        status, out, err = run(command, **names)
        if status or not out:
            wrong.append((command, status, out[:300], err[:300]))
        if "/queue/ID" in command:
            busy.join()
    verdict(len(commands) > 20 and not wrong,
            "%d commands of the manual work" % len(commands), wrong)
    s.stop()
else:
    skip("the commands of the manual", "no curl")

# ---- pages of other sites ----

s = Server(program, model, "--cors", "http://app.example")
origin = {"Origin": "http://app.example"}
asks = {**origin, "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, content-type"}
status, headers, _ = s.ask("OPTIONS", "/v1/completions", None, asks)
verdict(status == 200 and headers["Access-Control-Allow-Origin"] ==
        "http://app.example" and "POST" in
        headers["Access-Control-Allow-Methods"], "a page that may ask, may",
        (status, str(headers)))
status, headers, _ = s.ask("POST", "/v1/completions", ASK, origin)
verdict(status == 200 and headers["Access-Control-Allow-Origin"] ==
        "http://app.example", "and gets its answer")
status, headers, _ = s.ask("OPTIONS", "/v1/completions", None,
                           {**asks, "Origin": "http://evil.example"})
verdict(status >= 400 and not headers["Access-Control-Allow-Origin"],
        "another does not", status)
right = text_of(s.post("/v1/completions", ASK)[1])

# ---- slow clients ----

data = json.dumps(ASK).encode()
head = (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: "
        b"close\r\nContent-Length: %d\r\n\r\n" % len(data))
slow, parts = socket.create_connection((s.host, s.port), 150), []


def drip():
    for i in range(len(head + data)):
        slow.sendall((head + data)[i:i + 1])
        time.sleep(0.01)
    while True:
        part = slow.recv(65536)
        if not part:
            return
        parts.append(part)


dripping = threading.Thread(target=drip)
held = [socket.create_connection((s.host, s.port)) for _ in range(50)]
for i, c in enumerate(held):
    c.sendall((head + data)[:i * 5])
dripping.start()
good = sum(text_of(s.post("/v1/completions", ASK)[1]) == right
           for _ in range(20))
dripping.join()
verdict(good == 20, "50 that hold half a request keep nobody waiting", good)
verdict(right.encode() in b"".join(parts) or json.dumps(right).encode() in
        b"".join(parts), "one that sends byte after byte is answered", parts)
for c in held:
    c.close()
verdict(until(lambda: s.fds() < 40), "and their descriptors go", s.fds())
s.stop()

# ---- a full drive ----

small = folder + "/small"
os.mkdir(small)
mounted = os.getuid() == 0 and subprocess.run(
    ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", small],
    capture_output=True).returncode == 0
if mounted:
    s = Server(program, model, "--data", small + "/data",
               "--prefix-cache", small + "/cache")
    status, e = s.upload("x" * 400000)
    verdict(status in (500, 507) and "No space" in e["error"]["message"],
            "an upload to a full drive: one sentence", (status, e))
    verdict(s.get("/v1/files")[1]["data"] == [] and
            until(lambda: not os.listdir(small + "/data/files")),
            "and nothing is left of it", os.listdir(small + "/data/files"))
    lines = "\n".join(json.dumps({"custom_id": str(i), "body": {
        "prompt": "p%d" % i, "max_tokens": 300, "ignore_eos": True}})
        for i in range(12))
    until(lambda: (file := s.upload(lines)[1]).get("id"))
    file = s.get("/v1/files")[1]["data"][0]
    status, b = s.post("/v1/batches", {"input_file_id": file["id"],
                                       "endpoint": "/v1/completions"})
    full = open(small + "/fill", "wb", buffering=0)
    try:
        while True:
            full.write(b"x" * 4096)
    except OSError:
        pass
    path = "/v1/batches/" + b["id"]
    ended = until(lambda: s.get(path)[1]["status"] in ("failed", "completed"))
    b = s.get(path)[1]
    verdict(ended and b["status"] == "failed" and "No space" in
            json.dumps(b["errors"]), "a batch whose answers find no room fails",
            b)
    verdict(text_of(s.post("/v1/completions", ASK)[1]) == right,
            "a request is answered all the same")
    verdict(s.said().count("No space") <= 2 and s.stop() == 0,
            "and the log has a sentence, not one a request", s.said())
    full.close()
    subprocess.run(["umount", small])
else:
    skip("a full drive", "no mount here")

# ---- weights that go away ----

STREAMED = ["--sequences", "2", "--context", "512"]
said = subprocess.run([program, "serve", model, "-m", "1M", *STREAMED],
                      capture_output=True, text=True, timeout=120).stderr
floor = int(re.search(r"floor (?:is|of) (\d+) bytes", said).group(1))
s = Server(program, model, *STREAMED, "-m", str(floor + 1000000))
verdict(text_of(s.post("/v1/completions", ASK)[1]) == right,
        "most of the weights are read each time")
kept = folder + "/kept"
os.mkdir(kept)
shards = [f for f in os.listdir(model) if f.endswith(".safetensors")]
for f in shards:
    shutil.copy2(model + "/" + f, kept)
    os.truncate(model + "/" + f, os.path.getsize(model + "/" + f) // 3)
os.rename(model, folder + "/away")
try:
    got = s.post("/v1/completions", ASK)
except (OSError, http.client.HTTPException, ValueError):
    got = "cut"
verdict(got == "cut" or got[0] >= 500, "what runs fails", got)
verdict(until(lambda: s.get("/health")[0] == 503) and
        len(s.get("/health")[1]["error"]) > 10, "/health says so",
        s.get("/health"))
verdict(s.post("/v1/completions", ASK)[0] == 503, "and requests are told")
os.rename(folder + "/away", model)
for f in shards:
    shutil.copy2(kept + "/" + f, model)
verdict(until(lambda: s.get("/health")[0] == 200) and
        text_of(s.post("/v1/completions", ASK)[1]) == right,
        "when the folder is back, so is the server", s.said()[-800:])
s.stop()

# ---- a service manager ----

if "systemd" in subprocess.run(["ldd", program], capture_output=True,
                               text=True).stdout:
    given = socket.create_server(("127.0.0.1", 0))
    heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    heard.bind(folder + "/notify")
    heard.settimeout(120)
    p = subprocess.Popen(
        ["sh", "-c", "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" serve \"$1\" "
         "-m 256M", program, model], close_fds=False,
        preexec_fn=lambda: os.dup2(given.fileno(), 3),
        stderr=subprocess.DEVNULL,
        env={**os.environ, "NOTIFY_SOCKET": folder + "/notify"})
    try:
        said = heard.recv(4096).decode()
    except OSError as e:
        said = str(e)
    c = http.client.HTTPConnection("127.0.0.1", given.getsockname()[1],
                                   timeout=60)
    c.request("GET", "/health")
    verdict("READY=1" in said and c.getresponse().status == 200,
            "a socket that was given is listened to, and that is told", said)
    c.close()
    p.terminate()
    verdict("STOPPING=1" in heard.recv(4096).decode() and p.wait(120) == 0,
            "and its end")
else:
    skip("a service manager's socket", "built without libsystemd")
done()
