"""Predicted and true prices by district"""

import matplotlib.pyplot as plt
from table_pandas import table

figure, axes = plt.subplots(figsize=(5.2, 4))
for district, rows in table.groupby("district", observed=True):
    axes.plot(rows["price"], rows["predicted"], ".", markersize=4, label=district)
ends = [table["price"].min(), table["price"].max()]
axes.plot(ends, ends, color="0.5", linewidth=1, label="predicted = price")
axes.set(xlabel="price (thousands)", ylabel="predicted price (thousands)", title="400 flats in three districts")
axes.legend()
