"""Change one thing in a checkpoint, with nothing but the standard library.

usage: ckpt_edit.py FOLDER OPERATION ...

  drop TENSOR               take it out of its shard
  shape TENSOR N,N          say that it has this shape
  dtype TENSOR NAME         ... this dtype
  place TENSOR BEGIN END    ... these data offsets
  rename TENSOR NAME
  move TENSOR OTHER         to the end of the shard that holds OTHER
  copy TENSOR OTHER         ... and leave it where it is, too
  config PATH VALUE         a.b.c in config.json; VALUE is JSON
  config PATH -             without it
  paths                     print the path of every field of config.json
  length SHARD N            the 8 bytes before the header, and nothing else
  header SHARD TEXT         exactly this header, before the same data
  fill SHARD N              a header of N bytes, padded with spaces
TENSOR is the end of a name; SHARD counts from 1.
"""
import glob, json, os, struct, sys


def shards(folder):
    return sorted(glob.glob(folder + "/model-*.safetensors"))


def load(path):
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        header = json.loads(f.read(n))
        return header, f.read()


def store(path, header, data, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    if length is None:
        length = len(text)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", length & 2**64 - 1) + text + data)


def find(folder, end):
    for path in shards(folder):
        header, data = load(path)
        for name in header:
            if name.endswith(end):
                return path, header, data, name
    sys.exit("no tensor " + end)


def append(path, name, entry, bytes_):
    header, data = load(path)
    header[name] = dict(entry, data_offsets=[len(data),
                                             len(data) + len(bytes_)])
    store(path, header, data + bytes_)


def take_out(path, header, data, name):
    begin, end = header.pop(name)["data_offsets"]
    for key, other in header.items():
        if key != "__metadata__" and other["data_offsets"][0] >= end:
            other["data_offsets"] = [o - (end - begin)
                                     for o in other["data_offsets"]]
    store(path, header, data[:begin] + data[end:])


def edit_tensor(folder, what, end, *rest):
    path, header, data, name = find(folder, end)
    entry = header[name]
    begin, stop = entry["data_offsets"]
    if what == "drop":
        return take_out(path, header, data, name)
    if what in ("move", "copy"):
        target = find(folder, rest[0])[0]
        if what == "move":
            take_out(path, header, data, name)
        return append(target, name, entry, data[begin:stop])
    if what == "shape":
        entry["shape"] = [int(n) for n in rest[0].split(",") if n]
    elif what == "dtype":
        entry["dtype"] = rest[0]
    elif what == "place":
        entry["data_offsets"] = [int(n) for n in rest]
    elif what == "rename":
        header[rest[0]] = header.pop(name)
    store(path, header, data)


def edit_config(folder, path, value):
    file = folder + "/config.json"
    with open(file) as f:
        root = json.load(f)
    at = root
    *way, last = path.split(".")
    for key in way:
        at = at[key]
    if value == "-":
        del at[last]
    else:
        at[last] = json.loads(value)
    with open(file, "w") as f:
        json.dump(root, f)


def print_paths(at, prefix=""):
    for key, value in at.items():
        print(prefix + key)
        if isinstance(value, dict):
            print_paths(value, prefix + key + ".")


def edit_file(folder, what, shard, value):
    path = shards(folder)[int(shard) - 1]
    header, data = load(path)
    if what == "length":
        text = json.dumps(header).encode()
        store(path, text, data, int(value))
    elif what == "header":
        store(path, value.encode("utf-8", "surrogateescape"), data)
    else:
        store(path, json.dumps(header).encode().ljust(int(value)), data)


folder, what, *rest = sys.argv[1:]
if what == "paths":
    print_paths(json.load(open(folder + "/config.json")))
elif what == "config":
    edit_config(folder, *rest)
elif what in ("length", "header", "fill"):
    edit_file(folder, what, *rest)
else:
    edit_tensor(folder, what, *rest)
