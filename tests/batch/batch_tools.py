"""Calls of tools that are kept to their schemas: see test_batch_tools.sh."""
import json
import os
import subprocess
import sys

try:
    import jsonschema
except ImportError:
    jsonschema = None

SLUICE, FOLDER, TIMES = sys.argv[1], sys.argv[2], int(sys.argv[3])
MODEL = FOLDER + "/model"
IN, OUT = FOLDER + "/in.jsonl", FOLDER + "/out.jsonl"
count = 0

with open(MODEL + "/tokenizer_config.json") as f:
    IDS = {v["content"]: k
           for k, v in json.load(f)["added_tokens_decoder"].items()}
LEAN = {IDS[n]: 8 for n in ("<|open|>", "<|close|>", "<|sep|>")}


def check(good, name):
    global count
    count += 1
    print(("ok" if good else "not ok"), count, "-", name, flush=True)


def obj(properties, required=None, **more):
    return {"type": "object", "properties": properties,
            "required": list(properties) if required is None else required,
            "additionalProperties": False, **more}


TEXT = {"type": "string", "maxLength": 5}
SCHEMAS = [
    obj({"city": TEXT}),
    obj({"city": TEXT, "days": {"type": "integer", "minimum": -3,
                                "maximum": 12}}, ["days"]),
    obj({"on": {"type": "boolean"}, "none": {"type": "null"}}),
    obj({"level": {"enum": ["low", "high", 3, None, [1, "a"], {"k": 1.5}]}}),
    obj({"list": {"type": "array", "items": TEXT, "minItems": 1,
                  "maxItems": 3}}),
    obj({"in": obj({"x": {"type": "number", "minimum": 0, "maximum": 1},
                    "y": TEXT}, ["x"])}),
    obj({'a"b': TEXT, "c&d": TEXT, "\u00e9 f": {"const": "\u20ac<"}}),
    obj({"either": {"anyOf": [{"type": "string", "pattern": "^[a-f]{2,4}$"},
                              {"type": "integer", "minimum": 0,
                               "maximum": 99}]}}),
    obj({"when": {"type": "string", "format": "date"}}),
    {"anyOf": [obj({"kind": {"const": "a"}, "v": TEXT}),
               obj({"kind": {"const": "b"}, "w": {"type": "boolean"}})]},
    {"type": "object", "maxProperties": 2, "properties": {"p": TEXT},
     "propertyOrder": None, "additionalProperties": {"type": "boolean"}},
    {"$defs": {"tree": obj({"v": {"type": "boolean"}, "left":
               {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/tree"}]}})},
     **obj({"t": {"$ref": "#/$defs/tree"}})},
    obj({}),
]
SCHEMAS[10].pop("propertyOrder")


def tool(i, **more):
    return {"type": "function", "function": {
        "name": "f%d" % i, "parameters": SCHEMAS[i], **more}}


def body(seed, tools, **more):
    return {"messages": [{"role": "user", "content": "Go %d" % seed}],
            "tools": tools, "max_tokens": 600, "temperature": 1, "seed": seed,
            "reasoning_effort": "none", "logit_bias": LEAN, **more}


def batch(bodies, *words, pipe=False):
    lines = "".join(json.dumps({"custom_id": str(i), "body": b}) + "\n"
                    for i, b in enumerate(bodies))
    with open(IN, "w", encoding="utf-8") as f:
        f.write(lines)
    if os.path.exists(OUT):
        os.remove(OUT)
    memory = [] if "-m" in words else ["-m", "128M"]
    p = subprocess.run([SLUICE, "batch", MODEL, "-i", "-" if pipe else IN,
                        "-o", OUT, "-t", "1", *memory, *words],
                       capture_output=True, text=True,
                       input=lines if pipe else None)
    if not os.path.exists(OUT):
        print("#", p.stderr)
        return []
    with open(OUT, encoding="utf-8") as f:
        lines = [json.loads(x) for x in f.read().split("\n")[:-1]]
    lines.sort(key=lambda x: int(x["custom_id"]))
    return [x["response"]["body"]["choices"][0] if x["response"]
            else x["error"] for x in lines]


def is_valid(call):
    value = json.loads(call["function"]["arguments"])
    schema = SCHEMAS[int(call["function"]["name"][1:])]
    if not jsonschema:
        return isinstance(value, dict)
    try:
        jsonschema.validate(value, schema, jsonschema.Draft202012Validator)
    except jsonschema.ValidationError as e:
        print("#", call, str(e).split("\n")[0])
        return False
    return True


def calls(choice):
    return choice.get("message", {}).get("tool_calls") or []


def case_strict():
    all_tools = [tool(i, strict=True) for i in range(len(SCHEMAS))]
    asks = []
    for k in range(TIMES):
        for i in range(len(SCHEMAS)):
            name = {"type": "function", "function": {"name": "f%d" % i}}
            asks.append(body(len(asks), [tool(i, strict=True)]))
            asks.append(body(len(asks), all_tools, tool_choice=name))
            asks.append(body(len(asks), [tool(i)], tool_choice="required"))
    got = batch(asks)
    named = got[1::3]
    made = [c for x in got for c in calls(x)]
    ended = [x for x in got if x.get("finish_reason") != "length"]
    print("# %d requests, %d calls, %d ended by themselves%s" %
          (len(got), len(made), len(ended),
           "" if jsonschema else "; no python3-jsonschema"))
    check(len(got) == len(asks) and len(made) > len(asks) * 2 // 3 and
          all(is_valid(c) for c in made), "every call is of its schema")
    check(all(calls(x) for k in (1, 2) for x in got[k::3]
              if x["finish_reason"] != "length"), "a required call comes")
    check(all(c["function"]["name"] == "f%d" % (i % len(SCHEMAS))
              for i, x in enumerate(named) for c in calls(x)),
          "the named tool is the only one called")
    check(all((x["finish_reason"] == "tool_calls") == bool(calls(x))
              for x in ended), "finish_reason is tool_calls")
    one = batch([body(1, [tool(0)], tool_choice="required",
                      parallel_tool_calls=False)])
    check(len(calls(one[0])) == 1, "parallel_tool_calls: false is one call")


def case_beside_a_form():
    form = {"type": "json_schema", "json_schema": {
        "name": "x", "schema": {"enum": ["yes", "no"]}}}
    got = batch([body(i, [tool(0, strict=True)], response_format=form)
                 for i in range(12)])
    check(len(got) == 12 and
          all(json.loads(x["message"]["content"]) in ("yes", "no")
              if x["message"]["content"] else calls(x) for x in got) and
          any(calls(x) for x in got) and
          all(is_valid(c) for x in got for c in calls(x)),
          "an answer of a form, or calls")


def case_refused():
    bad = {"type": "function", "function": {
        "name": "g", "strict": True, "parameters": {"not": {}}}}
    loose = {"type": "function", "function": {
        "name": "g", "parameters": {"not": {}}}}
    got = batch([body(0, [bad]), body(1, [loose], tool_choice="required"),
                 body(2, [bad], tool_choice="none", max_tokens=5)])
    check(len(got) == 3 and got[0]["message"] ==
          "tools: g: schema: not at # is not supported" and
          "supported" in got[0]["code"], "a keyword that is not supported is named")
    check(got[1].get("finish_reason") in ("tool_calls", "length"),
          "but not of a tool that is not strict")
    check("finish_reason" in got[2], "nor where there are no calls")


def case_pipe():
    plain = {"prompt": "Hm", "max_tokens": 3}
    asks = [plain, {**plain, "regex": "x[0-9]{3}", "max_tokens": 50},
            body(3, [tool(0)], tool_choice="required"), plain]
    got = batch(asks, "-m", "4G", pipe=True)
    check(len(got) == 4 and got == batch(asks) and
          got[1]["text"].startswith("x") and calls(got[2]),
          "a pipe may ask for a form after its first request")
    small = batch(asks, pipe=True)
    check("finish_reason" in small[0] and "pipe" in small[1]["message"] and
          "pipe" in small[2]["message"],
          "unless its memory is small: then that is said")


case_strict()
case_beside_a_form()
case_refused()
case_pipe()
print("1..%d" % count)
