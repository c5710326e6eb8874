"""From a table to a model and back: python examples/table_pandas.py

Columns become tensors through NumPy; an embedding takes the codes of a column of categories.
"""

import numpy as np
import pandas as pd

import weft
from weft import Tensor, nn

rng = np.random.default_rng(0)
table = pd.DataFrame(
    {
        "area": rng.uniform(30, 150, 400),
        "rooms": rng.integers(1, 6, 400),
        "district": pd.Categorical(rng.choice(["north", "south", "west"], 400)),
    }
)
premium = np.array([0.0, 40.0, 90.0])[table["district"].cat.codes]
table["price"] = 3.0 * table["area"] + 12.0 * table["rooms"] + premium + rng.normal(0, 5, 400)

numbers = table[["area", "rooms"]]
scaled = (numbers - numbers.mean()) / numbers.std()
inputs = weft.tensor(scaled.to_numpy(np.float32))
districts = weft.tensor(table["district"].cat.codes.to_numpy(np.int64))
prices = weft.tensor(table["price"].to_numpy(np.float32))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.district = nn.Linear(2, 1), nn.Embedding(3, 1)

    def forward(self, x: Tensor, district: Tensor) -> Tensor:
        return 100 * (self.linear(x) + self.district(district)).squeeze(1)


weft.manual_seed(0)
model = Model()
optimizer = weft.optim.Adam(model.parameters(), lr=0.05)


@weft.compile
def step() -> Tensor:
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs, districts), prices)
    loss.backward()
    optimizer.step()
    return loss


for _ in range(600):
    loss = step()
with weft.no_grad():
    table["predicted"] = model(inputs, districts).numpy()
effects = pd.Series(100 * model.district.weight.detach().numpy()[:, 0], table["district"].cat.categories)
print("standard error", f"{(table['predicted'] - table['price']).std():.1f}")
print(effects.sub(effects.iloc[0]).round(0).to_string())
print(table.pivot_table(["price", "predicted"], "district", observed=True).round(0).to_string())
