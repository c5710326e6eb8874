"""A network in scikit-learn's pipeline and search: python examples/pipeline_sklearn.py"""

from typing import Any

from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from weft import nn
from weft.sklearn import ModuleClassifier


def network(n_features: int, n_classes: int, hidden: int = 32) -> nn.Module:
    return nn.Sequential(nn.Linear(n_features, hidden), nn.GELU(), nn.Linear(hidden, n_classes))


def searched() -> tuple[GridSearchCV, tuple[Any, Any]]:
    """The finished search, and what it has not seen."""
    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    model = make_pipeline(
        StandardScaler(), ModuleClassifier(network, early_stopping=True, max_epochs=12, random_state=0)
    )
    grid = {"moduleclassifier__module_options": [{"hidden": 8}, {"hidden": 64}]}
    search = GridSearchCV(model, grid, cv=3, n_jobs=2).fit(X_train, y_train)
    print("best    ", search.best_params_)
    print("accuracy", f"{search.score(X_test, y_test):.3f}")
    return search, (X_test, y_test)


if __name__ == "__main__":  # its workers import this file
    searched()
