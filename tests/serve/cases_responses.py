"""Responses that are kept, and those that go on from them."""
import json
import os
import sys

from server import *

program, folder = sys.argv[1:3]
model = folder + "/model"
data = folder + "/data"
kept = data + "/responses/"
key_file = folder + "/keys"
ONE, TWO = ({"Authorization": "Bearer " + k} for k in ("one", "two"))


def keys(*names):
    with open(key_file, "w") as f:
        f.write("\n".join(names) + "\n")
    os.chmod(key_file, 0o600)


def server(*options):
    s = Server(program, model, "--context", "2048", "--api-key-file",
               key_file, *options)
    s.headers = ONE
    return s


keys("one", "two")
s = server("--data", data)
TOOLS = [{"type": "function", "name": "weather", "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}},
    "required": ["city"], "additionalProperties": False}, "strict": True}]


def respond(text, before=None, **more):
    ask = {"input": text, "max_output_tokens": 8, **more}
    if before:
        ask["previous_response_id"] = before
    status, r = s.post("/v1/responses", ask)
    return r if status == 200 else (status, r)


def get(r, **more):
    return s.get("/v1/responses/" + (r if isinstance(r, str) else r["id"]),
                 **more)


def user(text):
    return {"role": "user", "content": text}


def said(r):
    """All but ids: what a model said, and what it was told."""
    out = [{k: v for k, v in i.items() if k not in ("id", "call_id")}
           for i in r["output"]]
    return out, r["usage"]


# ---- kept ----

first = respond("Hello", instructions="Be brief.", metadata={"a": "b"},
                temperature=0)
verdict(get(first) == (200, first) and first["store"] is True and
        first["metadata"] == {"a": "b"} and first["temperature"] == 0 and
        first["instructions"] == "Be brief.",
        "what is kept is what was sent, with the fields of its request", first)
second = respond("And then?", first["id"])
told = [user("Hello")] + first["output"] + [user("And then?")]
whole = respond(told, store=False)
verdict(said(second) == said(whole) and
        second["previous_response_id"] == first["id"] and
        whole["previous_response_id"] is None,
        "going on from it is as being told all of it", (second, whole))
events = [json.loads(d) for _, d in s.stream("/v1/responses", {
    "input": [user("Why?")], "previous_response_id": second["id"],
    "max_output_tokens": 8, "stream": True})]
third = events[-1]["response"]
told += second["output"] + [user("Why?")]
verdict(said(third) == said(respond(told, store=False)) and
        get(third) == (200, third) and third["store"] is True,
        "so it is two turns on, in events, which are kept, too", third)
call = {"type": "function_call", "call_id": "c1", "name": "weather",
        "arguments": '{"city":"Rome"}'}
result = {"type": "function_call_output", "call_id": "c1", "output": "sunny"}
told_call = [user("Weather?"), call, result]
called = respond(told_call, tools=TOOLS)
after = respond("Thanks", called["id"], tools=TOOLS)
whole = respond(told_call + called["output"] + [user("Thanks")], tools=TOOLS,
                store=False)
verdict(said(after) == said(whole), "a call and its result are kept",
        (called, after, whole))
with open(kept + called["id"]) as f:  # a random model seldom calls
    lines = f.read().split("\n")
lines[2] = json.dumps({**json.loads(lines[2]),
                       "output": [{**call, "call_id": "c2", "id": "fc_2"}]})
with open(kept + called["id"], "w") as f:
    f.write("\n".join(lines))
result2 = {**result, "call_id": "c2"}
after = respond([result2], called["id"], tools=TOOLS)
whole = respond(told_call + [{**call, "call_id": "c2"}, result2], tools=TOOLS,
                store=False)
verdict(said(after) == said(whole), "a call that was the answer gets a result",
        (after, whole))
both = [respond("Left", second["id"]), respond("Right", second["id"])]
verdict(both[0]["id"] != both[1]["id"] and
        said(both[0]) == said(respond(told[:-1] + [user("Left")],
                                      store=False)),
        "two may go on from one", both)
text = json.dumps({"input": [user("Hello")], "max_output_tokens": 4,
                   "metadata": {"k": "v"}, "tools": TOOLS}, indent=1)
spread = s.post("/v1/responses", text)[1]
verdict(get(spread) == (200, spread) and
        respond("And?", spread["id"])["output"] and
        spread["metadata"] == {"k": "v"}, "a body of many lines", spread)
again = [s.post("/v1/responses", {"input": "Once", "max_output_tokens": 4},
                headers={"Idempotency-Key": "k"})[1] for i in range(2)]
verdict(again[0] == again[1] and get(again[0]) == (200, again[0]),
        "one that is asked twice is kept once", again)

# ---- not kept, or not for you ----


def is_unknown(id, **more):
    """Nobody with these headers sees it."""
    status, e = get(id, **more)
    went, gone = s.ask("DELETE", "/v1/responses/" + id, **more)[::2]
    on, f = s.post("/v1/responses", {
        "input": "a", "previous_response_id": id}, **more)
    good = status == went == 404 and on == 400 and \
        e["error"]["code"] == "not_found" and \
        json.loads(gone)["error"]["code"] == "not_found" and \
        f["error"]["code"] == "previous_response_not_found" and \
        f["error"]["param"] == "previous_response_id"
    return good, (status, e, went, on, f)


loose = respond("Hello", store=False)
verdict(loose["store"] is False and is_unknown(loose["id"])[0],
        "store false: it is not kept", is_unknown(loose["id"]))
good, why = is_unknown(first["id"], headers=TWO)
verdict(good, "another key does not see it", why)
verdict(get(first) == (200, first), "nor can it delete it")
for id in ("resp_1", "resp_" + "0" * 24, "..", "x" * 60, first["id"] + "0",
           "..%2Fanswers"):
    good, why = is_unknown(id)
    verdict(good, "an id that is none: " + id, why)
for name, body in [("store is no flag", {"input": "a", "store": 1}),
                   ("the id is no text", {"input": "a",
                                          "previous_response_id": 5}),
                   ("no input", {"previous_response_id": first["id"]})]:
    status, e = s.post("/v1/responses", body)
    verdict(status == 400 and e["error"]["code"] == "invalid_request" and
            e["error"]["param"] in ("store", "previous_response_id", "input"),
            name + ": 400", (status, e))
status, gone = s.ask("DELETE", "/v1/responses/" + first["id"])[::2]
verdict(status == 200 and json.loads(gone) == {
    "id": first["id"], "object": "response", "deleted": True} and
    is_unknown(first["id"])[0] and
    not os.path.exists(kept + first["id"]), "a deleted one has gone", gone)
verdict(said(respond("Why?", second["id"])) == said(third),
        "those behind it stay", second)
with open(kept + spread["id"], "r+") as f:
    f.truncate(os.path.getsize(f.name) - 1)
good, why = is_unknown(spread["id"])
verdict(good, "one that was cut off is none", why)

# ---- over the end of a server ----

s.kill()
open(kept + third["id"] + ".new", "w").close()
keys("two", "one")
s = server("--data", data)
verdict(get(third) == (200, third) and is_unknown(third["id"],
                                                  headers=TWO)[0],
        "after kill -9 it is there, for its key, wherever that stands")
verdict(said(respond("Why?", second["id"])) == said(third),
        "and can be gone on from")
verdict(not os.path.exists(kept + third["id"] + ".new"),
        "what was half written has gone")
os.rename(data + "/responses", data + "/away")
lost = respond("Hello")
verdict(lost["store"] is False and lost["output"] and
        "/responses/" + lost["id"] in s.said(),
        "one that cannot be written is answered, and said to be not kept",
        (lost, s.said()))
os.rename(data + "/away", data + "/responses")
s.stop()
s = server("--data", data, "--file-seconds", "1")
verdict(until(lambda: is_unknown(third["id"])[0]), "it expires")
s.stop()
s = server("--data", data, "--file-seconds", "1")
verdict(until(lambda: not os.listdir(kept)), "and its file goes",
        os.listdir(kept))
s.stop()

# ---- the limit ----

s = server("--data", data + ",20000")
many = [respond("x" * 1500, max_output_tokens=2) for i in range(12)]
verdict(is_unknown(many[0]["id"])[0] and get(many[-1]) == (200, many[-1]) and
        sum(os.path.getsize(kept + n) for n in os.listdir(kept)) <= 20000,
        "the oldest ones make room", os.listdir(kept))
status, f = s.upload("y" * 19500)
verdict(status == 200 and is_unknown(many[-1]["id"])[0],
        "and do so for files", (status, f))
large = respond("x" * 1500, max_output_tokens=2)
verdict(large["store"] is False and get(f["id"])[0] == 404 and
        s.get("/v1/files/" + f["id"])[0] == 200,
        "but files do not for them", large)
s.stop()
s = server()
plain = respond("Hello")
status, e = s.post("/v1/responses", {"input": "a",
                                     "previous_response_id": plain["id"]})
verdict(plain["store"] is False and get(plain)[0] == 404 and status == 400 and
        "--data" in e["error"]["message"],
        "without --data nothing is kept, and that is said", (plain, e))
verdict(s.stop() == 0, "SIGTERM ends it with 0")
done()
