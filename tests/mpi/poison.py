"""poison.py MODEL LAYER: the last rows of the layer's o_proj, which the last rank
owns, become infinite; but for the middle of the tensor, by which a model is
known."""
import glob
import json
import struct
import sys

model, layer = sys.argv[1:]
name = "language_model.model.layers.%s.self_attn.o_proj.weight" % layer
for path in glob.glob(model + "/*.safetensors"):
    with open(path, "r+b") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        at = json.loads(f.read(n)).get(name, {}).get("data_offsets")
        if at:
            f.seek(8 + n + at[1] - 64)
            f.write(struct.pack("<H", 0x7F80) * 32)
            sys.exit(0)
sys.exit("no " + name)
