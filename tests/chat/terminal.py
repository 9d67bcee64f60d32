"""sluice chat on pipes and terminals: see test_chat_command.sh."""
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

SLUICE, FOLDER = sys.argv[1:]
MODEL = FOLDER + "/model"
WORDS = ["-t", "1", "-m", "100M"]
count = 0


def check(good, name, *more):
    global count
    count += 1
    print(("ok" if good else "not ok"), count, "-", name, flush=True)
    if not good:
        for m in more:
            print("#", repr(m)[:600], flush=True)


def pipe(text, *words):
    return subprocess.run([SLUICE, "chat", MODEL, *WORDS, *words],
                          input=text.encode(), capture_output=True)


def run(*words):
    return subprocess.run([SLUICE, "run", MODEL, *WORDS, "--chat", *words],
                          capture_output=True)


class Terminal:
    def __init__(self, *words, term="xterm"):
        self.pid, self.fd = pty.fork()
        if not self.pid:
            os.environ["TERM"] = term
            os.environ["HOME"] = FOLDER
            os.execv(SLUICE, [SLUICE, "chat", MODEL, *WORDS, *words])
        self.seen = b""

    def until(self, pattern, seconds=60):
        """What came up to a match; None after the time."""
        end = time.time() + seconds
        while True:
            m = re.search(pattern, self.seen, re.S)
            if m:
                said, self.seen = self.seen[:m.end()], self.seen[m.end():]
                return said
            if time.time() > end:
                return None
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    got = os.read(self.fd, 65536)
                except OSError:
                    got = b""
                if not got:
                    return None
                self.seen += got

    def type(self, text):
        time.sleep(0.3)  # the prompt is there before the keys are
        for key in re.findall("\x1b\\[.|.|\r", text, re.S):
            os.write(self.fd, key.encode())
            time.sleep(0.01)

    def end(self):
        """The exit status."""
        while True:
            try:
                if not os.read(self.fd, 65536):
                    break
            except OSError:
                break
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def case_pipe():
    p = pipe("Hello there\n\nAnd again\n", "-n", "12", "--no-think")
    one = run("-p", "Hello there", "-n", "12", "--no-think")
    lines = p.stdout.decode().split("\n")
    check(p.returncode == 0 and len(lines) == 3 and not lines[2] and
          all(lines[:2]) and b"\033" not in p.stdout + p.stderr,
          "a pipe gets the answers, a line each", p)
    check(one.returncode == 0 and one.stdout.decode() == lines[0] + "\n",
          "run --chat gives the same", one)
    think = pipe("Hello there\n", "-n", "9")
    check(think.returncode == 0 and think.stdout == b"" and
          b"limit" in think.stderr, "thoughts are not in a pipe", think)
    save = FOLDER + "/talk.json"
    p = pipe("/system Be brief\nHello\n/save %s\n/retry\n/quit\nno\n" %
             save, "-n", "7", "--no-think")
    lines = p.stdout.decode().split("\n")
    with open(save, encoding="utf-8") as f:
        talk = json.load(f)
    check(p.returncode == 0 and lines[0] == lines[1] and len(lines) == 3 and
          [m["role"] for m in talk["messages"]] ==
          ["system", "user", "assistant"] and
          talk["messages"][2]["content"] == lines[0], "/save, /retry, /quit", p)
    a = pipe("/system Be brief\nHello\nMore\n", "-n", "7", "--no-think")
    b = pipe("/load %s\nMore\n" % save, "-n", "7", "--no-think")
    check(a.stdout.split(b"\n")[1:] == b.stdout.split(b"\n"),
          "/load goes on where it was saved", a, b)
    warm = pipe("Hello\n/retry\n", "-n", "9", "--no-think",
                "--temperature", "1").stdout.split(b"\n")
    check(warm[0] != warm[1], "/retry samples anew", warm)
    form = pipe("Hello\n", "--no-think", "-n", "99", "--regex", "[a-c]{5}")
    check(re.fullmatch(b"[a-c]{5}\n", form.stdout), "--regex", form)
    tools = FOLDER + "/tools.json"
    with open(tools, "w") as f:
        json.dump([{"type": "function", "function": {
            "name": "f", "parameters": {"type": "object"}}}], f)
    with_tools = run("-p", "Hello there", "-n", "12", "--no-think", "--tools",
                     tools)
    check(with_tools.returncode == 0 and with_tools.stdout != one.stdout,
          "--tools is in the prompt", with_tools)
    for text, say in (("/load /nowhere\n", b"/nowhere"),
                      ("/save /nowhere/x\n", b"/nowhere/x"),
                      ("x " * 5000 + "\n", b"see --context")):
        p = pipe(text, "-n", "3")
        check(p.returncode == 1 and say in p.stderr and not p.stdout,
              "said: " + say.decode(), p)
    for words in (["--system", "x", "-p", "x"], ["-p", "x", "--chat",
                  "--effort", "huge"], ["--ids", "1", "--chat"]):
        p = subprocess.run([SLUICE, "run", MODEL, *words], capture_output=True)
        check(p.returncode == 2, "usage: " + " ".join(words), p)


def case_terminal():
    t = Terminal("-n", "20")
    check(t.until(rb"> ") is not None, "a terminal is asked", t.seen)
    t.type("Helpo\x1b[D\x7fl\x1b[C\r")
    said = t.until(rb"\n> ")
    check(said and re.search(rb"\033\[2m(?! (layer|thinking))", said),
          "thoughts are dim", said, t.seen)
    t.type("/stats\r")
    said = t.until(rb"an id\r\n.*> ")
    check(said and b"20 in its reply" in said, "/stats", said, t.seen)
    t.type("/save %s/typed.json\r" % FOLDER)
    t.until(rb"> ", 5)
    t.type("/think hide\r")
    t.until(rb"> ", 5)
    t.type("/retry\r")
    said = t.until(rb"limit\]\r\n")
    t.type("\x04")
    status = t.end()
    with open(FOLDER + "/typed.json", encoding="utf-8") as f:
        talk = json.load(f)
    check(talk["messages"][0]["content"] == "Hello", "a line is edited", talk)
    check(said is not None and status == 0, "the end of the input ends it",
          said, status)


def case_stop():
    t = Terminal("-n", "4000", "--no-think", "--ignore-eos",
                 "--simulate-drive", "0.02")
    t.until(rb"> ")
    t.type("Hello\r")
    shown = t.until(rb"layer [0-9]+/5")
    time.sleep(0.5)
    t.until(rb"[a-z]{3}")
    os.kill(t.pid, signal.SIGINT)
    said = t.until(rb"stops after this pass.*> ")
    t.type("/save %s/cut.json\r" % FOLDER)
    t.until(rb"> ", 5)
    t.type("/quit\r")
    status = t.end()
    with open(FOLDER + "/cut.json", encoding="utf-8") as f:
        talk = json.load(f)
    check(shown is not None, "a note says which layer runs", t.seen)
    check(said is not None and status == 0 and
          len(talk["messages"][1]["content"]) > 0,
          "Ctrl-C stops a reply and keeps what came", said, talk, status)


def case_dumb():
    t = Terminal("-n", "12", "--no-think", term="dumb")
    t.until(rb"> ")
    t.type("Hello there\r")
    said = t.until(rb"\n> ")
    t.type("\x04")
    check(said and b"\033" not in said and t.end() == 0 and
          run("-p", "Hello there", "-n", "12", "--no-think").stdout.strip() in
          said, "a dumb terminal gets plain text", said)


case_pipe()
case_terminal()
case_stop()
case_dumb()
print("1..%d" % count)
