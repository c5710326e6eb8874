"""weft.sklearn with scikit-learn at the other end."""

import doctest
import importlib
import pickle
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("sklearn")
from sklearn.base import clone
from sklearn.datasets import load_iris, make_regression
from sklearn.ensemble import AdaBoostClassifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import weft
from weft import nn
from weft.sklearn import ModuleClassifier, ModuleRegressor

X, Y = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])[Y]


def network(n_inputs, n_outputs, hidden=16, dropout=0.0):
    return nn.Sequential(nn.Linear(n_inputs, hidden), nn.Tanh(), nn.Dropout(dropout), nn.Linear(hidden, n_outputs))


def parameters_of(estimator):
    return np.concatenate([p.detach().numpy().ravel() for p in estimator.module_.parameters()])


ESTIMATORS = [ModuleClassifier(max_epochs=30), ModuleRegressor(max_epochs=50)]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_the_checks_of_scikit_learn(estimator, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # without it one of them is skipped
    found = check_estimator(estimator, on_fail="raise", on_skip=None)
    assert len(found) > 40 and sum("sample_weight" in r["check_name"] for r in found) >= 6
    assert {r["check_name"]: r["status"] for r in found if r["status"] != "passed"} == {}


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_the_checks_of_scikit_learn_in_float32(estimator):
    # It wants the results of weights and of repeated samples to agree to 7 digits, more than float32 has.
    rounding = {"check_sample_weight_equivalence_on_dense_data": "float32"}
    found = check_estimator(
        clone(estimator).set_params(dtype="float32"), on_fail=None, on_skip=None, expected_failed_checks=rounding
    )
    found = [r for r in found if r["check_name"] not in rounding]
    problems = {r["check_name"]: r["exception"] for r in found if r["status"] not in ("passed", "skipped")}
    assert problems == {}


@pytest.mark.parametrize("make", [ModuleClassifier, ModuleRegressor])
def test_without_a_dtype_the_samples_decide(make):
    y = Y if make is ModuleClassifier else X[:, 0]
    options = {"max_epochs": 3, "random_state": 0}
    for given, expected in [("float32", weft.float32), ("float64", weft.float64), ("int64", weft.float64)]:
        model = make(**options).fit(X.astype(given), y)
        assert model.module_[0].weight.dtype == expected
        assert make is ModuleClassifier or model.predict(X).dtype == np.float64
        named = make(dtype=str(expected).split(".")[1], **options).fit(X.astype(given), y)
        assert np.array_equal(parameters_of(model), parameters_of(named))
        model.partial_fit(X, y)
        assert model.module_[0].weight.dtype == expected


def test_the_examples():
    failed, tried = doctest.testmod(importlib.import_module("weft.sklearn.estimators"))
    assert tried >= 6 and not failed


def test_a_classifier_of_named_classes_in_a_pipeline():
    model = make_pipeline(StandardScaler(), ModuleClassifier(network, max_epochs=60, random_state=0))
    assert cross_val_score(model, X, NAMES, cv=3).mean() > 0.9
    model.fit(X, NAMES)
    probabilities = model.predict_proba(X)
    assert probabilities.shape == (150, 3) and np.allclose(probabilities.sum(1), 1)
    assert np.array_equal(model.predict(X), model.classes_[probabilities.argmax(1)])
    assert np.allclose(np.exp(model.predict_log_proba(X)), probabilities)


@pytest.mark.parametrize("make", [ModuleClassifier, ModuleRegressor])
@pytest.mark.parametrize("options", [{}, {"early_stopping": True, "n_iter_no_change": 5}])
def test_weights_are_how_often_a_sample_is_there(make, options):
    weights = np.random.RandomState(0).randint(0, 4, len(X))
    options = {"max_epochs": 20, "random_state": 0, "batch_size": 1000, **options}
    y = Y if make is ModuleClassifier else X[:, 0] * 2 + X[:, 1]
    weighted = make(network, dtype="float64", **options).fit(X, y, sample_weight=weights)
    scaled = make(network, dtype="float64", **options).fit(X, y, 0.5 * weights)
    assert np.allclose(parameters_of(weighted), parameters_of(scaled), rtol=1e-9)
    if "early_stopping" not in options:  # which chooses other samples of those that are there several times
        repeated = make(network, dtype="float64", **options).fit(X.repeat(weights, 0), y.repeat(weights))
        assert np.allclose(parameters_of(weighted), parameters_of(repeated), rtol=1e-9)
        assert np.allclose(weighted.loss_curve_, repeated.loss_curve_)
    plain = make(network, dtype="float64", **options).fit(X, y)
    assert not np.allclose(parameters_of(weighted), parameters_of(plain))


def test_weights_in_small_batches_and_compiled_steps(monkeypatch):
    weights = np.where(Y == 2, 5.0, 1.0)
    fitted = []
    for after in (0, 10**9):
        monkeypatch.setattr("weft.sklearn.training.COMPILED_AFTER_STEPS", after)
        model = ModuleClassifier(network, batch_size=32, max_epochs=4, random_state=0)
        for _ in range(4):
            model.partial_fit(X, NAMES, classes=np.unique(NAMES), sample_weight=weights)
        fitted.append(parameters_of(model))
    assert np.array_equal(*fitted)
    plain = ModuleClassifier(network, batch_size=32, random_state=0)
    for _ in range(4):
        plain.partial_fit(X, NAMES, np.unique(NAMES))
    assert (model.predict(X) == "virginica").sum() > (plain.predict(X) == "virginica").sum()


def test_boosting_reweights_samples():
    base = ModuleClassifier(network, module_options={"hidden": 2}, max_epochs=20, lr=0.05, random_state=0)
    boosted = AdaBoostClassifier(base, n_estimators=6, random_state=0).fit(X, NAMES)
    assert len(boosted.estimators_) > 1 and boosted.score(X, NAMES) > base.fit(X, NAMES).score(X, NAMES)


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(label_smoothing=0.1), nn.functional.cross_entropy])
def test_losses_of_weighted_samples(loss):
    ones = ModuleClassifier(network, loss=loss, max_epochs=3, dtype="float64", random_state=0).fit(X, Y, np.ones(150))
    plain = ModuleClassifier(network, loss=loss, max_epochs=3, dtype="float64", random_state=0).fit(X, Y)
    assert np.allclose(parameters_of(ones), parameters_of(plain), rtol=1e-9)
    assert getattr(loss, "reduction", "mean") == "mean"


@pytest.mark.parametrize("make", [ModuleClassifier, ModuleRegressor])
def test_a_module_with_other_outputs_than_there_are_targets(make):
    y = Y if make is ModuleClassifier else X[:, 0]
    needed = 3 if make is ModuleClassifier else 1
    with pytest.raises(ValueError, match=rf"must give {needed} numbers for each sample.*of shape \(64, 5\)"):
        make(nn.Linear(4, 5)).fit(X, y)


def test_losses_of_other_outputs():
    def likelihood(outputs, targets):
        mean, log_scale = outputs[:, :1], outputs[:, 1:]
        return (log_scale + ((targets - mean) / log_scale.exp()) ** 2 / 2).mean()

    weft.manual_seed(3)  # of the layer: from some weights it takes longer
    model = ModuleRegressor(nn.Linear(4, 2), loss=likelihood, random_state=0).fit(X, X[:, 0])
    assert model.predict(X).shape == (150,) and model.score(X, X[:, 0]) > 0.9


def test_losses_that_cannot_be_weighted_say_so():
    def total(outputs, targets):
        return (outputs - targets).square().sum()

    def sloppy(outputs, targets, reduction="mean"):
        return (outputs - targets).square().mean()

    with pytest.raises(ValueError, match="must take reduction='none'.*'total' does not"):
        ModuleRegressor(loss=total).fit(X, X[:, 0], np.ones(150))
    with pytest.raises(ValueError, match="a number for each of 64 samples, got a tensor of shape \\(\\)"):
        ModuleRegressor(loss=sloppy).fit(X, X[:, 0], np.ones(150))


def test_a_search_in_two_processes():
    search = GridSearchCV(
        ModuleClassifier(network, max_epochs=15, random_state=0),
        {"module_options": [{"hidden": 2}, {"hidden": 16, "dropout": 0.1}], "lr": [0.03]},
        cv=2,
        n_jobs=2,
    )
    alone = clone(search).set_params(n_jobs=1).fit(X, Y)
    search.fit(X, Y)
    assert search.best_score_ > 0.8
    assert np.array_equal(search.cv_results_["mean_test_score"], alone.cv_results_["mean_test_score"])


def test_a_regressor_of_several_numbers():
    inputs, targets = make_regression(200, 5, n_targets=2, random_state=0)
    targets = targets / targets.std(0)
    model = ModuleRegressor(optimizer=weft.optim.AdamW, optimizer_options={"weight_decay": 0.0}, random_state=0)
    assert model.fit(inputs, targets).score(inputs, targets) > 0.98
    assert model.predict(inputs).shape == (200, 2)
    assert model.fit(inputs, targets[:, 0]).predict(inputs).shape == (200,)


def test_equal_seeds_are_equal_and_the_programs_random_numbers_stay():
    weft.manual_seed(5)
    expected = weft.rand(3).tolist()
    weft.manual_seed(5)
    first, second = (
        ModuleClassifier(network, module_options={"dropout": 0.5}, max_epochs=4, random_state=3) for _ in "12"
    )
    first.fit(X, Y)
    second.fit(X, Y)
    assert weft.rand(3).tolist() == expected
    assert first.loss_curve_ == second.loss_curve_
    assert parameters_of(first).tobytes() == parameters_of(second).tobytes()
    assert parameters_of(clone(first).set_params(random_state=4).fit(X, Y)).tobytes() != parameters_of(first).tobytes()


def test_compiled_steps_change_no_bit(monkeypatch):
    training = importlib.import_module("weft.sklearn.training")
    compiled = ModuleClassifier(network, batch_size=32, max_epochs=30, random_state=0).fit(X, Y)
    assert compiled.training_._compiled is not None
    monkeypatch.setattr(training, "COMPILED_AFTER_STEPS", 10**9)
    eager = clone(compiled).fit(X, Y)
    assert eager.training_._compiled is None
    assert compiled.loss_curve_ == eager.loss_curve_
    assert parameters_of(compiled).tobytes() == parameters_of(eager).tobytes()


def test_partial_fit_goes_on_where_it_was_after_pickling_too():
    model = ModuleClassifier(network, module_options={"dropout": 0.2}, batch_size=16, random_state=0)
    model.partial_fit(X[:60], Y[:60], classes=[0, 1, 2])
    assert model.n_iter_ == 1 and model.predict_proba(X).shape == (150, 3)
    for _ in range(14):
        model.partial_fit(X, Y)
    other = pickle.loads(pickle.dumps(model))
    for estimator in (model, other):
        estimator.partial_fit(X, Y)
    assert model.n_iter_ == other.n_iter_ == 16 and model.loss_curve_ == other.loss_curve_
    assert parameters_of(model).tobytes() == parameters_of(other).tobytes()
    with pytest.raises(ValueError, match=r"classes \[7\].*first call, \[0, 1, 2\]; give partial_fit all"):
        model.partial_fit(X, np.full(150, 7))


def test_early_stopping_keeps_the_best_state():
    model = ModuleClassifier(
        network,
        lr=0.05,
        max_epochs=200,
        early_stopping=True,
        validation_fraction=0.3,
        n_iter_no_change=3,
        random_state=1,
    ).fit(X, Y)
    assert model.n_iter_ == len(model.validation_curve_) == len(model.loss_curve_) < 200
    best = min(model.validation_curve_)
    assert model.validation_curve_[-1] >= best
    again = clone(model).set_params(max_epochs=1 + model.validation_curve_.index(best)).fit(X, Y)
    assert parameters_of(again).tobytes() == parameters_of(model).tobytes()


def test_warm_start_goes_on():
    model = ModuleRegressor(max_epochs=3, warm_start=True, random_state=0, dtype="float64")
    model.fit(X, Y).fit(X, Y)
    assert model.n_iter_ == 6 and model.loss_curve_[-1] < model.loss_curve_[0]
    assert model.module_[0].weight.dtype == weft.float64


def test_a_module_that_is_given_is_copied():
    module = network(4, 3)
    before = [p.detach().numpy().copy() for p in module.parameters()]
    model = ModuleClassifier(module, max_epochs=2).fit(X, Y)
    assert all(np.array_equal(p.detach().numpy(), b) for p, b in zip(module.parameters(), before))
    assert model.module_ is not module and type(model.optimizer_) is weft.optim.Adam


def test_tables_with_names():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(X, columns=["a", "b", "c", "d"])
    model = ModuleClassifier(max_epochs=2).fit(table, pandas.Series(NAMES))
    assert model.feature_names_in_.tolist() == ["a", "b", "c", "d"]
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(table.rename(columns={"a": "z"}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "ModuleClassifier: batch_size must be an integer of at least 1, got 0"),
        ({"max_epochs": 1.5}, "max_epochs must be an integer of at least 1, got 1.5"),
        ({"validation_fraction": 1.0}, "validation_fraction must lie between 0 and 1, got 1.0"),
        ({"dtype": "float16"}, r"dtype must be None or one of \['float32', 'float64'\], got 'float16'"),
        (
            {"module": lambda i, o: nn.Sequential(nn.Linear(i, o), nn.Flatten(0))},
            r"\(samples, outputs\); for an input of shape \(64, 4\) it returned a tensor of shape \(192,\)",
        ),
        ({"module": network(4, 3), "module_options": {"hidden": 2}}, "module_options: they are handed to a factory"),
        ({"loss": lambda outputs, y: outputs}, "loss: it must return a tensor of one element, got a tensor of shape"),
    ],
)
def test_what_is_wrong_is_said(options, message):
    with pytest.raises(ValueError, match=message):
        ModuleClassifier(**options).fit(X, Y)


def test_an_empty_module_is_the_one_that_was_given():
    model = ModuleRegressor(nn.Sequential(), loss=lambda outputs, y: (outputs.mean(1) - y.flatten()).square().mean())
    with pytest.raises(ValueError, match="no parameters|empty parameter list"):
        model.fit(X, Y)


def test_a_last_batch_of_one_row_joins_the_one_before():
    """A batch norm cannot train on one row."""
    sizes = []

    class Module(nn.Module):
        def __init__(self, n_inputs, n_outputs):
            super().__init__()
            self.norm, self.linear = nn.BatchNorm1d(n_inputs), nn.Linear(n_inputs, n_outputs)

        def forward(self, x):
            sizes.append(len(x))
            return self.linear(self.norm(x))

    for size, expected in ((4, [4, 5]), (3, [3, 3, 3]), (8, [9]), (7, [7, 2]), (9, [9]), (20, [9])):
        sizes.clear()
        ModuleRegressor(Module, batch_size=size, max_epochs=1, random_state=0).fit(X[:9], Y[:9])
        assert sizes == expected
    ModuleRegressor(batch_size=1, max_epochs=1, random_state=0).fit(X[:3], Y[:3])


def test_other_mistakes_are_said():
    with pytest.raises(TypeError, match="the factory must return a weft.nn.Module, got int"):
        ModuleRegressor(lambda i, o: 3).fit(X, Y)
    for name, value, wanted in (
        ("module", 3, "a module, or a function of the numbers of inputs and outputs"),
        ("loss", "mse", "a function of outputs and targets, such as weft.nn.functional.mse_loss"),
        ("optimizer", "adam", "a class of weft.optim, such as weft.optim.SGD"),
    ):
        with pytest.raises(TypeError, match=f"ModuleRegressor: {name} must be {wanted}.*, got {value!r}"):
            ModuleRegressor(**{name: value}).fit(X, Y)
    with pytest.raises(NotFittedError):
        _ = ModuleRegressor().module_
    model = ModuleRegressor().partial_fit(X, Y)
    with pytest.raises(ValueError, match="y has 2 columns, but the first call had 1"):
        model.partial_fit(X, np.stack([Y, Y], 1))


def test_without_scikit_learn_the_import_says_what_to_install():
    program = (
        "import sys\nsys.modules['sklearn'] = None\nimport weft\nassert 'weft.sklearn' not in sys.modules\n"
        "try:\n    import weft.sklearn\nexcept ModuleNotFoundError as error:\n    print(error)\n"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "needs scikit-learn, which is not installed: pip install 'weft[sklearn]'" in finished.stdout
