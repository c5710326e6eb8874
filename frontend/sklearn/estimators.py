"""A classifier and a regressor around any module."""

from numbers import Integral

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from .. import nn
from ..compiler.dtypes import float32, float64
from ..nn.functional import cross_entropy, mse_loss
from ..optim import Adam
from ..runtime.state.tracebacks import shortening
from .training import Training, make_module

_DTYPES = {"float32": float32, "float64": float64}
# scikit-learn's own rule: float32 stays what it is, and all else becomes float64.
_DTYPE_OF_X = [np.float64, np.float32]
_FACTORIES = {
    "module": "a module, or a function of the numbers of inputs and outputs that makes one",
    "loss": "a function of outputs and targets, such as weft.nn.functional.mse_loss",
    "optimizer": "a class of weft.optim, such as weft.optim.SGD",
}


def perceptron(n_inputs, n_outputs, hidden=64):
    """The module of an estimator that is given none: one hidden layer."""
    return nn.Sequential(nn.Linear(n_inputs, hidden), nn.ReLU(), nn.Linear(hidden, n_outputs))


class _ModuleEstimator(BaseEstimator):
    """What both share: their parameters, and how they are fitted."""

    def __init__(
        self,
        module=None,
        *,
        module_options=None,
        loss=None,
        optimizer=None,
        optimizer_options=None,
        lr=0.01,
        batch_size=64,
        max_epochs=100,
        tol=1e-4,
        n_iter_no_change=20,
        early_stopping=False,
        validation_fraction=0.1,
        warm_start=False,
        dtype=None,
        random_state=None,
        verbose=0,
    ):
        self.module = module
        self.module_options = module_options
        self.loss = loss
        self.optimizer = optimizer
        self.optimizer_options = optimizer_options
        self.lr = lr
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.warm_start = warm_start
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose

    @shortening
    def fit(self, X, y, sample_weight=None):
        """Train from the start (with warm_start: go on), until max_epochs or nothing improves any more.

        sample_weight: of shape (samples,), how much each sample counts in the loss; twice as much is as if it was there
        twice, and samples of weight 0 are as if they were not there."""
        self._check_parameters()
        goes_on = self.warm_start and hasattr(self, "training_")
        X, y, weights = self._weighted(*self._data(X, y, reset=not goes_on), sample_weight)
        targets = self._targets(y, None, reset=not goes_on)
        if not goes_on:
            self._start(targets)
        self._fit(X, targets, weights)
        return self

    def _partial_fit(self, X, y, classes, sample_weight):
        starts = not hasattr(self, "training_")
        if starts:
            self._check_parameters()
        X, y, weights = self._weighted(*self._data(X, y, reset=starts), sample_weight)
        targets = self._targets(y, classes, reset=starts)
        if starts:
            self._start(targets)
        self._one_epoch(X, targets, weights)
        return self

    def _weighted(self, X, y, sample_weight):
        """(X, y, weights): the samples that count, with weights of which 1 is the mean; None if all count the same."""
        if sample_weight is None:
            return X, y, None
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        counts = weights > 0
        X, y, weights = X[counts], y[counts], weights[counts]
        return X, y, (weights / weights.mean()).astype(X.dtype)

    def _check_parameters(self):
        for name in ("batch_size", "max_epochs", "n_iter_no_change"):
            value = getattr(self, name)
            if not isinstance(value, Integral) or value < 1:
                raise ValueError(f"{type(self).__name__}: {name} must be an integer of at least 1, got {value!r}")
        if not 0 < self.validation_fraction < 1:
            raise ValueError(
                f"{type(self).__name__}: validation_fraction must lie between 0 and 1, got {self.validation_fraction!r}"
            )
        for name, what in _FACTORIES.items():
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise TypeError(f"{type(self).__name__}: {name} must be {what}, got {value!r}")
        if self.dtype is not None and self.dtype not in _DTYPES:
            raise ValueError(f"{type(self).__name__}: dtype must be None or one of {list(_DTYPES)}, got {self.dtype!r}")

    def _start(self, targets):
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        n_outputs = self._n_outputs(targets)
        module = perceptron if self.module is None else self.module  # an empty Sequential is false
        options = {"lr": self.lr, **(self.optimizer_options or {})}
        self.training_ = Training(
            lambda: make_module(module, self.n_features_in_, n_outputs, self.module_options, _DTYPES[self._dtype]),
            lambda parameters: (Adam if self.optimizer is None else self.optimizer)(parameters, **options),
            self._default_loss if self.loss is None else self.loss,
            n_outputs if self._counts_outputs() else None,
            seed,
        )
        self.loss_curve_, self.n_iter_ = [], 0

    def _one_epoch(self, X, targets, weights):
        loss = self.training_.epoch(X, targets, weights, self.batch_size)
        self.loss_curve_.append(loss)
        self.n_iter_ += 1
        return loss

    def _fit(self, X, targets, weights):
        held_out = None
        if self.early_stopping:
            (X, targets, weights), held_out = self._parted(X, targets, weights)
            self.validation_curve_ = []
        best, best_state, n_worse = np.inf, None, 0
        for _ in range(self.max_epochs):
            loss = self._one_epoch(X, targets, weights)
            if held_out:
                loss = self.training_.loss_of(*held_out)
                self.validation_curve_.append(loss)
            self._report(loss)
            n_worse = 0 if loss < best - self.tol else n_worse + 1
            if loss < best:
                best, best_state = loss, self.training_.state() if held_out else None
            if n_worse >= self.n_iter_no_change:
                break
        if best_state is not None:
            self.training_.restore(best_state)

    def _parted(self, X, targets, weights):
        """The samples to learn from and those to stop by, both as (inputs, targets, weights)."""
        parts = train_test_split(
            X,
            targets,
            *([] if weights is None else [weights]),
            test_size=self.validation_fraction,
            random_state=self.training_.order.randint(2**31 - 1),
            stratify=self._strata(targets),
        )
        return [*parts[::2], None][:3], [*parts[1::2], None][:3]

    def _report(self, loss):
        if self.verbose:
            what = "validation loss" if self.early_stopping else "loss"
            print(f"epoch {self.n_iter_}: {what} {loss:.6g}")

    def _outputs(self, X):
        check_is_fitted(self, "training_")
        return self.training_.predict(self._validated(X, reset=False))

    def _validated(self, *data, reset, **options):
        """The samples in the type in which the module computes; reset: they decide which that is."""
        dtype = (self.dtype or _DTYPE_OF_X) if reset else self._dtype
        validated = validate_data(self, *data, dtype=dtype, reset=reset, **options)
        if reset:
            self._dtype = validated[0].dtype.name
        return validated

    @property
    def module_(self):
        """The module that was trained."""
        check_is_fitted(self, "training_")
        return self.training_.module

    @property
    def optimizer_(self):
        """Its optimizer."""
        check_is_fitted(self, "training_")
        return self.training_.optimizer


class ModuleClassifier(ClassifierMixin, _ModuleEstimator):
    """A module that tells classes apart.

    module: a function (n_features, n_classes, **module_options) that returns a module, or a module, which is copied;
    without it, one hidden layer. It gives a number for each class, from which softmax makes probabilities.
    loss: a function of (outputs, numbers of classes); cross entropy. optimizer: a class, or a function of parameters,
    `lr` and `optimizer_options`; Adam. Samples are batches of rows. With a sample_weight the loss must take
    reduction="none", or be a module with such an attribute.

    dtype: "float32" or "float64", in which the module computes whatever it was made of. Without it X decides, as in
    scikit-learn's own estimators: float32 if X is float32, else float64. float32 takes about half the time.

    Training ends after max_epochs, or when the loss has not become smaller by `tol` for n_iter_no_change epochs. With
    early_stopping a validation_fraction of the samples is kept apart, its loss decides, and the best state is kept.
    Equal integers as random_state give equal results; the state of weft.manual_seed is neither used nor changed.

    After `fit` there are classes_, module_, optimizer_, loss_curve_ (and validation_curve_), n_iter_.

    >>> import numpy as np
    >>> X = np.array([[0.0], [0.1], [0.9], [1.0]])
    >>> model = ModuleClassifier(random_state=0).fit(X, ["low", "low", "high", "high"])
    >>> model.predict([[0.05], [0.95]]).tolist()
    ['low', 'high']
    """

    _default_loss = staticmethod(cross_entropy)

    @shortening
    def partial_fit(self, X, y, classes=None, sample_weight=None):
        """One pass over these samples. `classes`: all there are, needed in the first call if it does not show them.
        sample_weight: of shape (samples,), how much each of them counts beside the others of this call."""
        return self._partial_fit(X, y, classes, sample_weight)

    @shortening
    def predict(self, X):
        """The most probable class of each row."""
        outputs = self._outputs(X)
        return self.classes_[outputs.argmax(1)]

    @shortening
    def predict_proba(self, X):
        """Of shape (samples, classes), in the order of classes_."""
        outputs = self._outputs(X).astype(np.float64)
        exponentials = np.exp(outputs - outputs.max(1, keepdims=True))
        return exponentials / exponentials.sum(1, keepdims=True)

    @shortening
    def predict_log_proba(self, X):
        """The logarithms of `predict_proba`, computed without overflow: (n_samples, n_classes), float64."""
        outputs = self._outputs(X).astype(np.float64)
        shifted = outputs - outputs.max(1, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))

    def _data(self, X, y, reset):
        X, y = self._validated(X, y, reset=reset)
        check_classification_targets(y)
        return X, y

    def _targets(self, y, classes, reset):
        if reset:
            self.classes_ = np.unique(y if classes is None else classes)
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise ValueError(
                f"{type(self).__name__}: y has the classes {unknown.tolist()}, which were not among those of the first "
                f"call, {self.classes_.tolist()}; give partial_fit all of them as `classes`"
            )
        return np.searchsorted(self.classes_, y)

    def _n_outputs(self, targets):
        return len(self.classes_)

    def _counts_outputs(self):
        return True

    @staticmethod
    def _strata(targets):
        return targets if np.bincount(targets)[np.unique(targets)].min() > 1 else None


class ModuleRegressor(RegressorMixin, _ModuleEstimator):
    """A module that gives numbers: one for each row, or several if the targets have several columns.

    module: a function (n_features, n_outputs, **module_options) that returns a module of outputs of shape (samples,
    n_outputs). loss: a function of (outputs, targets), both of that shape; mean squared error. Another loss may want
    other outputs. All else is as in ModuleClassifier. Targets are taken as they are; scikit-learn's
    TransformedTargetRegressor standardizes them.

    >>> import numpy as np
    >>> X = np.linspace(-1, 1, 300)[:, None]
    >>> model = ModuleRegressor(random_state=0).fit(X, 3 * X[:, 0])
    >>> model.score(X, 3 * X[:, 0]) > 0.99
    True
    """

    _default_loss = staticmethod(mse_loss)

    @shortening
    def partial_fit(self, X, y, sample_weight=None):
        """One pass over these samples. sample_weight: of shape (samples,), how much each of them counts beside the
        others of this call."""
        return self._partial_fit(X, y, None, sample_weight)

    @shortening
    def predict(self, X):
        """Of shape (samples,), or (samples, outputs) if the targets had two dimensions; float64."""
        outputs = self._outputs(X).astype(np.float64)
        return outputs[:, 0] if self._is_one_column else outputs

    def _data(self, X, y, reset):
        X, y = self._validated(X, y, reset=reset, multi_output=True, y_numeric=True)
        if reset:
            self._is_one_column, self._n_columns = y.ndim == 1, 1 if y.ndim == 1 else y.shape[1]
        return X, y

    def _targets(self, y, classes, reset):
        targets = y.reshape(len(y), -1).astype(self._dtype)
        if targets.shape[1] != self._n_columns:
            raise ValueError(
                f"{type(self).__name__}: y has {targets.shape[1]} columns, but the first call had {self._n_columns}"
            )
        return targets

    def _n_outputs(self, targets):
        return self._n_columns

    def _counts_outputs(self):
        # A loss of the user's may want others, variances for one.
        return self.loss is None

    @staticmethod
    def _strata(targets):
        return None

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
