"""A server under test, and a client of it that is only sockets and json."""
import atexit
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

tests = 0
failed = 0


def verdict(good, name, why=""):
    global tests, failed
    tests += 1
    failed += not good
    print(("ok" if good else "not ok"), tests, "-", name, flush=True)
    if not good and why != "":
        print("#", str(why)[:2000].replace("\n", "\n# "), flush=True)
    return good


def skip(name, why):
    global tests
    tests += 1
    print("ok", tests, "-", name, "# SKIP", why, flush=True)


def done():
    print("1..%d" % tests)
    sys.exit(failed > 0)


def until(what, seconds=90.0):
    """Wait until what() is true; its last value."""
    end = time.monotonic() + seconds
    while True:
        value = what()
        if value or time.monotonic() > end:
            return value
        time.sleep(0.03)


class Server:
    def __init__(self, program, model, *options, wait=True, port=True):
        self.log = open(os.path.join(os.path.dirname(model), "log"), "w+")
        command = [program, "serve", model, "-m", "256M", *options]
        if port:
            command += ["--port", "0"]
        self.process = subprocess.Popen(command, stderr=self.log,
                                        stdout=subprocess.DEVNULL)
        atexit.register(self.kill)  # also when a test breaks off
        self.port = None
        self.headers = {}
        self.host = "127.0.0.1"
        if wait:
            self.wait_ready()

    def said(self):
        self.log.flush()
        with open(self.log.name) as f:
            return f.read()

    def wait_ready(self):
        until(lambda: "listening on" in self.said() or
              self.process.poll() is not None, 120)
        found = re.search(r"listening on https?://[0-9.\[\]:]*:(\d+)\n",
                          self.said())
        if not found:
            raise RuntimeError("no server: " + self.said())
        self.port = int(found.group(1))

    def connect(self, timeout=150):
        return http.client.HTTPConnection(self.host, self.port,
                                          timeout=timeout)

    def ask(self, method, path, body=None, headers={}, timeout=150):
        """Status, headers, bytes."""
        c = self.connect(timeout)
        try:
            if isinstance(body, (dict, list)):
                body = json.dumps(body)
            c.request(method, path, body, {**self.headers, **headers})
            r = c.getresponse()
            return r.status, r.headers, r.read()
        finally:
            c.close()

    def get(self, path, **more):
        status, _, body = self.ask("GET", path, **more)
        return status, json.loads(body)

    def post(self, path, body, **more):
        status, _, answer = self.ask("POST", path, body, **more)
        return status, json.loads(answer)

    def upload(self, text):
        """Keep a text as a file for batches: status, file."""
        mark = "xxMARKxx"
        body = ("--%s\r\nContent-Disposition: form-data; name=\"purpose\""
                "\r\n\r\nbatch\r\n--%s\r\nContent-Disposition: form-data; "
                "name=\"file\"; filename=\"in.jsonl\"\r\n\r\n%s\r\n--%s--\r\n"
                % (mark, mark, text, mark))
        return self.post("/v1/files", body, headers={
            "Content-Type": "multipart/form-data; boundary=" + mark})

    def raw(self, data, timeout=60):
        """Send bytes; whatever comes until the server closes or is silent."""
        got = b""
        with socket.create_connection((self.host, self.port), timeout) as s:
            try:
                s.sendall(data)
                while True:
                    part = s.recv(65536)
                    if not part:
                        break
                    got += part
                    head, mark, rest = got.partition(b"\r\n\r\n")
                    length = re.search(rb"(?i)content-length: (\d+)", head)
                    if mark and length and len(rest) >= int(length.group(1)):
                        break
            except OSError:
                pass
        return got

    def metric(self, name):
        _, _, text = self.ask("GET", "/metrics")
        found = re.search(r"^sluice_%s ([0-9.e+-]+)$" % re.escape(name),
                          text.decode(), re.M)
        return float(found.group(1))

    def stream(self, path, body, headers={}):
        """The events of a stream: (event or None, data as text)."""
        _, _, text = self.ask("POST", path, body, headers)
        return list(events(text.decode()))

    def fds(self):
        return len(os.listdir("/proc/%d/fd" % self.process.pid))

    def rss(self):
        with open("/proc/%d/statm" % self.process.pid) as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self, seconds=120):
        """SIGTERM; the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return "did not stop"


def events(text):
    for block in text.split("\n\n"):
        name, data = None, []
        for line in block.split("\n"):
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                data.append(line[6:])
        if data:
            yield name, "\n".join(data)


def together(calls):
    """Run functions at one time; their results in order."""
    results = [None] * len(calls)

    def one(i):
        try:
            results[i] = calls[i]()
        except Exception as e:  # the test says what it expected
            results[i] = e
    threads = [threading.Thread(target=one, args=(i,))
               for i in range(len(calls))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return results


def chat(text="Hi", most=8, **more):
    return {"messages": [{"role": "user", "content": text}],
            "max_tokens": most, **more}
