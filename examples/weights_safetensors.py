"""Weights go to the library safetensors and come back: python examples/weights_safetensors.py"""

import tempfile
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

import weft
from weft import nn

weft.manual_seed(0)
model = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True).eval()
with tempfile.TemporaryDirectory() as folder:
    ours, theirs = Path(folder) / "ours.safetensors", Path(folder) / "theirs.safetensors"
    weft.save(model.state_dict(), ours)
    with safe_open(ours, framework="numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    print(len(arrays), "arrays,", sum(a.size for a in arrays.values()), "numbers")
    save_file({name: 2 * array for name, array in arrays.items()}, theirs)
    state = weft.load(theirs)

doubled = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True).eval()
print(doubled.load_state_dict(state))
pairs = zip(model.state_dict().values(), doubled.state_dict().values())
print("twice the weights:", all(np.array_equal(2 * a.numpy(), b.numpy()) for a, b in pairs))
