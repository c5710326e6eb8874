"""The demo's training step runs in a C program, without Python: python examples/training_in_c.py [folder]

Writes the object file, its header, the data and the program into a folder, and builds and runs it if there is a C
compiler. The same steps are taken here too: the weights are equal bit for bit.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import weft
from weft import Tensor, nn
from weft.nn import functional as F

BATCH, BATCHES, EPOCHS = 64, 22, 40

PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "step.h"

#define BATCH %(batch)d
#define BATCHES %(batches)d

static void *copy_of(const void *from, size_t size) { return memcpy(malloc(size), from, size); }

int main(void) {
    static float images[BATCHES][BATCH * 64];
    static int64_t classes[BATCHES][BATCH];
    FILE *data = fopen("data.bin", "rb");
    if (!data || fread(images, sizeof images, 1, data) != 1 || fread(classes, sizeof classes, 1, data) != 1) return 1;

    step_state state = {
%(fields)s
    };
    void *scratch = aligned_alloc(64, STEP_SCRATCH);
    float loss = 0;
    for (int epoch = 0; epoch < %(epochs)d; epoch++)
        for (int k = 0; k < BATCHES; k++)
            if (step(images[k], classes[k], &loss, &state, scratch)) return 1;
    printf("last loss in C: %%.6f\n", loss);

    FILE *weights = fopen("weights.bin", "wb");
%(writes)s
    return fclose(weights);
}
"""

images, classes = map(np.asarray, load_digits(return_X_y=True))
parts = train_test_split(images / 16, classes, test_size=389, stratify=classes, random_state=0)
train_x, test_x = (np.asarray(x, np.float32) for x in parts[:2])
train_y, test_y = (np.asarray(y, np.int64) for y in parts[2:])
train_x, train_y = train_x.reshape(BATCHES, BATCH, 64), train_y.reshape(BATCHES, BATCH)

weft.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = weft.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def step(x: Tensor, y: Tensor) -> Tensor:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
folder.mkdir(exist_ok=True)
batches = [(weft.tensor(x), weft.tensor(y)) for x, y in zip(train_x, train_y)]
files = weft.export(step, batches[0], folder / "step")

names = [f"model_{k}_{kind}" for k in (0, 2, 4) for kind in ("weight", "bias")]
fields = [*names, *[f"optimizer_{k}_momentum_buffer" for k in range(len(names))]]
copies = "\n".join(f"        .{f} = copy_of(step_initial_{f}, sizeof step_initial_{f})," for f in fields)
writes = "\n".join(f"    fwrite(state.{n}, sizeof step_initial_{n}, 1, weights);" for n in names)
numbers = {"batch": BATCH, "batches": BATCHES, "epochs": EPOCHS, "fields": copies, "writes": writes}
(folder / "main.c").write_text(PROGRAM % numbers, encoding="utf-8")
(folder / "data.bin").write_bytes(train_x.tobytes() + train_y.tobytes())
print(f"object file: {files.object.stat().st_size} bytes, in {folder}")

compiled, loss = weft.compile(step), weft.zeros(())
for _ in range(EPOCHS):
    for batch in batches:
        loss = compiled(*batch)
print(f"last loss here: {loss.item():.6f}")

if shutil.which("cc"):
    subprocess.run(["cc", "-O2", "main.c", "step.o", "-lm", "-o", "main"], cwd=folder, check=True)
    print(subprocess.run(["./main"], cwd=folder, check=True, capture_output=True, text=True).stdout, end="")
    trained = np.fromfile(folder / "weights.bin", np.float32)
    here = np.concatenate([p.detach().numpy().ravel() for p in model.parameters()])
    print("same weights:", np.array_equal(trained, here))
    sizes = np.cumsum([p.numel() for p in model.parameters()])[:-1]
    with weft.no_grad():
        for p, weights in zip(model.parameters(), np.split(trained, sizes)):
            p.copy_(weft.tensor(weights).view_as(p))
        right = (model(weft.tensor(test_x)).argmax(1) == weft.tensor(test_y)).double().mean()
    print(f"accuracy of the weights from C: {100 * right.item():.1f} %")
