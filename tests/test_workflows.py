"""What people do with weft and another library: each example, with the real library at the other end.

The libraries are those of the extra `test`; a test is skipped where its library is not installed.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import weft

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def example(tmp_path):
    def output_of(name):
        command = [sys.executable, str(ROOT / "examples" / name)]
        finished = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=os.environ)
        assert finished.returncode == 0, finished.stderr
        return finished.stdout

    return output_of


def numbers(text, name):
    """The numbers of the line that begins with a name."""
    (line,) = [line for line in text.splitlines() if line.split()[:1] == [name]]
    return [float(x) for x in re.findall(r"-?\d+(?:\.\d+)?(?:e[+-]\d+)?", line)]


def test_sampling_with_emcee(example):
    pytest.importorskip("emcee")
    printed = example("sampling_emcee.py")
    slope, intercept = numbers(printed, "slope"), numbers(printed, "intercept")
    assert abs(slope[0] - 2) < 4 * slope[1] and abs(intercept[0] - 1) < 4 * intercept[1]
    assert slope[1] < 0.1


def test_fitting_with_iminuit(example):
    pytest.importorskip("iminuit")
    printed = example("fit_iminuit.py")
    assert printed.startswith("valid")
    for name, true in {"signal": 400, "mean": 6, "sigma": 0.4}.items():
        found, error = numbers(printed, name)
        assert abs(found - true) < 3 * error


def test_a_pipeline_of_scikit_learn(example):
    pytest.importorskip("sklearn")
    printed = example("pipeline_sklearn.py")
    assert "'hidden': 64" in printed and numbers(printed, "accuracy")[0] > 0.9


def test_training_in_c(example):
    pytest.importorskip("sklearn")
    printed = example("training_in_c.py")
    assert "object file" in printed
    if shutil.which("cc"):
        assert "same weights: True" in printed and numbers(printed, "accuracy")[0] > 97


def test_a_likelihood_in_c(example):
    printed = example("likelihood_in_c.py")
    assert "object file" in printed and "the object loaded" in printed
    if shutil.which("cc"):
        assert "same numbers: True" in printed


def test_a_table_of_pandas(example):
    pytest.importorskip("pandas")
    printed = example("table_pandas.py")
    assert numbers(printed, "standard")[0] < 8
    assert [abs(float(line.split()[1]) - true) < 5 for line, true in zip(printed.splitlines()[1:], (0, 40, 90))] == [
        1
    ] * 3


def test_weights_of_safetensors(example):
    pytest.importorskip("safetensors")
    printed = example("weights_safetensors.py")
    assert "12 arrays, 2224 numbers" in printed and "twice the weights: True" in printed


def test_tests_with_pytest_and_the_plugin(example):
    assert re.search(r"^4 passed", example("testing_pytest.py"), re.MULTILINE)


def test_a_notebook_of_jupyter(tmp_path):
    """In a kernel of its own, as Jupyter runs it; every cell's last value is shown as HTML."""
    pytest.importorskip("ipykernel")
    pytest.importorskip("grandalf")
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook = nbformat.read(ROOT / "examples" / "notebook_jupyter.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") for cell in notebook.cells)
    manager = nbclient.NotebookClient(notebook, resources={"metadata": {"path": str(tmp_path)}}).create_kernel_manager()
    manager.kernel_spec.argv[0] = sys.executable
    nbclient.NotebookClient(notebook, km=manager, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    shown = [output["data"]["text/html"] for output in outputs if output["output_type"] == "execute_result"]
    assert len(shown) == 5
    for text, words in zip(shown, ["(200, 3)", "81 numbers to learn", "fast path: yes", "0.weight", "AddmmBackward0"]):
        assert words in text


def test_an_equation_solved_by_a_network(example):
    found, largest = numbers(example("pinn_heat.py"), "largest")
    assert largest == 1 and found < 0.005


def test_sensitivities_by_monte_carlo(example):
    printed = example("greeks_monte_carlo.py")
    for name in ("price", "delta", "vega", "rho"):
        found, exact = numbers(printed, name)
        assert found == pytest.approx(exact, rel=0.02)


# --- columns and arrays -----------------------------------------------------------------------------------------------
def test_columns_become_tensors():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"a": [1.0, 2.0], "b": [3, 4]})
    assert weft.tensor(table["a"]).tolist() == [1, 2]
    assert weft.tensor(table["b"]).dtype == weft.int64
    assert weft.tensor(table.to_numpy()).tolist() == weft.as_tensor(table.to_numpy()).tolist() == [[1, 3], [2, 4]]
    assert pandas.Series(weft.ones(2).numpy(), table.index).tolist() == [1, 1]


def test_functions_for_numpy():
    model = weft.nn.Linear(3, 2)
    predict = weft.for_numpy(model)
    for rows in (1, 4, 4, 4, 2, 4):
        x = np.random.default_rng(rows).normal(size=(rows, 3)).astype(np.float32)
        found = predict(x)
        assert type(found) is np.ndarray and found.tobytes() == model(weft.tensor(x)).detach().numpy().tobytes()


def test_results_for_numpy_are_the_callers():
    def parts(x, *, scale=1.0):
        return {"same": x, "all": (x * scale, [x.sum(), "text"])}

    function, kept = weft.for_numpy(parts), []
    for k in range(6):
        x = np.full(20_000, float(k))
        kept.append(function(x, scale=2.0))
        x[:] = -1
    for k, found in enumerate(kept):
        assert np.array_equal(found["same"], np.full(20_000, float(k)))
        assert np.array_equal(found["all"][0], np.full(20_000, 2.0 * k))
        assert found["all"][1][0] == 20_000.0 * k and found["all"][1][1] == "text"
    with pytest.raises(TypeError, match="for_numpy: expected a function of tensors, got int"):
        weft.for_numpy(3)
