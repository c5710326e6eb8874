"""Functions as C functions: an object, a header and a description, with weft's bits and without weft."""

import ctypes
import json
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest

import weft
from weft import nn, optim
from weft.nn import functional as F


def likelihood(seed=0, rows=50, columns=7):
    weft.manual_seed(seed)
    x, y = weft.randn(rows, columns, dtype=weft.float64), (weft.rand(rows, dtype=weft.float64) > 0.5).double()

    def negative(beta):
        z = x @ beta
        return (F.softplus(z) - y * z).sum()

    return negative, np.random.default_rng(seed).standard_normal(columns)


def same(xs, ys):
    return len(xs) == len(ys) and all(np.array_equal(x, y) for x, y in zip(xs, ys))


# --- called from Python -----------------------------------------------------------------------------------------------
def test_native_functions_have_the_bits_of_weft():
    f, beta = likelihood()
    native = weft.aot(f, (beta,), gradients=True, hvp=True)
    value, gradient = weft.value_and_grad(f)(beta)
    vector = np.arange(7.0)
    for _ in range(3):
        assert native(beta) == native.value(beta) == value
        assert same(native.value_and_grad(beta), (value, gradient))
        assert np.array_equal(native.hvp(beta, vector), weft.hvp(f)(beta, vector))


def test_kernels_of_every_kind():
    def f(x, index, w):
        h = F.layer_norm(x @ w, (5,)).softmax(1)
        top, where = h.sort(1)
        return top.cumsum(0), where, h[:, 1:3].clone(), x.index_select(0, index), (x > 0).any(), h.t().contiguous()

    weft.manual_seed(0)
    x, index, w = weft.randn(6, 5), weft.tensor([3, 0, 3]), weft.randn(5, 5)
    results = weft.aot(f, (x, index, w))(x.numpy(), index.numpy(), w.numpy())
    assert same([np.asarray(r) for r in results], [r.numpy() for r in f(x, index, w)])


def test_routines_that_have_parts_of_the_same_name():
    def both(x):
        return x.sort(1)[1], x.topk(2, 1)[1]

    x = weft.randn(4, 1000)
    for found, wanted in zip(weft.aot(both, (x,))(x.numpy()), both(x), strict=True):
        assert np.array_equal(found, wanted.numpy())


def test_results_that_are_seen_in_another_shape():
    native = weft.aot(lambda x: weft.cat([x, x]).reshape(-1), (np.ones((3, 2)),))
    assert native(np.ones((3, 2))).shape == (12,)


def test_numbers_made_outside_that_change_are_refused():
    random = np.random.default_rng(0)
    with pytest.raises(ValueError, match="is not the same in every call"):
        weft.aot(lambda x: x * weft.tensor(random.standard_normal(2)), (np.ones(2),))


def test_a_convolution_with_gradients():
    weft.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 1))

    def f(x):
        return net(x).square().mean()

    x = weft.randn(2, 1, 8, 8, requires_grad=True)
    value, gradient = weft.aot(f, (x,), gradients=True).value_and_grad(x.detach().numpy())
    f(x).backward()
    assert value == f(x).item() and np.array_equal(gradient, x.grad.numpy())


def test_attention_with_products_beside_it():
    w = weft.ones(4, 4)

    def f(x):
        return F.scaled_dot_product_attention(x, x @ w, x).square().sum()

    x = weft.tensor(np.random.default_rng(0).standard_normal((5, 4)), dtype=weft.float32, requires_grad=True)
    value, gradient = weft.aot(f, (x,), gradients=True).value_and_grad(x.detach().numpy())
    f(x).backward()
    assert value == f(x).item() and np.array_equal(gradient, x.grad.numpy())


def test_captured_tensors_are_data_however_they_lie():
    table = weft.arange(24.0).reshape(4, 6)

    def f(x):
        return (x * table.t()[::2, 1:3]).sum(0)

    native = weft.aot(f, (weft.ones(3, 2),))
    expected = f(weft.ones(3, 2)).numpy()
    table.zero_()
    assert np.array_equal(native(np.ones((3, 2), np.float32)), expected)


def training(optimizer):
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    updates = optimizer(model.parameters())

    def step(x, y):
        updates.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        updates.step()
        return loss

    return model, step, weft.randn(10, 6), weft.randint(0, 3, (10,))


def test_a_training_step_and_its_state():
    model, step, x, y = training(lambda p: optim.SGD(p, lr=0.1, momentum=0.9))
    native = weft.aot(step, (x, y))
    assert set(native.state) >= {"model_0_weight", "model_2_bias", "updates_0_momentum_buffer"}
    for _ in range(4):
        assert native(x.numpy(), y.numpy()) == step(x, y).item()
    assert np.array_equal(native.state["model_0_weight"], model[0].weight.detach().numpy())


def test_what_is_out_of_range_changes_nothing():
    _, step, x, y = training(lambda p: optim.SGD(p, lr=0.1))
    native = weft.aot(step, (x, y))
    before = {name: a.copy() for name, a in native.state.items()}
    with pytest.raises(IndexError, match="out of range; nothing was changed"):
        native(x.numpy(), np.full(10, 7))
    assert all(np.array_equal(a, native.state[name]) for name, a in before.items())


def test_an_argument_that_is_changed():
    def f(total, x):
        total.add_(x)
        return total.sum()

    native, total = weft.aot(f, (weft.zeros(3), weft.ones(3))), np.zeros(3, np.float32)
    assert native(total, np.ones(3)) == 3.0 and native(total, np.ones(3)) == 6.0
    assert total.tolist() == [2.0, 2.0, 2.0]
    with pytest.raises(TypeError, match=r"total: float32\[3\] is changed in place"):
        native([1, 2, 3], np.ones(3))


def test_threads_with_scratch_memory_of_their_own():
    f, beta = likelihood()
    native = weft.aot(f, (beta,), gradients=True).value_and_grad
    expected, wrong = native(beta), []

    def work(own):
        wrong.extend(1 for _ in range(200) if not same(own(beta), expected))

    threads = [threading.Thread(target=work, args=(native.copy(),)) for _ in range(3)]
    [t.start() for t in threads], [t.join() for t in threads]
    assert not wrong


def test_scipy_integrates_without_python():
    from scipy import integrate

    bell = weft.aot(lambda x: (-x.square().sum()).exp(), (np.zeros(1),)).value
    assert integrate.quad(bell.low_level_callable(), -6, 6)[0] == pytest.approx(np.sqrt(np.pi), rel=1e-12)
    two = weft.aot(lambda x: x.prod(), (np.zeros(2),)).value
    assert integrate.nquad(two.low_level_callable(), [(0, 1), (0, 2)])[0] == pytest.approx(1.0)
    with pytest.raises(TypeError, match="no function of one float64 array"):
        weft.aot(lambda x: x.sum(), (weft.ones(2),)).value.low_level_callable()


def test_scipys_integration_gives_other_numbers_too():
    from scipy import integrate

    wave = weft.aot(lambda x: (x[0] * x[1]).sin(), (np.zeros(2),)).value
    found = integrate.quad(wave.low_level_callable(), 0, 1, args=(2.0,))[0]
    assert found == pytest.approx((1 - np.cos(2)) / 2, rel=1e-12)
    with pytest.warns(integrate.IntegrationWarning):  # the second number would be some memory
        assert np.isnan(integrate.quad(wave.low_level_callable(), 0, 1)[0])


def test_scipys_filters_call_the_function():
    from scipy import ndimage

    image = np.random.default_rng(0).normal(size=(7, 9))
    native = weft.aot(lambda w: w.square().mean().sqrt(), (np.zeros(9),)).value
    found = ndimage.generic_filter(image, native.low_level_filter(), size=3)
    assert same([found], [ndimage.generic_filter(image, native, size=3)])
    with pytest.raises(RuntimeError, match="unknown error in filter"):
        ndimage.generic_filter(image, native.low_level_filter(), size=5)
    with pytest.raises(TypeError, match="no function of one float64 array"):
        weft.aot(lambda x: x.sum(), (weft.ones(2),)).value.low_level_filter()


def test_who_lacks_scipy_is_told_what_to_install(monkeypatch):
    bell = weft.aot(lambda x: (-x.square().sum()).exp(), (np.zeros(1),)).value
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(ModuleNotFoundError, match="needs SciPy, which is not installed: pip install scipy"):
        bell.low_level_callable()


def test_addresses_for_other_libraries():
    f, beta = likelihood()
    native = weft.aot(f, (beta,), gradients=True).value_and_grad
    value, gradient = np.empty(1), np.empty(7)
    call = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)(native.address)
    assert call(beta.ctypes.data, value.ctypes.data, gradient.ctypes.data, native.scratch) == 0
    assert same((value[0], gradient), native(beta))
    assert native.ctypes(beta.ctypes.data, value.ctypes.data, gradient.ctypes.data, native.scratch) == 0


def test_wrong_arguments_of_native_functions():
    f, beta = likelihood()
    native = weft.aot(f, (beta,))
    with pytest.raises(TypeError, match=r"negative takes \(beta: float64\[7\]\), but 2 arguments"):
        native(beta, beta)
    with pytest.raises(ValueError, match=r"beta: float64\[7\] was expected, got an array of shape \(6,\)"):
        native(beta[1:])
    assert native(list(beta)) == native(beta) == native(np.repeat(beta, 2)[::2])


def test_numbers_that_an_argument_cannot_hold_are_refused():
    native = weft.aot(lambda k: k * 2, (weft.arange(3, dtype=weft.int32),))
    assert native([1, 2, 3]).tolist() == native(np.array([1, 2, 3])).tolist() == [2, 4, 6]
    for wrong in (np.array([1.7, 2, 3]), np.array([2**40, 2, 3]), np.array([1j, 2, 3])):
        with pytest.raises(TypeError, match=r"k: int32\[3\] was expected, got an array of .* does not have"):
            native(wrong)


def test_results_that_are_views_arguments_or_each_other():
    table = nn.Parameter(weft.ones(3))

    def f(x):
        y = x * 2
        z = y.t()
        return y, y, z, z[1:], y.reshape(-1), x, x.expand(2, 2, 3), table

    native, x = weft.aot(f, (weft.ones(2, 3),)), np.arange(6, dtype=np.float32).reshape(2, 3)
    assert same(native(x), [r.detach().numpy() for r in f(weft.tensor(x))])
    sums = weft.aot(lambda x, y: (x + y).sum(), (np.ones(3), np.ones((2, 1))), gradients=True, hvp=True)
    value, x_grad, y_grad = sums.value_and_grad(np.ones(3), np.ones((2, 1)))
    assert value == 12 and x_grad.tolist() == [2, 2, 2] and y_grad.tolist() == [[3], [3]]
    assert same(sums.hvp(*[np.ones(3), np.ones((2, 1))] * 2), (np.zeros(3), np.zeros((2, 1))))


def test_several_types_and_results():
    def f(a, b, c, d, e):
        return (a.double() + b).sum(), c + d, e & (a > 0), c.float() * a, b.float() * 2, d.clone()

    weft.manual_seed(0)
    args = (weft.randn(4), weft.randn(4, dtype=weft.float64), weft.arange(4), weft.arange(4, dtype=weft.int32))
    args += (weft.tensor([True, False, True, True]),)
    results = weft.aot(f, args)(*[a.numpy() for a in args])
    for found, expected in zip(results, f(*args), strict=True):
        assert np.array_equal(found, expected.numpy()) and np.asarray(found).dtype == expected.numpy().dtype


def test_fields_of_two_tensors_have_two_names():
    m_weight, m = weft.zeros(2), nn.Linear(2, 2)

    @weft.no_grad()
    def f(x):
        m_weight.add_(x)
        m.weight.mul_(x)
        return m_weight.sum() + m.weight.sum()

    native = weft.aot(f, (weft.ones(2),))
    assert [a.shape for a in native.state.values()] == [(2,), (2, 2)]
    assert native(np.full(2, 3.0)) == f(weft.full((2,), 3.0)).item()


# --- what cannot be exported ------------------------------------------------------------------------------------------
def refused(f, *args, **options):
    with pytest.raises((ValueError, RuntimeError)) as raised:
        weft.aot(f, args, **options)
    return str(raised.value)


def test_what_cannot_be_exported_says_why():
    x = weft.ones(3)
    assert "random draws" in refused(lambda x: x + weft.randn(3), x)
    assert "a value was read before the call ended" in refused(lambda x: x * 2 if x.sum().item() > 0 else x, x)
    assert "computes nothing that depends on tensors" in refused(lambda x: None, x)
    there = weft.ones(2)
    assert "a tensor that was there before" in refused(lambda x: (x * 2, there), x)
    assert "returns a float" in refused(lambda x: (x * 2, 1.0), x)
    assert "one floating number, but the function returns float32 of shape (3,)" in refused(
        lambda x: x * 2, x, gradients=True
    )
    assert "no argument is a tensor of floats" in refused(lambda k: k.sum(), weft.arange(3), gradients=True)
    assert "example_args must be a tuple" in str(pytest.raises(ValueError, weft.aot, lambda x: x * 2, x).value)
    rates = iter([0.1, 0.2, 0.3])
    assert "number that changes from call to call [" in refused(lambda x: x * next(rates), x)


def test_nothing_is_written_that_would_be_wrong(tmp_path):
    with pytest.raises(ValueError, match="cannot be one's name"):
        weft.export(lambda x: x * 2, (weft.ones(3),), tmp_path / "two words")
    with pytest.raises(ValueError, match="'f.o' cannot be one's name; 'f' could, without its ending"):
        weft.export(lambda x: x * 2, (weft.ones(3),), tmp_path / "f.o")
    with pytest.raises(ValueError, match="must be 'native' or one of"):
        weft.export(lambda x: x * 2, (weft.ones(3),), tmp_path / "f", target="sparc")
    with pytest.raises(RuntimeError, match="complex64 has no generated kernels"):
        weft.export(lambda x: x * 2, (weft.ones(3, dtype=weft.complex64),), tmp_path / "f")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["main", "exp", "double", "class", "NULL"])
def test_names_that_c_has_for_something_else(tmp_path, name):
    with pytest.raises(ValueError, match=f"{name!r} cannot be one's name"):
        weft.export(lambda x: x * 2, (weft.ones(3),), tmp_path / name)


def test_arguments_have_names_that_c_and_cpp_allow(tmp_path):
    def f(new, value, scratch, int, grad_new_):
        return (new * value * scratch * int * grad_new_).sum()

    files = weft.export(f, (np.ones(2),) * 5, tmp_path / "f", gradients=True)
    header = files.header.read_text()
    double = "const double *{}, "
    assert "int f(" + "".join(map(double.format, ["new_", "value_", "scratch_", "int_", "grad_new__"])) in header
    for compiler, ending in (("cc", "c"), ("c++", "cpp")):
        if shutil.which(compiler):
            (tmp_path / f"main.{ending}").write_text(
                '#include <stdio.h>\n#include "f.h"\nint main(void) { return 0; }\n'
            )
            subprocess.run([compiler, "-Wall", "-Werror", f"main.{ending}", "f.o", "-lm"], check=True, cwd=tmp_path)


# --- from files -------------------------------------------------------------------------------------------------------
def test_files_are_loaded_without_llvm(tmp_path):
    f, beta = likelihood()
    weft.export(f, (beta,), tmp_path / "nll", gradients=True, target="x86-64-v2")
    np.save(tmp_path / "beta.npy", beta)
    program = """
import sys, numpy as np, weft
f = weft.load_exported(sys.argv[1] + "/nll")
value, gradient = f.value_and_grad(np.load(sys.argv[1] + "/beta.npy"))
assert "llvmlite" not in sys.modules and "networkx" not in sys.modules
print(value.hex(), gradient.tobytes().hex())
"""
    import sys

    out = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    value, gradient = weft.value_and_grad(f)(beta)
    assert out.stdout.split() == [value.hex(), gradient.tobytes().hex()]


def test_the_description(tmp_path):
    _, step, x, y = training(lambda p: optim.SGD(p, lr=0.1))
    files = weft.export(step, (x, y), tmp_path / "step")
    description = json.loads(files.description.read_text())
    (function,) = description["functions"]
    assert [p["role"] for p in function["parameters"]] == ["argument", "argument", "result", "state"]
    assert function["parameters"][1] == {
        "role": "argument", "name": "y", "shape": [10], "dtype": "int64", "elements": 10,
    }  # fmt: skip
    assert f"#define STEP_SCRATCH {function['scratch_bytes']}" in files.header.read_text()
    with pytest.raises(ValueError, match="was made for aarch64"):
        weft.export(step, (x, y), tmp_path / "other", target="aarch64")
        weft.load_exported(tmp_path / "other")
    with pytest.raises(AttributeError, match="step has no hvp; it was made without hvp=True"):
        weft.load_exported(tmp_path / "step").hvp(x, y)
    files.object.write_bytes(files.object.read_bytes()[:600])
    with pytest.raises(ValueError, match="step.o is not the object that weft.export has written"):
        weft.load_exported(tmp_path / "step")
    files.description.write_text("{}")
    with pytest.raises(ValueError, match="step.json is no description"):
        weft.load_exported(tmp_path / "step")


# --- from C -----------------------------------------------------------------------------------------------------------
C_PROGRAM = """
#include "nll.h"
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    double beta[7], vector[7], value, gradient[7], product[7];
    void *scratch = aligned_alloc(64, NLL_SCRATCH + NLL_VALUE_AND_GRAD_SCRATCH + NLL_HVP_SCRATCH + 64);
    for (int k = 0; k < 7; k++) { beta[k] = 0.25 * (k - 3); vector[k] = k; }
    if (nll(beta, &value, scratch)) return 1;
    printf("%a\\n", value);
    if (nll_value_and_grad(beta, &value, gradient, scratch) || nll_hvp(beta, vector, product, scratch)) return 1;
    printf("%a\\n", value);
    for (int k = 0; k < 7; k++) printf("%a\\n", gradient[k]);
    for (int k = 0; k < 7; k++) printf("%a\\n", product[k]);
    return 0;
}
"""


def linked_and_run(folder, compiler, run=(), flags=()):
    source = folder / ("main.cpp" if compiler.endswith("++") else "main.c")
    source.write_text(C_PROGRAM)
    command = [
        compiler,
        "-Wall",
        "-Werror",
        *flags,
        str(source),
        str(folder / "nll.o"),
        "-lm",
        "-o",
        str(folder / "main"),
    ]
    subprocess.run(command, check=True, cwd=folder)
    out = subprocess.run([*run, str(folder / "main")], capture_output=True, text=True, check=True).stdout
    return [float.fromhex(line) for line in out.split()]


def arguments():
    """beta and the vector of the programs."""
    return 0.25 * (np.arange(7.0) - 3), np.arange(7.0)


def expected_of(f):
    beta, vector = arguments()
    value, gradient = weft.value_and_grad(f)(beta)
    return [value, value, *gradient, *weft.hvp(f)(beta, vector)]


@pytest.mark.parametrize("target", ["native", "x86-64", "x86-64-v2"])
def test_a_program_in_c(tmp_path, target):
    """The same from Python's loader, and from C and C++ where there are compilers."""
    f, beta = likelihood()
    weft.export(f, (beta,), tmp_path / "nll", gradients=True, hvp=True, target=target)
    loaded, (beta, vector) = weft.load_exported(tmp_path / "nll"), arguments()
    value, gradient = loaded.value_and_grad(beta)
    assert [loaded(beta), value, *gradient, *loaded.hvp(beta, vector)] == expected_of(f)
    for compiler in filter(shutil.which, ("cc", "c++")):
        assert linked_and_run(tmp_path, compiler) == expected_of(f)


RUST_PROGRAM = """
#[repr(align(64))]
struct Scratch([u8; SCRATCH]);

extern "C" {
    fn nll_value_and_grad(beta: *const f64, value: *mut f64, gradient: *mut f64, scratch: *mut Scratch) -> i32;
}

fn main() {
    let beta: Vec<f64> = (0..7).map(|k| 0.25 * (k as f64 - 3.0)).collect();
    let (mut value, mut gradient, mut scratch) = (0.0, [0.0; 7], Scratch([0; SCRATCH]));
    let failed = unsafe { nll_value_and_grad(beta.as_ptr(), &mut value, gradient.as_mut_ptr(), &mut scratch) };
    assert_eq!(failed, 0);
    println!("{:016x}", value.to_bits());
    for g in gradient { println!("{:016x}", g.to_bits()); }
}
"""


def has_rust():
    """A toolchain, and not only the command that would fetch one."""
    found = shutil.which("rustc")
    return found is not None and subprocess.run([found, "--version"], capture_output=True).returncode == 0


def test_a_program_in_rust(tmp_path):
    f, beta = likelihood()
    files = weft.export(f, (beta,), tmp_path / "nll", gradients=True)
    function = json.loads(files.description.read_text())["functions"][1]
    # What the program declares.
    assert [p["name"] for p in function["parameters"]] == ["beta", "value", "grad_beta"]
    assert all(p["dtype"] == "float64" for p in function["parameters"])
    if not has_rust():
        return
    (tmp_path / "main.rs").write_text(RUST_PROGRAM.replace("SCRATCH", str(function["scratch_bytes"])))
    command = ["rustc", "-O", "main.rs", "-C", f"link-arg={files.object}", "-C", "link-arg=-lm"]
    subprocess.run(command, check=True, cwd=tmp_path)
    out = subprocess.run([str(tmp_path / "main")], capture_output=True, text=True, check=True).stdout
    found = [np.uint64(int(line, 16)).view(np.float64) for line in out.split()]
    assert found == expected_of(f)[1:9]


def test_a_program_on_another_processor(tmp_path):
    f, beta = likelihood()
    files = weft.export(f, (beta,), tmp_path / "nll", gradients=True, hvp=True, target="aarch64")
    code = files.object.read_bytes()
    assert code[:4] == b"\x7fELF" and int.from_bytes(code[18:20], "little") == 183  # EM_AARCH64
    assert b"nll_value_and_grad\0" in code and b"nll_hvp\0" in code
    if shutil.which("aarch64-linux-gnu-gcc") and shutil.which("qemu-aarch64"):
        assert linked_and_run(tmp_path, "aarch64-linux-gnu-gcc", ["qemu-aarch64"], ["-static"]) == expected_of(f)
