"""Beginnings that requests have in common, states that come back."""
import json
import os
import sys
import threading

from server import *

program, folder = sys.argv[1:3]
model = folder + "/model"
cache = folder + "/cache"
key_file = folder + "/keys"
with open(key_file, "w") as f:
    f.write("one\ntwo\n")
os.chmod(key_file, 0o600)
ONE, TWO = ({"Authorization": "Bearer " + k} for k in ("one", "two"))
ONE_CLIENT = {"headers": ONE}


def server(*options):
    s = Server(program, model, "--api-key-file", key_file, *options)
    s.headers = ONE
    return s


def rows(s):
    """Rows of prompts that were read, copied, loaded."""
    return [s.metric(n) for n in ("prompt_tokens_total",
                                  "prompt_tokens_copied_total",
                                  "prompt_tokens_loaded_total")]


def since(s, before):
    return [int(a - b) for a, b in zip(rows(s), before)]


def ids(s, text):
    return s.post("/tokenize", {"prompt": text})[1]["count"]


def text_of(answer):
    return answer["choices"][0]["text"]


# ---- the truth: alone, without a cache ----

SYSTEM = "You count stars and say how many there are. " * 12
OWN = ["first %d" % i for i in range(12)]
LONG = [{"prompt": "a long tale number %d" % i, "max_tokens": 220,
         "ignore_eos": True, **({"temperature": 0.8, "seed": i} if i else {})}
        for i in range(4)]
QUICK = {"prompt": "quick", "max_tokens": 5, "ignore_eos": True}
s = server("--sequences", "1", "--rows", "16")
own = [{"prompt": SYSTEM + o, "max_tokens": 3, "ignore_eos": True}
       for o in OWN]
truth = [text_of(s.post("/v1/completions", o)[1]) for o in own]
tale = [text_of(s.post("/v1/completions", o)[1]) for o in LONG]
quick = text_of(s.post("/v1/completions", QUICK)[1])
turn = [{"role": "system", "content": SYSTEM},
        {"role": "user", "content": "How many?"}]
first = s.post("/v1/chat/completions",
               {"messages": turn, "max_tokens": 8})[1]
turn += [{"role": "assistant", "content": "Nine."},
         {"role": "user", "content": "And now?"}]
second = s.post("/v1/chat/completions",
                {"messages": turn, "max_tokens": 8})[1]
lengths = [ids(s, o["prompt"]) for o in own]
s.stop()

# ---- many that begin alike ----

s = server("--sequences", "4", "--rows", "16")
before = rows(s)
got = together([lambda o=o: text_of(s.post("/v1/completions", o)[1])
                for o in own])
read, copied, loaded = since(s, before)
common = ids(s, SYSTEM)
verdict(got == truth, "12 requests with a common beginning: the same bits")
verdict(read + copied == sum(lengths) and loaded == 0 and
        read <= common * 3 + sum(n - common for n in lengths) + 12 * 4,
        "its %d ids are not read 12 times" % common, (read, copied, loaded))
s.stop()

# ---- through a folder ----

s = server("--prefix-cache", cache, "--rows", "16")
before = rows(s)
answer = s.post("/v1/chat/completions", {"messages": turn[:2],
                                         "max_tokens": 8})[1]
read, copied, loaded = since(s, before)
prompt = answer["usage"]["prompt_tokens"]
verdict(answer["choices"] == first["choices"] and loaded == 0 and
        read >= prompt, "a first turn is read", (read, prompt))
before = rows(s)
again = s.post("/v1/chat/completions", {"messages": turn[:2],
                                        "max_tokens": 8})[1]
verdict(again["choices"] == first["choices"] and since(s, before)[0] == 1,
        "the same once more: one row", since(s, before))
s.stop()
s = server("--prefix-cache", cache, "--rows", "16")
before = rows(s)
answer = s.post("/v1/chat/completions", {"messages": turn,
                                         "max_tokens": 8})[1]
read, copied, loaded = since(s, before)
tail = answer["usage"]["prompt_tokens"] - prompt
verdict(answer["choices"] == second["choices"] and loaded > common and
        read <= tail + 40, "after a restart the next turn reads its own rows",
        (read, loaded, tail))
s.stop()

# ---- who gives way ----


def crowd(s, who):
    """Long requests of client one fill both places; then `who` asks."""
    got = [None] * len(LONG)

    def tell(i):
        got[i] = text_of(s.post("/v1/completions", LONG[i])[1])
    threads = [threading.Thread(target=tell, args=(i,))
               for i in range(len(LONG))]
    for t in threads:
        t.start()
    until(lambda: s.metric("running") == 2)
    before = s.metric("new_tokens_total")
    status, answer = who(s)
    made = s.metric("new_tokens_total") - before
    for t in threads:
        t.join()
    return got, answer, made


total = sum(o["max_tokens"] for o in LONG)
for name, options in (("", []), (", with a cache",
                                 ["--prefix-cache", cache + "2"])):
    for why, ask in (
            ("a request of higher priority", lambda s: s.post(
                "/v1/completions", {**QUICK, "priority": -1})),
            ("one of a client that has none", lambda s: s.post(
                "/v1/completions", QUICK, **{"headers": TWO}))):
        s = server("--sequences", "2", *options)
        before = rows(s)
        got, answer, made = crowd(s, ask)
        verdict(got == tale and text_of(answer) == quick,
                "%s gets a place%s, and bits stay" % (why, name))
        verdict(s.metric("suspended_total") >= 1 and made < total / 2,
                "and does not wait for the others to end",
                (s.metric("suspended_total"), made))
        if options:
            read, copied, loaded = since(s, before)
            prompts = [ids(s, o["prompt"]) for o in LONG + [QUICK]]
            verdict(read <= sum(prompts) + 16 * s.metric("suspended_total"),
                    "no row of those that gave way is read again",
                    (read, prompts, s.metric("suspended_total")))
        verdict(s.stop() == 0, "and the server ends", s.said()[-500:])

# ---- a batch, over an end that it was given no time for ----

lines = "\n".join(json.dumps({"custom_id": str(i), "body": {
    **LONG[i], "max_tokens": 1200}}) for i in range(2))
options = ["--data", folder + "/data", "--prefix-cache", cache + "3",
           "--drain-seconds", "0"]
out = {}
for way in ("whole", "cut"):
    s = server(*options)
    begun = rows(s)
    file = s.upload(lines)[1]
    path = "/v1/batches/" + s.post("/v1/batches", {
        "input_file_id": file["id"], "endpoint": "/v1/completions"})[1]["id"]
    if way == "cut":
        until(lambda: s.metric("new_tokens_total") > 200)
        verdict(s.stop() == 0, "a batch is cut off", s.said()[-500:])
        s = server(*options)
        begun = [0, 0, 0]
    until(lambda: s.get(path)[1]["status"] == "completed")
    read, _, loaded = since(s, begun)
    out[way] = sorted(
        json.loads(line)["response"]["body"]["choices"][0]["text"]
        for line in s.ask("GET", "/v1/files/%s/content" % s.get(path)[1]
                          ["output_file_id"])[2].splitlines())
    s.stop()
verdict(out["cut"] == out["whole"] and read <= 2 and loaded > 200,
        "and goes on from its states: %d rows are read, %d loaded" %
        (read, loaded), (read, loaded))
# ---- answers, over the end of a server ----

s = server(*options)
one, two = ({"Idempotency-Key": k} for k in ("k1", "k2"))
TALK = {"messages": turn[:2], "max_tokens": 12, "n": 2, "temperature": 1,
        "seed": 5}
CUT = {**LONG[1], "max_tokens": 900}
kept = s.post("/v1/chat/completions", TALK, headers={**ONE, **one})[1]
cut = []


def ask_cut():
    try:
        cut.append(s.post("/v1/completions", CUT, headers={**ONE, **two})[1])
    except (OSError, ValueError, http.client.HTTPException):
        pass


asking = threading.Thread(target=ask_cut)
before = s.metric("new_tokens_total")
asking.start()
until(lambda: s.metric("new_tokens_total") > before + 100)
verdict(s.stop() == 0 and not cut, "a server ends amid an answer", cut)
asking.join()
s = server(*options)
again = s.post("/v1/chat/completions", TALK, headers={**ONE, **one})[1]
verdict(again == kept and s.metric("passes_total") == 0 and
        s.metric('requests_total{class="interactive"}') == 0,
        "an answer is handed out after a restart, without a pass",
        (kept, again))
whole = s.post("/v1/completions", CUT)[1]
before, made = rows(s), s.metric("new_tokens_total")
rest = s.post("/v1/completions", CUT, headers={**ONE, **two})[1]
made = s.metric("new_tokens_total") - made
verdict(text_of(rest) == text_of(whole) and made < 800 and
        rest["usage"] == whole["usage"] and since(s, before)[0] <= 1,
        "one that was cut off goes on where it was: %d of 900 ids, %d rows" %
        (made, since(s, before)[0]), rest)
verdict(os.listdir(folder + "/data/answers") == [], "and is kept no more",
        os.listdir(folder + "/data/answers"))
s.stop()
done()
