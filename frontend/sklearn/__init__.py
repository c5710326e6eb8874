"""weft.sklearn: modules as scikit-learn's estimators, in pipelines and searches.

    from weft.sklearn import ModuleClassifier, ModuleRegressor

It is imported only when asked for, and needs scikit-learn: pip install 'weft[sklearn]'.
"""

try:
    import sklearn  # noqa: F401
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "weft.sklearn needs scikit-learn, which is not installed: pip install 'weft[sklearn]'", name=missing.name
    ) from missing

from ..public import of_module
from .estimators import ModuleClassifier, ModuleRegressor

__getattr__, __dir__ = of_module(__name__)
__all__ = ["ModuleClassifier", "ModuleRegressor"]
