"""Tensors that a function keeps from call to call, in an attribute or a dict, with the history they have."""

import pytest
from compiled_twin import assert_same, leaf

import weft
from weft import nn

CALLS = 16


def detached(state):
    return state.detach() if isinstance(state, weft.Tensor) else tuple(map(detached, state))


def is_replayed(function):
    return "calls are replayed" in function.explain() and "fast path: yes" in function.explain()


class Holder:
    """A recurrent model with its state, of which a step cuts the history off before it goes on."""

    def __init__(self, kind):
        weft.manual_seed(3)
        self.net, self.head = kind(3, 4), nn.Linear(4, 2)
        self.parameters = [*self.net.parameters(), *self.head.parameters()]
        self.optimizer = weft.optim.SGD(self.parameters, lr=0.05)
        state = weft.zeros(1, 2, 4)
        self.state = (state, state.clone()) if kind is nn.LSTM else state

    def step(self, x, y):
        self.state = detached(self.state)
        out, self.state = self.net(x, self.state)
        loss = (self.head(out) - y).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
@pytest.mark.parametrize("lengths", [(4,), (4, 3)], ids=["one length", "two lengths"])
def test_a_recurrent_state_that_is_detached_in_the_next_call(kind, lengths):
    made = []

    def scenario(compile):
        holder, seen = Holder(kind), []
        step = compile(holder.step)
        made.append(step)
        for k in range(3 * CALLS):
            n = lengths[k % len(lengths)]
            seen += [step(weft.randn(n, 2, 3), weft.randn(n, 2, 2)).detach(), *holder.parameters, holder.state]
        return seen

    assert_same(scenario)
    assert is_replayed(made[-1])


def test_a_state_whose_history_goes_on_to_a_backward_after_several_calls():
    """The gradients go through all the calls, and through what was done with the state between them."""
    made = []

    def scenario(compile):
        w, held = leaf(3), {"h": weft.zeros(3)}

        @compile
        def step(x):
            held["h"] = (held["h"] * w + x).tanh()
            return held["h"].sum()

        made.append(step)
        for k in range(4 * CALLS):
            loss = step(weft.randn(3))
            yield loss.detach()
            if k % 4 == 3:
                w.grad = None
                loss.backward()
                yield w
                held["h"] = (held["h"].detach() if k % 8 == 3 else leaf(3)) * w
            elif k % 8 == 1:
                held["h"] = held["h"] * 2

    assert_same(scenario)
    assert is_replayed(made[-1])


def test_a_backward_in_the_call_that_goes_on_to_the_history_of_a_state():
    def scenario(compile):
        w, held = leaf(3), {}

        @compile
        def step(x):
            h = (held["h"] * w + x).sin()
            loss = h.square().sum()
            loss.backward(retain_graph=True)
            return loss.detach()

        for k in range(CALLS):
            if k % 3 == 0:
                held["h"], w.grad = w * k, None
            yield step(weft.randn(3)), w

    assert_same(scenario)


def test_gradients_asked_for_what_is_kept():
    def scenario(compile):
        w, held = leaf(3), {}

        @compile
        def slope(x):
            h = held["h"]
            return weft.autograd.grad((h * h * x).sum(), h)

        for _ in range(CALLS):
            held["h"] = w.exp()
            yield slope(weft.randn(3))

    assert_same(scenario)


def test_states_without_a_history_now_and_then():
    """What was a result in one call is a leaf in another, and one that requires no gradients in a third."""

    def scenario(compile):
        w, held = leaf(4), {}

        @compile
        def step(x):
            return (held["h"].detach() * w * x).sum() + x.sum()

        makers = (lambda: w * 2, lambda: leaf(4), lambda: weft.randn(4), lambda: (w * 2).detach(), lambda: w[:] * 3)
        for k in range(3 * CALLS):
            held["h"] = makers[0 if k < CALLS else k % len(makers)]()
            loss = step(weft.randn(4))
            w.grad = None
            loss.backward()
            yield loss.detach(), w

    assert_same(scenario)


def test_a_state_beside_an_argument_that_is_changed_in_place():
    """The argument may be what the state shares its memory with."""
    made = []

    def scenario(compile):
        w, held = leaf(4), {}

        @compile
        def step(x):
            x.mul_(0.5)
            with weft.no_grad():
                return held["h"] + x

        made.append(step)
        for k in range(2 * CALLS):
            x = weft.randn(4)
            held["h"] = w * 2
            if k % 7 == 6:
                x = held["h"].detach()
            yield step(x), x, held["h"].detach()

    assert_same(scenario)
    assert is_replayed(made[-1])


def test_averages_of_states_with_a_history():
    def scenario(compile):
        w, mean, held = leaf(4), weft.zeros(4), {}

        @compile
        def step(x):
            with weft.no_grad():
                mean.mul_(0.9).add_(held["h"], alpha=0.1)
            held["h"] = w * x
            loss = (held["h"] - mean).square().sum()
            w.grad = None
            loss.backward()
            return loss.detach()

        held["h"] = w * 1
        for _ in range(2 * CALLS):
            yield step(weft.randn(4)), w, mean

    assert_same(scenario)


def test_hooks_of_a_state_and_its_gradient():
    def scenario(compile):
        w, held, seen = leaf(3), {}, []
        step = compile(lambda x: (held["h"] * x).exp().sum())
        for k in range(CALLS):
            held["h"] = w * 2
            if k % 2:
                held["h"].register_hook(seen.append)
            held["h"].retain_grad()
            w.grad = None
            step(weft.randn(3)).backward()
            yield held["h"].grad, seen[-1:], w

    assert_same(scenario)


def test_views_and_one_state_in_two_places():
    def scenario(compile):
        w, held = leaf(2, 4), {}

        @compile
        def step(x):
            return (held["a"] * x).sum() + (held["b"].detach() * w[0]).sum()

        for k in range(2 * CALLS):
            made = w * 2
            held["a"], held["b"] = (made[0], made[1]) if k % 3 else (made[1], made[1])
            w.grad = None
            loss = step(weft.randn(4))
            loss.backward()
            yield loss.detach(), w

    assert_same(scenario)


@pytest.mark.parametrize("layer", [nn.GRUCell, nn.LSTMCell, nn.RNN, nn.LSTM])
def test_layers_that_take_a_state_with_its_history(layer):
    """The backward comes after three calls, and goes through the layer in each."""

    def scenario(compile):
        weft.manual_seed(1)
        net, is_cell = layer(3, 4), layer in (nn.GRUCell, nn.LSTMCell)
        held = {}

        def fresh():
            h = weft.zeros(2, 4) if is_cell else weft.zeros(1, 2, 4)
            return (h, h + 1) if layer in (nn.LSTMCell, nn.LSTM) else h

        @compile
        def step(x):
            found = net(x, held["h"])
            held["h"] = found if is_cell else found[1]
            h = held["h"][0] if isinstance(held["h"], tuple) else held["h"]
            return h.square().sum()

        optimizer, total, held["h"] = weft.optim.SGD(net.parameters(), lr=0.1), 0, fresh()
        for k in range(3 * CALLS):
            total = total + step(weft.randn(2, 3) if is_cell else weft.randn(3, 2, 3))
            if k % 3 == 2:
                optimizer.zero_grad()
                total.backward()
                optimizer.step()
                yield total.detach(), list(net.parameters()), detached(held["h"])
                total, held["h"] = 0, detached(held["h"]) if k % 2 else fresh()

    assert_same(scenario)


def test_one_state_in_several_ops_and_an_update():
    def scenario(compile):
        w, held = leaf(4), {}
        optimizer = weft.optim.Adam([w], lr=0.1)

        @compile
        def step(x):
            h = held["h"]
            with weft.no_grad():
                size = (h * h).sum() + h.max()
            held["h"] = (h.detach() * w + x * size).sin()
            loss = (held["h"] - h.detach()).square().mean() + (h.detach() * w).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.detach(), size

        held["h"] = w * 2
        for k in range(3 * CALLS):
            yield step(weft.randn(4)), w, held["h"].detach()
            if k % 9 == 8:
                held["h"] = held["h"] + 1

    assert_same(scenario)
