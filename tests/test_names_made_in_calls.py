"""Other names of a tensor, made in the compiled call that changes it while they live: detached, `.data`, parts, leaves.
They show what they show in eager mode, and calls are replayed. As with PyTorch: values, versions, errors."""

import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from test_kept_aliases import N_CALLS, batch_of, check, is_replayed, model_of, seen

import weft

STILL_BREAKS = {"data_saved_for_a_backward", "read_before"}  # with their reasons
# Followed step by step from there on: the call has caught an error, or leaves made of names are shown again that nobody
# holds at the end: the books of the recorded call hold them.
FOLLOWED = {"saved_for_a_backward", "second_order"}


def trained(s, x):
    s.optimizer.zero_grad()
    loss = s.model(x).pow(2).mean()
    loss.backward()
    s.optimizer.step()
    return loss.detach()


def loss_of(s, params, x):
    return s.lib.func.functional_call(s.model, params, (x,)).pow(2).mean()


def updated(s, gradients):
    for name, p in s.model.named_parameters():
        p.grad = gradients[name]
    s.optimizer.step()


def functional(s, x):
    params = {k: p.detach() for k, p in s.model.named_parameters()}
    gradients = s.lib.func.grad(lambda params, x: loss_of(s, params, x))(params, x)
    updated(s, gradients)
    return gradients["0.bias"]


def functional_read_and_returned(s, x):
    params = {k: p.detach() for k, p in s.model.named_parameters()}
    gradients = s.lib.func.grad(lambda params, x: loss_of(s, params, x))(params, x)
    updated(s, gradients)
    return params["0.bias"].sum() + params["2.weight"].mean(), params["0.weight"], gradients["0.weight"]


def per_sample(s, x):
    params = {k: p.detach() for k, p in s.model.named_parameters()}
    one = s.lib.func.grad(lambda params, x: loss_of(s, params, x))
    gradients = s.lib.vmap(one, (None, 0))(params, x)
    updated(s, {k: g.mean(0) for k, g in gradients.items()})
    return gradients["0.bias"]


def second_order(s, x):
    params = {k: p.detach().requires_grad_() for k, p in s.model.named_parameters()}
    gradients = s.lib.autograd.grad(loss_of(s, params, x), [*params.values()], create_graph=True)
    fast = {k: p - 0.1 * g for (k, p), g in zip(params.items(), gradients)}
    loss = loss_of(s, fast, x)
    updated(s, dict(zip(params, s.lib.autograd.grad(loss, [*params.values()]))))
    return loss.detach(), (params["0.weight"] * 2).detach(), params["2.bias"].detach()


def data_in_a_list(s, x):
    data = [p.data for p in s.model.parameters()]
    loss = trained(s, x)
    return loss, sum(d.sum() for d in data), data[0][1:], s.lib.tensor([data[0]._version, s.model[0].weight._version])


def kept_on_an_object(s, x):
    s.kept = [p.detach() for p in s.model.parameters()] + [s.model[0].weight.data]
    return trained(s, x)


def parts(s, x):
    w = s.model[0].weight.detach()
    flat, row, turned, some, of_data = w.view(-1), w[0], w.T, w[1:3], s.model[0].weight.data[2]
    loss = trained(s, x)
    return loss, flat.sum(), row * 2, turned.sum(0), some, of_data, of_data[1:]


def parts_of_names_that_nobody_holds(s, x):
    weight = s.model[0].weight
    flat, row, of_data = weight.detach().view(-1), weight.detach()[0], weight.data[2]
    return trained(s, x), flat.sum(), row, of_data


def parts_with_a_history(s, x):
    w = s.model[0].weight
    flat, row, turned = w.view(-1), w[0], w.T
    rest = row[1:]
    loss = trained(s, x)
    (slope,) = s.lib.autograd.grad(flat.sum() * 2 + (row * row).sum() + turned.sum() + rest.sum(), w)
    return loss, flat, row, turned, slope * 1


def changed_by_op(s, x):
    w = s.model[0].weight
    detached, data, row = w.detach(), w.data, w[0]
    with s.lib.no_grad():
        w.mul_(0.9)
        row.add_(0.01)
    versions = s.lib.tensor([detached._version, data._version, row._version, w._version])
    return detached.sum(), data.sum(), row.detach() * 2, versions


def changed_through_names(s, x):
    w, versions = s.model[0].weight, []
    names = detached, data, other, row, of_data = w.detach(), w.data, w.data, w.detach()[1], w.data[2]
    for k, name in enumerate((data, detached, of_data, row, other)):
        name.mul_(0.9 + 0.01 * k)
        versions += [x._version for x in (*names, w)]
    return detached.sum(), data.sum(), other[0] * 3, row, of_data, s.lib.tensor(versions)


def value_made_in_the_call(s, x):
    z = x * 2
    detached, data, row = z.detach(), z.data, z[1]
    z.add_(1)
    row.mul_(2)
    total = detached.sum()
    detached.mul_(3)
    return z, data.sum(), row, total, s.lib.tensor([z._version, detached._version, data._version])


def average(s, x):
    before = [p.detach() for p in s.model.parameters()]
    loss = trained(s, x)
    for slow, p in zip(s.slow, s.model.parameters()):
        slow.mul_(0.9).add_(p.detach(), alpha=0.1)
    return loss, before[0].sum()


def average_before(s, x):
    names = dict(s.model.named_parameters())
    for slow, p in zip(s.slow, [p.detach() for p in names.values()]):
        slow.mul_(0.9).add_(p, alpha=0.1)
    snapshot, before = names["0.weight"].detach(), names["0.weight"].detach().clone()
    loss = trained(s, x)
    return loss, (snapshot - before).norm()


def flat_vector(s, x):
    flat = s.lib.nn.utils.parameters_to_vector(s.model.parameters())
    loss = trained(s, x)
    return loss, flat.detach().sum()


def leaf_of_a_name(s, x):
    leaf = s.model[0].weight.detach().requires_grad_()
    loss = trained(s, x)
    with s.lib.no_grad():
        leaf.sub_(0.01 * leaf)
    (slope,) = s.lib.autograd.grad((leaf**2).sum(), leaf)
    return loss, slope, leaf


def saved_for_a_backward(s, x):
    factor, name = s.lib.ones(3, 4, requires_grad=True), s.model[0].weight.detach()
    product = (factor * name).sum()
    loss = trained(s, x)
    try:
        product.backward()
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
        return loss
    raise AssertionError("eager mode raises")


def data_saved_for_a_backward(s, x):
    factor, name = s.lib.ones(3, 4, requires_grad=True), s.model[0].weight.data
    product = (factor * name).sum()
    loss = trained(s, x)
    product.backward()
    return loss, factor.grad


def read_before(s, x):
    name = s.model[0].weight.detach()
    size = name.norm().item()
    return trained(s, x) * size, name.sum()


PROGRAMS = [
    functional, functional_read_and_returned, per_sample, second_order, data_in_a_list, kept_on_an_object, parts,
    parts_of_names_that_nobody_holds, parts_with_a_history, changed_by_op, changed_through_names, average,
    value_made_in_the_call, average_before, flat_vector, leaf_of_a_name, saved_for_a_backward,
    data_saved_for_a_backward, read_before,
]  # fmt: skip


def scenario_of(program, optimizer, n_calls=N_CALLS):
    """What a program sees in many calls. Results that show parameters show what these become afterwards too."""

    def scenario(lib, compile):
        model, optim = model_of(lib, optimizer)
        s = SimpleNamespace(lib=lib, model=model, optimizer=optim, kept=[])
        s.slow = [p.detach().clone() for p in model.parameters()]
        step, found = compile(lambda x: program(s, x)), []
        for k in range(n_calls):
            given = step(batch_of(lib, k % 3))
            if lib is weft and compile is weft.compile and k == n_calls - 10:
                n_followed = [r.n_followed for r in step.recordings]
            given = list(given) if isinstance(given, tuple) else [given]
            found += map(seen, [*given, *s.kept])
            if k % 9 == 8:
                with lib.no_grad():
                    for p in model.parameters():
                        p.mul_(0.99)
                found += map(seen, [*given, *s.kept])
        if lib is weft and compile is weft.compile and n_calls == N_CALLS and program.__name__ not in STILL_BREAKS:
            assert is_replayed(step), step.explain()
            is_followed = n_followed != [r.n_followed for r in step.recordings]
            assert is_followed == (program.__name__ in FOLLOWED), step.explain()
        return [*found, *map(seen, model.parameters()), *map(seen, s.slow)]

    return scenario


@pytest.mark.oracle
@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_names_show_what_they_show_in_eager_mode(program, optimizer):
    check(scenario_of(program, optimizer))


def test_without_native_code():
    code = (
        "import test_names_made_in_calls as t\nfor p in t.PROGRAMS:\n    t.check(t.scenario_of(p, 'Adam', 40), False)"
    )
    env = {**os.environ, "WEFT_NATIVE_REPLAY": "0", "PYTHONPATH": os.path.dirname(__file__)}
    subprocess.run([sys.executable, "-c", code], check=True, env=env)


@pytest.mark.oracle
@pytest.mark.parametrize("library", ["weft", "torch"])
def test_a_result_whose_name_an_update_has_changed_raises_later(library):
    lib = weft if library == "weft" else pytest.importorskip("torch")
    model, optimizer = model_of(lib)
    s = SimpleNamespace(lib=lib, model=model, optimizer=optimizer)

    def step(x):
        factor, name = lib.ones(3, 4, requires_grad=True), model[0].weight.detach()
        product = (factor * name).sum()
        trained(s, x)
        return product

    step = weft.compile(step) if lib is weft else step
    for k in range(N_CALLS):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            step(batch_of(lib, k % 3)).backward()


ODD = {
    "kept": lambda s, names: s.kept.append(names[0]),
    "read": lambda s, names: names[1].tolist(),
    "array": lambda s, names: s.kept.append(s.lib.tensor(names[0].numpy().copy())),
    "version": lambda s, names: names[0]._version,
    "another": lambda s, names: s.kept.append(s.model[0].weight.data),
    "fewer": lambda s, names: names.clear(),
    "changed": lambda s, names: [names[0].mul_(0.5)],
    "a leaf": lambda s, names: [names[0].requires_grad_()],
    "an error": lambda s, names: 1 / 0,
}


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("kind", ["detach", "data"])
@pytest.mark.parametrize("odd", ODD)
def test_the_odd_call(odd, kind, is_late):
    """Before the update or after it, a replayed call does something else with the names."""

    def scenario(lib, compile):
        model, optim = model_of(lib)
        s = SimpleNamespace(lib=lib, model=model, optimizer=optim, kept=[])

        @compile
        def step(x, is_odd):
            names = [p.detach() if kind == "detach" else p.data for p in model.parameters()]
            if is_odd and not is_late:
                ODD[odd](s, names)
            loss = trained(s, x)
            if is_odd and is_late:
                ODD[odd](s, names)
            return loss, sum(name.detach().sum() for name in names)

        found = []
        for k in range(N_CALLS):
            try:
                found += map(
                    seen, filter(lambda x: type(x) is lib.Tensor, step(batch_of(lib, k % 3), k in (30, 80, 84)))
                )
            except ZeroDivisionError:
                for p in model.parameters():
                    p.grad = None
            found += [*map(seen, model.parameters()), *map(seen, s.kept)]
        return found

    check(scenario, False)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "bool"])
@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (7, 5), (33,), (2, 1, 3)])
def test_shapes_and_types(shape, dtype):
    def scenario(lib, compile):
        kind = getattr(lib, dtype)
        x, found = lib.arange(int(np.prod(shape))).reshape(shape).to(kind), []

        @compile
        def f(y):
            whole, data, flat, last = x.detach(), x.data, x.view(-1), x[-1:]
            x.logical_xor_(y) if kind is lib.bool else x.add_(y)
            total = flat.sum()
            data.copy_(y)
            last.fill_(1)
            return whole.sum(), total, flat, last * 1, data

        for k in range(N_CALLS):
            given = f(lib.full(shape, k % 3).to(kind))
            found += [*map(seen, given), seen(x)]
        return found

    check(scenario)
