"""shares.py MODEL ONE SEVERAL: two reports, of one process and of several. What
all ranks have read is what one process has, and the small tensors of each layer
once more for each other rank; no rank has read far more than its share."""
import glob
import json
import struct
import sys

model, one, several = sys.argv[1:]
small = 0
for path in glob.glob(model + "/*.safetensors"):
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
    for name, t in header.items():
        if name == "__metadata__" or ".experts." in name:
            continue
        begin, end = t["data_offsets"]
        shape = t["shape"]
        narrow = name.endswith(("f_a_proj.weight", "f_b_proj.weight",
                                ".b_proj.weight"))
        if len(shape) != 2 or shape[0] <= 1 or narrow:
            small += end - begin
one, several = (json.load(open(path)) for path in (one, several))
ranks = several["machines"]
for what, alone, again in (
        ("at open", one["io"]["resident_read_bytes"], small),
        ("in passes", one["prefill"]["read_bytes"] +
         one["decode"]["read_bytes"], 0)):
    name = "resident_read_bytes" if again else "read_bytes"
    all = sum(r[name] for r in ranks)
    print(what, [r[name] for r in ranks], "one process:", alone)
    if all != alone + again * (len(ranks) - 1):
        sys.exit("%s: %d bytes, one process reads %d, small tensors have %d" %
                 (what, all, alone, again))
