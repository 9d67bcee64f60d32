"""A slow engine: bytes come all the time, who leaves gives rows back, who asks
again gets the same answer, nobody is starved."""
import json
import re
import socket
import subprocess
import sys
import time

from server import *

program, folder = sys.argv[1:3]
model = folder + "/model"
SLOW = ["--sequences", "4", "--context", "512",
        "--simulate-drive", "0.0005"]  # most of a second a pass
said = subprocess.run([program, "serve", model, "-m", "1M", *SLOW],
                      capture_output=True, text=True, timeout=120).stderr
floor = int(re.search(r"floor (?:is|of) (\d+) bytes", said).group(1))
SLOW += ["-m", str(floor + 2000000)]  # most of the weights are read each time
s = Server(program, model, *SLOW, "--tick", "250", "--linger", "5000",
           "--max-queue", "3")


def timed(body, headers=b""):
    """When the headers came, when each part, and all of the parts."""
    data = json.dumps(body).encode()
    begin = time.monotonic()
    times, got = [], b""
    with socket.create_connection((s.host, s.port), 150) as c:
        c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                  b"Connection: close\r\n" + headers +
                  b"Content-Length: %d\r\n\r\n" % len(data) + data)
        while True:
            part = c.recv(65536)
            if not part:
                return times, got
            times.append(time.monotonic() - begin)
            got += part


ask = {"prompt": "abc", "max_tokens": 3}
times, got = timed(ask)
body = got.partition(b"\r\n\r\n")[2]
blanks = body.count(b"\r\n \r\n")
verdict(got.startswith(b"HTTP/1.1 200") and times[-1] > 1 and
        blanks >= times[-1] / 0.25 * 0.2 and body.count(b"choices") == 1,
        "an answer that takes seconds: its status at once, then blanks",
        (times, got))
verdict(times[0] < times[-1] / 3,
        "the first byte does not wait for the engine", times)
times, got = timed({**ask, "stream": True})
verdict(got.count(b": waiting") >= times[-1] / 0.25 * 0.2,
        "a stream has comments, also before its first token", (times, got))
times, got = timed({**ask, "stream": True, "max_tokens": 4},
                   b"X-Sluice-Progress: 1\r\n")
found = re.findall(rb"event: progress\ndata: (.*)\n", got)
progress = [json.loads(p) for p in found]
verdict(progress and progress[-1]["seconds_per_token"] > 0 and
        progress[-1]["layers"] == 5 and progress[-1]["seconds_left"] > 0,
        "progress events for who asks", got)


# ---- who leaves ----

def leave(body, headers={}):
    """Ask, read the status, hang up."""
    c = s.connect()
    c.request("POST", "/v1/completions", json.dumps(body), headers)
    r = c.getresponse()
    r.read(1)
    c.sock and c.sock.close()
    r.close()
    c.close()


def queue():
    return s.get("/queue")[1]


long = {"prompt": "leaves", "max_tokens": 400}
for stream in (False, True):
    gone = s.metric("hung_up_total")
    leave({**long, "stream": stream})
    verdict(until(lambda: s.metric("hung_up_total") > gone and
                  not queue()["requests"]),
            "a client that left gives its rows back, stream %s" % stream,
            queue())
cancelled = s.metric('cancelled_total{class="interactive"}')
verdict(cancelled == 2, "both were cancelled", cancelled)

# ---- who comes again ----

retry = {"X-Stainless-Retry-Count": "0"}
again = {"X-Stainless-Retry-Count": "1"}
ask = {"prompt": "again", "max_tokens": 4}
asked = s.metric('requests_total{class="interactive"}')
leave(ask, retry)
first = s.post("/v1/completions", ask, headers=again)[1]
verdict(s.metric('requests_total{class="interactive"}') == asked + 1 and
        s.metric("attached_total") == 1,
        "a retry after a hang-up follows the first: one computation",
        [s.metric('requests_total{class="interactive"}') - asked,
         s.metric("attached_total")])
third = s.post("/v1/completions", ask, headers=again)[1]
verdict(third == first and s.metric("attached_total") == 2,
        "so does one that comes when the answer was sent")
other = s.post("/v1/completions", {**ask, "max_tokens": 1},
               headers=again)[1]
verdict(other["id"] != first["id"], "with another body it is another request")
keyed = {"Idempotency-Key": "k1"}
two = together([lambda: s.post("/v1/completions", ask, headers=keyed)[1]] * 2)
verdict(two[0]["id"] == two[1]["id"] and two[0] == two[1],
        "two with one key are one", two)
asked = s.metric('requests_total{class="interactive"}')
rounds, apart = 6, []
slow = {**ask, "user": "u" * 2000000} # takes a while to be read
for i in range(rounds):
    headers = {"Idempotency-Key": "at once %d" % i}
    got = together([lambda: s.post("/v1/completions", slow,
                                   headers=headers)[1]] * 8)
    if any(g != got[0] for g in got):
        apart.append(got)
verdict(not apart and
        s.metric('requests_total{class="interactive"}') == asked + rounds,
        "so are eight at once, time and again", apart[:1])
third = s.post("/v1/completions", ask, headers=keyed)[1]
verdict(third == two[0], "a finished answer is handed out again")
status, e = s.post("/v1/completions", {**ask, "max_tokens": 2},
                   headers=keyed)
verdict(status == 422 and e["error"]["code"] == "idempotency_key_reused",
        "a key with another body is refused", (status, e))
leave({"prompt": "kept", "max_tokens": 3}, {"Idempotency-Key": "k2"})
answered = s.metric('answered_total{class="interactive"}')
verdict(until(lambda: s.metric('answered_total{class="interactive"}') >
              answered), "one with a key is finished after a hang-up")
asked = s.metric('requests_total{class="interactive"}')
begin = time.monotonic()
kept = s.post("/v1/completions", {"prompt": "kept", "max_tokens": 3},
              headers={"Idempotency-Key": "k2"})[1]
verdict(kept["choices"] and
        s.metric('requests_total{class="interactive"}') == asked,
        "and kept for who comes again", kept)
leave({"prompt": "lost", "max_tokens": 400}, retry)
verdict(until(lambda: not queue()["requests"]),
        "without a retry it is let go in the end", queue())

# ---- the queue ----

# The engine takes one request more than it has places, three more may wait:
# eight of ten at the most.
results = together([lambda i=i: s.ask("POST", "/v1/completions",
                                      {"prompt": "busy %d" % i,
                                       "max_tokens": 7})
                    for i in range(10)])
codes = sorted(r[0] for r in results)
verdict(set(codes) == {200, 429} and codes.count(200) >= 7,
        "above the queue's length: 429, the others are answered", codes)
refused = [(headers, e) for status, headers, e in results if status == 429]
verdict(all(1 <= int(headers["Retry-After"]) <= 3600 and
            json.loads(e)["error"]["code"] == "rate_limit_exceeded"
            for headers, e in refused), "with a Retry-After",
        [(str(headers), e) for headers, e in refused])
c = s.connect()
c.request("POST", "/v1/completions", json.dumps({**long, "stream": True}))
r = c.getresponse()
r.read(10)
until(lambda: queue()["requests"])
mine = queue()["requests"][0]
verdict(s.post("/queue/%s/cancel" % mine["id"], {})[0] == 200 and
        b'"code":"cancelled"' in r.read(),
        "a request is cancelled at /queue, and its stream says so")
c.close()

# ---- going down ----

c = s.connect()
c.request("POST", "/v1/completions",
          json.dumps({"prompt": "last", "max_tokens": 4, "stream": True}))
r = c.getresponse()
r.read(10)
s.process.send_signal(signal.SIGTERM)
rest = r.read()
verdict(rest.endswith(b"data: [DONE]\n\n") and s.process.wait(120) == 0,
        "SIGTERM: what runs is finished, then it goes", rest)
done()
