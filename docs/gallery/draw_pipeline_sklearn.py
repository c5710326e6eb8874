"""How the best network learned, and what it takes for what"""

import matplotlib.pyplot as plt
from pipeline_sklearn import searched
from sklearn.metrics import ConfusionMatrixDisplay

search, (X_test, y_test) = searched()
classifier = search.best_estimator_[-1]

figure, (curves, matrix) = plt.subplots(1, 2, figsize=(8.4, 3.8))
curves.plot(classifier.loss_curve_, label="training")
curves.plot(classifier.validation_curve_, label="held out for early stopping")
curves.set(xlabel="epoch", ylabel="cross entropy (nats)", title="Loss", yscale="log")
curves.legend()
ConfusionMatrixDisplay.from_estimator(search, X_test, y_test, ax=matrix, colorbar=False, cmap="Blues")
matrix.set(xlabel="answer", ylabel="true digit", title=f"{len(y_test)} digits not trained on")
