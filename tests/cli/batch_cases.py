"""The cases of test_batch.sh: python3 batch_cases.py SLUICE FOLDER."""
import json
import os
import random
import signal
import subprocess
import sys
import time

SLUICE, FOLDER = sys.argv[1:]
MODEL = FOLDER + "/model"
IN, OUT = FOLDER + "/in.jsonl", FOLDER + "/out.jsonl"
with open(SLUICE, "rb") as program:
    SANITIZED = b"san_init" in program.read()
count = 0


def check(good, name):
    global count
    count += 1
    print(("ok" if good else "not ok"), count, "-", name, flush=True)


def run_alone(*words):
    p = subprocess.run([SLUICE, "run", MODEL, "-t", "1", *words],
                       capture_output=True, check=True)
    return p.stdout


def batch(lines, *words, source=IN, to=OUT, stdin=None):
    if lines is not None:
        with open(IN, "w") as f:
            for line in lines:
                f.write((line if isinstance(line, str)
                         else json.dumps(line)) + "\n")
    return subprocess.run([SLUICE, "batch", MODEL, "-i", source, "-o", to,
                           "-t", "1", "-m", "64M", *words],
                          capture_output=True, input=stdin)


def without_time(answer):
    """An answer without the only field that depends on the time."""
    if answer["response"]:
        assert answer["response"]["body"].pop("created") > 1700000000
    return answer


def answers(path=OUT):
    with open(path) as f:
        return [without_time(json.loads(line)) for line in f]


def by_id(path=OUT):
    found = {}
    for a in answers(path):
        assert a["custom_id"] not in found, a
        found[a["custom_id"]] = a
    return found


def fresh():
    for path in (OUT, OUT + ".held", OUT + ".partial"):
        if os.path.exists(path):
            os.remove(path)


def choice(answer):
    return answer["response"]["body"]["choices"][0]


def case_forms():
    fresh()
    text = "Hello, Welt"
    lines = [
        {"custom_id": "ids", "method": "POST", "url": "/v1/completions",
         "body": {"model": "Kimi-K3", "prompt": [1, 2, 3], "max_tokens": 9,
                  "return_token_ids": True}},
        {"custom_id": "text", "method": "POST", "url": "/v1/completions",
         "body": {"prompt": text, "max_tokens": 6, "return_token_ids": True}},
        {"id": "short", "prompt": text, "max_tokens": 6},
        {"id": 4, "prompt": [1, 2, 3], "max_tokens": 12, "temperature": 0.9,
         "top_p": 0.9, "seed": 17, "return_token_ids": True, "n": 1,
         "stream": False, "logprobs": None},
        {"custom_id": "chat", "method": "POST", "url": "/v1/chat/completions",
         "body": {"messages": [{"role": "system", "content": "Be."},
                               {"role": "user", "content":
                                [{"type": "text", "text": "Hi"}]},
                               {"role": "assistant", "content": "Ho"},
                               {"role": "user", "content": "Hm"}],
                  "max_completion_tokens": 3, "return_token_ids": True}},
        {"id": "default", "prompt": [5], "return_token_ids": True},
    ]
    p = batch(lines, "-n", "5", "--report", FOLDER + "/report")
    check(p.returncode == 0, "all forms: exit 0")
    a = by_id()
    check(len(a) == len(lines), "an answer each")

    def ids(*words):
        out = run_alone("--ids", "1,2,3", *words)
        return [int(i) for i in out.split(b",")]
    check(choice(a["ids"])["token_ids"] == ids("-n", "9"),
          "ids are those of run")
    check(choice(a[4])["token_ids"] ==
          ids("-n", "12", "--temperature", "0.9", "--top-p", "0.9", "--seed",
              "17"), "sampled ids are those of run")
    alone = run_alone("-p", text, "-n", "6")[:-1]
    alone = alone.decode(errors="replace")
    check(choice(a["text"])["text"] == alone == choice(a["short"])["text"],
          "text is that of run")
    usage = a["ids"]["response"]["body"]["usage"]
    check(usage == {"prompt_tokens": 3, "completion_tokens": 9,
                    "total_tokens": 12}, "usage")
    check(choice(a["ids"])["finish_reason"] == "length", "finish_reason")
    chat = choice(a["chat"])
    check(chat["message"]["role"] == "assistant" and
          isinstance(chat["message"]["content"], str) and
          len(chat["token_ids"]) == 3, "a chat answers with a message")
    check(len(choice(a["default"])["token_ids"]) == 5, "-n is the default")
    with open(FOLDER + "/report") as f:
        r = json.load(f)
    check(r["batch"]["answered"] == 6 and
          r["batch"]["tokens"] == 9 + 6 + 6 + 12 + 3 + 5 and
          r["batch"]["forecast"]["tokens_per_s"] > 0 and
          (SANITIZED or
           r["peak_rss_bytes"] <= r["plan"]["budget_bytes"]),
          "the report is about the whole job")


def case_stop():
    fresh()
    whole = [int(i) for i in run_alone("--ids", "9,8", "-n", "12").split(b",")]
    text = subprocess.run([SLUICE, "tokenize", MODEL, "--decode", "--lines"],
                          input=",".join(map(str, whole)).encode() + b"\n",
                          capture_output=True, check=True).stdout
    text = json.loads(text)
    at = next(i for i in range(3, len(text)) if text[i] != "\ufffd" and
              text.index(text[i]) == i)
    batch([{"id": "stop", "prompt": [9, 8], "max_tokens": 12,
            "stop": ["never this", text[at]], "return_token_ids": True}])
    c = choice(answers()[0])
    check(c["text"] == text[:at] and c["finish_reason"] == "stop" and
          c["token_ids"] == whole[:len(c["token_ids"])] and
          len(c["token_ids"]) < 12, "a stop string cuts the text")


def case_bad():
    fresh()
    long = {"id": "long", "prompt": [1] * 5000}
    bad = {
        "model": {"id": "model", "prompt": "x", "model": "gpt-9"},
        "field": {"id": "field", "prompt": "x", "bogus": 1},
        "unserved": {"id": "unserved", "prompt": "x", "min_tokens": 2},
        "tools": {"id": "tools", "messages": [{"role": "user", "content": ""}],
                  "tools": [{"type": "function"}]},
        "image": {"id": "image", "messages": [
            {"role": "user", "content": [{"type": "image_url"}]}]},
        "role": {"id": "role", "messages": [{"role": "who", "content": ""}]},
        "ids": {"id": "ids", "prompt": [1, 10 ** 6]},
        "empty": {"id": "empty", "prompt": ""},
        "most": {"id": "most", "prompt": "x", "max_tokens": 0},
        "url": {"custom_id": "url", "url": "/v1/embeddings",
                "body": {"prompt": "x"}},
        "top": {"id": "top", "prompt": "x", "top_p": 2},
        "long": long,
    }
    lines = [{"id": "first", "prompt": [1], "max_tokens": 2}, "{\"id\": 3",
             "[]", "", "\x01", {"prompt": "no id"}, *bad.values(),
             {"id": "first", "prompt": [2], "max_tokens": 2},
             {"id": "last", "prompt": [1], "max_tokens": 2}]
    p = batch(lines, "-c", "4096")
    check(p.returncode == 3, "bad lines: exit 3 if the rest succeeded")
    check(b"2 answered, 17 errors (1 with the custom_id" in p.stderr,
          "and a summary")
    found = answers()
    errors = [a for a in found if a["error"]]
    check(len(found) == 19 and len(errors) == 17 and
          all(a["response"] is None and a["error"]["message"]
              for a in errors), "an error each")
    codes = {a["custom_id"]: a["error"]["code"] for a in errors
             if a["custom_id"] is not None}
    check(all(name in codes for name in bad) and
          codes["first"] == "duplicate_custom_id" and
          codes["long"] == "context_length_exceeded" and
          codes["field"] == "unknown_field" and
          codes["model"] == "model_not_found", "with a code")
    with open(OUT, "rb") as f:
        before = f.read()
    p = batch(lines, "-c", "4096")
    with open(OUT, "rb") as f:
        check(p.returncode == 3 and f.read() == before and
              b"19 finished before (17 with an error)" in p.stderr,
              "nothing is answered twice")
    fresh()
    p = batch([long, lines[0]])
    check(p.returncode == 0 and
          usage(answers())["long"]["prompt_tokens"] == 5000,
          "without -c the context grows to the longest prompt")


def usage(found):
    return {a["custom_id"]: a["response"]["body"]["usage"] for a in found}


def case_limits():
    fresh()
    ask = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 3}
    p = batch([{"id": "a", **ask},
               {"id": "b", **ask, "reasoning_effort": "none"},
               {"id": "c", "prompt": "x", "max_tokens": 2}])
    check(b"\n3 texts came to their limit" in p.stderr and
          b"\n1 of them had not ended its thoughts and has no answer" in
          p.stderr, "what ended at a limit, or in its thoughts, is said")
    fresh()
    p = batch(["{"])
    check(p.returncode == 3 and b"0 answered, 1 error" in p.stderr,
          "no answer at all: exit 3")


def job(n, seed):
    r = random.Random(seed)
    return [{"id": "r%d" % i, "seed": i, "temperature": i % 2,
             "prompt": [r.randrange(500) for _ in range(r.randrange(1, 30))],
             "max_tokens": r.randrange(1, 12), "return_token_ids": True}
            for i in range(n)]


def case_order_and_resume():
    lines = job(24, 1)
    fresh()
    batch(lines, "--sequences", "5")
    whole = by_id()
    check(len(whole) == 24, "mixed lengths: an answer each")
    fresh()
    p = batch(lines, "--sequences", "9", "--keep-order", "--draft", "2")
    names = [a["custom_id"] for a in answers()]
    check(p.returncode == 0 and names == [x["id"] for x in lines],
          "--keep-order keeps it")
    check(by_id() == whole, "the same answers in other company")
    with open(OUT) as f:
        text = f.readlines()
    random.Random(2).shuffle(text)
    with open(OUT, "w") as f:
        f.writelines(text[:9])
        f.write(text[9][:33])
    batch(lines)
    with open(OUT) as f:
        again = f.readlines()
    check(again[:9] == text[:9] and by_id() == whole,
          "goes on where a crash cut the output")
    p = batch(None, "--keep-order", source="-", to="-",
              stdin="".join(json.dumps(x) + "\n" for x in lines).encode())
    got = [without_time(json.loads(x)) for x in p.stdout.splitlines()]
    check(p.returncode == 0 and
          [a["custom_id"] for a in got] == [x["id"] for x in lines] and
          {a["custom_id"]: a for a in got} == whole, "from stdin to stdout")


def case_logits():
    fresh()
    batch([{"id": "a", "prompt": [1, 2, 3], "max_tokens": 4},
           {"id": "b", "prompt": [3, 4], "max_tokens": 3}],
          "--logits", FOLDER + "/logits")
    good = True
    for n, ids, most in ((1, "1,2,3", "4"), (2, "3,4", "3")):
        run_alone("--ids", ids, "-n", most, "--logits", FOLDER + "/alone")
        with open(FOLDER + "/alone", "rb") as a, \
                open(FOLDER + "/logits.%d" % n, "rb") as b:
            good = good and a.read() == b.read()
    check(good, "--logits are those of run")


def case_signals():
    """Two requests that end and one that does not; then the signal."""
    for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        p = subprocess.Popen([SLUICE, "batch", MODEL, "-i", "-", "-o", "-",
                              "-t", "1", "-m", "64M", "--sequences", "2"],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE)
        for i, most in enumerate((2, 4000, 2)):
            p.stdin.write(json.dumps({"id": i, "prompt": [1],
                                      "ignore_eos": True,
                                      "max_tokens": most}).encode() + b"\n")
        p.stdin.flush()
        first = [json.loads(p.stdout.readline())["custom_id"]
                 for _ in range(2)]
        p.send_signal(number)
        rest, said = p.communicate()
        check(p.returncode == status and sorted(first) == [0, 2] and
              rest == b"" and b"the same command goes on" in said and
              b"sluice batch " in said,
              "%s ends it between two passes" % number.name)


def case_partial():
    """The long request is cut, and goes on from where it was."""
    fresh()
    report = FOLDER + "/report"
    lines = [{"id": "short", "prompt": [1], "max_tokens": 2},
             {"id": "long", "prompt": [1, 2], "max_tokens": 1500,
              "ignore_eos": True, "return_token_ids": True, "seed": 4,
              "temperature": 0.7}]
    words = ["--sequences", "2", "--report", report]
    with open(IN, "w") as f:
        f.writelines(json.dumps(line) + "\n" for line in lines)

    def cut():
        p = subprocess.Popen([SLUICE, "batch", MODEL, "-i", IN, "-o", OUT,
                              "-t", "1", "-m", "64M", *words],
                             stderr=subprocess.DEVNULL)
        while not os.path.exists(OUT) or not os.path.getsize(OUT):
            time.sleep(0.01)
        p.send_signal(signal.SIGTERM)
        return p.wait()
    status = cut()
    check(status == 143 and os.path.exists(OUT + ".partial"),
          "what is unfinished is kept")
    with open(OUT + ".partial") as f:
        kept = f.read()
    batch(lines, *words)
    whole = [int(i) for i in run_alone(
        "--ids", "1,2", "-n", "1500", "--ignore-eos", "--seed", "4",
        "--temperature", "0.7").split(b",")]
    with open(report) as f:
        r = json.load(f)["batch"]
    check(choice(by_id()["long"])["token_ids"] == whole and
          r["tokens_found_before"] > 0 and
          r["tokens"] + r["tokens_found_before"] == 1500,
          "and gone on with, to the same ids")
    check(not os.path.exists(OUT + ".partial"), "until the job is done")
    for wrong in (kept[:len(kept) // 2], "", kept.replace("version 1", "v"),
                  kept.replace(" 1", " 99999999", 3)):
        fresh()
        with open(OUT + ".partial", "w") as f:
            f.write(wrong)
        batch(lines, *words)
        if choice(by_id()["long"])["token_ids"] != whole:
            check(False, "a broken file of unfinished answers does no harm")
            return
    check(True, "a broken file of unfinished answers does no harm")


def case_exits():
    fresh()

    def status(words, want, say):
        p = subprocess.run([SLUICE, "batch", *words], capture_output=True)
        check(p.returncode == want and say in p.stderr.splitlines()[0],
              "exit %d: %s" % (want, say.decode()))
    status([MODEL, "-i", IN], 2, b"needs -i and -o")
    status([MODEL, "-i", FOLDER + "/none", "-o", OUT], 1, b"none")
    status([FOLDER, "-i", IN, "-o", OUT], 1, b"config.json")
    batch([{"id": "a", "prompt": [1]}])
    status([MODEL, "-i", IN, "-o", IN], 1, b"are the same file")
    fresh()
    status([MODEL, "-i", IN, "-o", OUT, "-m", "1M"], 1, b"the floor")
    status([MODEL, "-i", IN, "-o", OUT, "-m", "40M", "--sequences", "512"], 1,
           b"no room for 512 sequences")
    status([MODEL, "-i", IN, "-o", OUT, "--sequences", "513"], 2,
           b"--sequences is at most 512")
    status([MODEL, "-i", IN, "-o", OUT, "--sequences", "9", "--rows", "8"], 2,
           b"--sequences is at most 8, the --rows")
    open(IN, "w").close()
    p = subprocess.run([SLUICE, "batch", MODEL, "-i", IN, "-o", OUT],
                       capture_output=True)
    check(p.returncode == 3 and os.path.getsize(OUT) == 0,
          "an empty input has no answer: exit 3")


case_forms()
case_stop()
case_bad()
case_limits()
case_order_and_resume()
case_logits()
case_signals()
case_partial()
case_exits()
print("1..%d" % count)
