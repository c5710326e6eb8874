"""A character GPT that learns a nursery rhyme

A transformer of two blocks, trained on one text by predicting the next letter. The whole step is compiled; sampling
runs the same model in eager mode.
"""

import matplotlib.pyplot as plt

import weft
from weft import nn

TEXT = "row, row, row your boat, gently down the stream. merrily, merrily, merrily, merrily, life is but a dream. " * 4
LETTERS = sorted(set(TEXT))
CONTEXT, WIDTH = 24, 32
codes = weft.tensor([LETTERS.index(letter) for letter in TEXT])
weft.manual_seed(0)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mix, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x):
        query, key, value = self.mix(self.before(x)).chunk(3, dim=-1)
        x = x + self.out(nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True))
        return x + self.feed(self.after(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters, self.places = nn.Embedding(len(LETTERS), WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(Block(), Block())
        self.scores = nn.Linear(WIDTH, len(LETTERS))

    def forward(self, x):
        return self.scores(self.blocks(self.letters(x) + self.places.weight[: x.shape[1]]))


model = GPT()
optimizer = weft.optim.AdamW(model.parameters(), lr=5e-3)


@weft.compile
def step(x, y):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x).reshape(-1, len(LETTERS)), y.reshape(-1))
    loss.backward()
    optimizer.step()
    return loss


losses = []
for _ in range(150):
    starts = weft.randint(0, len(TEXT) - CONTEXT - 1, (16, 1))
    windows = codes[starts + weft.arange(CONTEXT + 1)]
    losses.append(step(windows[:, :-1], windows[:, 1:]).item())

written = [LETTERS.index(letter) for letter in "row, "]
with weft.no_grad():
    for _ in range(60):
        scores = model(weft.tensor([written[-CONTEXT:]]))[0, -1]
        written.append(int(scores.argmax()))
print("".join(LETTERS[k] for k in written))
print(f"loss {losses[0]:.2f} -> {losses[-1]:.2f}")

figure, axes = plt.subplots(figsize=(6.4, 3.2))
axes.plot(losses)
axes.set(xlabel="training step", ylabel="cross entropy (nats per letter)", title="Learning the next letter")
