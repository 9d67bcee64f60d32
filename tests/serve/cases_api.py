"""The answers: the bits of sluice batch, in every API's form, whole and in
parts; errors as the APIs shape them."""
import json
import subprocess
import sys

from server import *

program, folder = sys.argv[1:3]
model = folder + "/model"
s = Server(program, model, "--served-model-name", "k3-test",
           "--served-model-name", "other", "--context", "1024")
TOOLS = [{"type": "function", "function": {
    "name": "weather", "parameters": {"type": "object", "properties": {
        "city": {"type": "string"}}}}}]

# ---- the same bits ----

requests = []
for i in range(17):
    more = {} if i % 2 else {"temperature": 0.9, "top_p": 0.95, "seed": i}
    if i % 3 == 0:
        requests.append({"prompt": "text %d " % i, "max_tokens": 5 + i,
                         **more})
    else:
        requests.append(chat("question %d" % i, 5 + i, **more))
    if i % 5 == 1:
        requests[-1]["tools"] = TOOLS
    if i % 4 == 3:
        requests[-1]["stop"] = ["e", "qq"]


def path_of(r):
    return "/v1/chat/completions" if "messages" in r else "/v1/completions"


with open(folder + "/in.jsonl", "w") as f:
    for i, r in enumerate(requests):
        f.write(json.dumps({"custom_id": str(i), "method": "POST",
                            "url": path_of(r), "body": r}) + "\n")
subprocess.run([program, "batch", model, "-i", folder + "/in.jsonl", "-o",
                folder + "/out.jsonl", "-m", "256M", "--context", "1024"],
               check=True, stderr=subprocess.DEVNULL)
expected = {}
for line in open(folder + "/out.jsonl"):
    o = json.loads(line)
    expected[int(o["custom_id"])] = o["response"]["body"]


def same(body, want):
    """All but the time and the names."""
    return body["choices"] == want["choices"] and \
        body["usage"] == want["usage"] and body["object"] == want["object"]


alone = [s.post(path_of(r), r)[1] for r in requests]
wrong = [i for i, b in enumerate(alone) if not same(b, expected[i])]
verdict(not wrong, "17 requests alone have the answers of batch", wrong)
company = together([lambda r=r: s.post(path_of(r), r)[1] for r in requests])
wrong = [i for i, b in enumerate(company) if not same(b, expected[i])]
verdict(not wrong, "and among 16 others", wrong)

subprocess.run([program, "synth", folder + "/drafter", "--preset", "drafter",
                "--like", model], check=True, stdout=subprocess.DEVNULL)
for draft in ("5", "auto"):
    drafting = Server(program, model, "--context", "1024", "--draft", draft,
                      "--drafter", folder + "/drafter")
    company = together([lambda r=r: drafting.post(path_of(r), r)[1]
                        for r in requests])
    wrong = [i for i, b in enumerate(company) if not same(b, expected[i])]
    verdict(not wrong, "and with a drafter, --draft " + draft, wrong)
    if draft == "5":
        made = drafting.metric('drafted_tokens_total{source="drafter"}')
        verdict(made > 0 and drafting.metric("drafter") == 1,
                "which has drafted", made)
    drafting.stop()


# ---- streams ----

def joined(r):
    """The message that the chunks of a stream make, and the last usage."""
    text, thoughts, finish, usage, calls = "", "", None, None, []
    got = s.stream(path_of(r), {**r, "stream": True,
                                "stream_options": {"include_usage": True}})
    for _, data in got[:-1]:
        chunk = json.loads(data)
        usage = chunk["usage"] or usage
        for c in chunk["choices"]:
            delta = c.get("delta", {"content": c.get("text")})
            text += delta.get("content") or ""
            thoughts += delta.get("reasoning_content") or ""
            finish = c["finish_reason"] or finish
            for call in delta.get("tool_calls", []):
                if call["index"] == len(calls):
                    calls.append(call)
                else:
                    calls[call["index"]]["function"]["arguments"] += \
                        call["function"]["arguments"]
    return text, thoughts, finish, usage, got[-1][1]


bad = []
for i, r in enumerate(requests):
    c = expected[i]["choices"][0]
    m = c.get("message", {"content": c.get("text")})
    want = (m["content"] or "", m.get("reasoning_content", ""),
            c["finish_reason"], expected[i]["usage"], "[DONE]")
    got = joined(r)
    if got != want:
        bad.append((i, got, want))
verdict(not bad, "streams put together are the answers, with usage", bad)
got = s.stream("/v1/chat/completions", chat(stream=True))
verdict(all("usage" not in json.loads(d) for _, d in got[:-1]),
        "no usage in a stream that did not ask")


def scored(path, ask):
    """Are the choices of a stream, with all they have, those of the whole?"""
    status, whole = s.post(path, ask)
    choices = {}
    for _, data in s.stream(path, {**ask, "stream": True})[:-1]:
        for c in json.loads(data)["choices"]:
            o = choices.setdefault(c["index"], {
                "text": "", "thoughts": "", "logprobs": None, "finish": None})
            if o["finish"]:
                return False, data  # something behind the end
            d = c.get("delta", {"content": c.get("text")})
            o["text"] += d.get("content") or ""
            o["thoughts"] += d.get("reasoning_content", "")
            o["logprobs"] = c["logprobs"] or o["logprobs"]
            o["finish"] = c["finish_reason"]
    for c in whole["choices"]:
        m = c.get("message", {"content": c.get("text")})
        if not c["logprobs"] or choices[c["index"]] != {
                "text": m["content"] or "", "logprobs": c["logprobs"],
                "thoughts": m.get("reasoning_content", ""),
                "finish": c["finish_reason"]}:
            return False, (choices, whole)
    return len(whole["choices"]) == len(choices), (choices, whole)


for name, path, ask in [
    ("three choices of a chat", "/v1/chat/completions",
     chat("several", 6, n=3, logprobs=True, top_logprobs=2, temperature=1,
          seed=5)),
    ("a chat without thoughts, to a stop string", "/v1/chat/completions",
     chat("several", 60, logprobs=True, top_logprobs=4, thinking=False,
          stop=["e", "qq"])),
    ("a call of a tool", "/v1/chat/completions",
     chat("several", 40, logprobs=True, tools=TOOLS, thinking=False,
          tool_choice="required")),
    ("two prompts, two choices each", "/v1/completions",
     {"prompt": ["once", "twice"], "n": 2, "max_tokens": 5, "logprobs": 3,
      "temperature": 1, "seed": 2}),
    ("a completion to a stop string", "/v1/completions",
     {"prompt": "once", "max_tokens": 60, "logprobs": 1, "stop": "e"}),
]:
    good, why = scored(path, ask)
    verdict(good, "probabilities in a stream are the whole's: " + name, why)
schema = {"type": "json_schema", "json_schema": {
    "name": "n", "strict": True, "schema": {
        "type": "object", "properties": {"a": {"type": "boolean"}},
        "required": ["a"], "additionalProperties": False}}}
status, formed = s.post("/v1/chat/completions", chat(
    "form", 200, response_format=schema, thinking=False))
verdict(status == 200 and type(json.loads(
    formed["choices"][0]["message"]["content"])["a"]) is bool,
    "a strict schema is kept to", formed)
status, e = s.post("/v1/completions", {"prompt": "a", "max_tokens": 2,
                                       "echo": True, "stream": True})
verdict(status == 400 and e["error"]["code"] == "unsupported",
        "echo in a stream is refused", (status, e))

# ---- Anthropic, Responses ----


def blocks(r):
    out, reason = [], None
    for name, data in s.stream("/v1/messages", {**r, "stream": True}):
        e = json.loads(data)
        if name != e["type"]:
            return name
        if name == "content_block_start":
            out.append(e["content_block"])
        elif name == "content_block_delta":
            b, d = out[e["index"]], e["delta"]
            for key in ("text", "thinking"):
                if key in d:
                    b[key] += d[key]
        elif name == "message_delta":
            reason = e["delta"]["stop_reason"]
    return out, reason


for think in ("disabled", "enabled"):
    ask = {"model": "k3-test", "max_tokens": 12, "system": "Be brief.",
           "thinking": {"type": think, "budget_tokens": 1024},
           "messages": [{"role": "user", "content": "Hello"}]}
    status, whole = s.post("/v1/messages", ask)
    out, reason = blocks(ask)
    verdict(status == 200 and out == whole["content"] and
            reason == whole["stop_reason"] == "max_tokens",
            "a message in events is the message, thinking " + think,
            (whole, out, reason))
    status, o = s.post("/v1/chat/completions", {
        "messages": [{"role": "system", "content": "Be brief."},
                     {"role": "user", "content": "Hello"}],
        "max_tokens": 12, "thinking": think == "enabled"})
    key = "thinking" if think == "enabled" else "text"
    mine = o["choices"][0]["message"]
    verdict(whole["content"][0][key] == mine[
        "reasoning_content" if think == "enabled" else "content"],
        "and says what the chat API says")
status, count = s.post("/v1/messages/count_tokens", {
    "model": "k3-test", "messages": ask["messages"], "system": "Be brief.",
    "thinking": ask["thinking"]})
verdict(count == {"input_tokens": whole["usage"]["input_tokens"]},
        "count_tokens counts what the answer's usage does", count)
status, stopped = s.post("/v1/messages", {
    "model": "k3-test", "max_tokens": 64, "stop_sequences": ["e"],
    "messages": [{"role": "user", "content": "Hello"}]})
verdict(stopped["stop_reason"] == "stop_sequence" and
        stopped["stop_sequence"] == "e", "a stop sequence is named", stopped)

status, whole = s.post("/v1/responses", {"input": "Hello",
                                         "max_output_tokens": 12})
got = s.stream("/v1/responses", {"input": "Hello", "stream": True,
                                 "max_output_tokens": 12})
parsed = [json.loads(d) for _, d in got]
verdict([e["sequence_number"] for e in parsed] == list(range(len(parsed))) and
        all(n == e["type"] for (n, _), e in zip(got, parsed)),
        "events of a response are numbered")
text = "".join(e["delta"] for e in parsed
               if e["type"].endswith("_text.delta"))
last = parsed[-1]["response"]["output"]
verdict(text == last[0]["content"][0]["text"] ==
        whole["output"][0]["content"][0]["text"] and
        whole["status"] == "incomplete", "and say what the whole says",
        (text, last, whole))

# ---- the rest ----

status, models = s.get("/v1/models")
verdict([m["id"] for m in models["data"]] == ["k3-test", "other"],
        "both names are listed", models)
verdict(s.post("/v1/chat/completions", chat(model="other"))[0] == 200 and
        s.get("/v1/models/other")[0] == 200, "both are served")
status, ids = s.post("/tokenize", {"prompt": "Hello there"})
status, text = s.post("/detokenize", {"tokens": ids["tokens"]})
verdict(text == {"prompt": "Hello there"}, "ids of a text and back", text)
status, ids = s.post("/tokenize", {"messages": chat()["messages"]})
usage = s.post("/v1/chat/completions", chat())[1]["usage"]
verdict(ids["count"] == usage["prompt_tokens"] + 3,
        "ids of a conversation: three more than usage counts", ids["count"])

for name, path, body, status, code in [
    ("another model", "/v1/chat/completions", chat(model="gpt-4"), 404,
     "model_not_found"),
    ("no JSON", "/v1/chat/completions", "{", 400, "invalid_json"),
    ("an empty body", "/v1/chat/completions", "", 400, "invalid_json"),
    ("a list", "/v1/chat/completions", [], 400, "invalid_request"),
    ("JSON a thousand and one deep", "/v1/chat/completions",
     "[" * 1001 + "]" * 1001, 400, "invalid_json"),
    ("no messages", "/v1/chat/completions", {}, 400, "invalid_request"),
    ("a negative temperature", "/v1/chat/completions", chat(temperature=-1),
     400, "invalid_request"),
    ("an unknown field", "/v1/chat/completions", chat(frobnicate=1), 400,
     "unknown_field"),
    ("a conversation above the context", "/v1/chat/completions",
     chat("x y z " * 1000), 400, "context_length_exceeded"),
    ("a number of 400 digits", "/v1/completions",
     '{"prompt":"a","temperature":%s}' % ("9" * 400), 400,
     "invalid_request"),
    ("no prompt", "/v1/completions", {}, 400, "invalid_request"),
    ("a path that is not there", "/v1/frob", {}, 404, "not_found"),
    ("a path out of the folder", "/v1/files/../../etc/passwd", {}, 404,
     "not_found"),
    ("previous_response_id", "/v1/responses",
     {"input": "a", "previous_response_id": "r"}, 400,
     "previous_response_not_found"),
]:
    got, answer = s.post(path, body)
    e = answer.get("error", {})
    verdict(got == status and e.get("code") == code and e.get("message") and
            e.get("type") == "invalid_request_error" and "param" in e,
            "%s: %d %s" % (name, status, code), (got, answer))
named, long = [], "x y z " * 1000
for method, path, body, status, param in [
    ("POST", "/v1/chat/completions", chat(temperature=-1), 400,
     "temperature"),
    ("POST", "/v1/chat/completions", chat(long), 400, "messages"),
    ("POST", "/v1/chat/completions", chat(stop=5), 400, "stop"),
    ("POST", "/v1/chat/completions", chat(response_format={"type": "x"}), 400,
     "response_format.type"),
    ("POST", "/v1/completions", {"prompt": long}, 400, "prompt"),
    ("POST", "/v1/completions", {"prompt": ""}, 400, "prompt"),
    ("POST", "/v1/completions", {"prompt": "a", "echo": True, "stream": True},
     400, "echo"),
    ("POST", "/v1/responses", {"input": long}, 400, "input"),
    ("POST", "/v1/responses", {"input": [{"role": "x", "content": "a"}],
                               "instructions": "b"}, 400, "input.role"),
    ("POST", "/v1/responses", {"input": "a", "max_output_tokens": 0}, 400,
     "max_output_tokens"),
    ("POST", "/v1/responses", {"input": "a", "reasoning": {"effort": "x"}},
     400, "reasoning.effort"),
    ("POST", "/v1/responses", {"input": "a", "tools": 5}, 400, "tools"),
    ("POST", "/v1/responses", {"input": "a", "metadata": 5}, 400, "metadata"),
    ("POST", "/v1/responses", {"input": "a", "text": {"format": {
        "type": "json_schema", "name": "a", "schema": {"type": "frob"}}}},
     400, "text.format"),
    ("POST", "/tokenize", {}, 400, "prompt"),
    ("POST", "/tokenize", {"messages": 5}, 400, "messages"),
    ("POST", "/detokenize", {"tokens": [-1]}, 400, "tokens"),
]:
    got, _, e = s.ask(method, path, body)
    e = json.loads(e)["error"]
    if got != status or e["param"] != param or (
            "positions" not in e["message"] and
            "empty" not in e["message"] and
            not e["message"].startswith(param + ": ")):
        named.append((path, body, got, e))
verdict(not named, "an error names its field as the client does", named)
verdict(s.ask("GET", "/v1/chat/completions")[0] == 405,
        "GET where POST belongs: 405")
for name, body, status, kind in [
    ("no max_tokens", {"messages": ask["messages"]}, 400,
     "invalid_request_error"),
    ("another model", {**ask, "model": "claude"}, 404, "not_found_error"),
    ("an image", {**ask, "messages": [{"role": "user", "content": [
        {"type": "image", "source": {}}]}]}, 400, "invalid_request_error"),
    ("an unknown field", {**ask, "frob": 1}, 400, "invalid_request_error"),
    ("stop_sequences: no list", {**ask, "stop_sequences": 5}, 400,
     "invalid_request_error"),
    ("thinking: no object", {**ask, "thinking": "x"}, 400,
     "invalid_request_error"),
]:
    got, answer = s.post("/v1/messages", body)
    verdict(got == status and answer["type"] == "error" and
            answer["error"]["type"] == kind and
            name.partition(":")[0] in (name, answer["error"]["message"]
                                       .partition(":")[0].partition(".")[0]),
            "Anthropic's API, %s: %d %s" %
            (name, status, kind), (got, answer))
status, _, e = s.ask("GET", "/v1/messages")
verdict(status == 405 and json.loads(e)["type"] == "error",
        "a wrong method has the shape of the path's API", e)
verdict(s.stop() == 0, "SIGTERM ends it with 0")
done()
