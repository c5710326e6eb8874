"""Compiled calls that read many values in their middle, as solvers do that look at their error at every step."""

import numpy as np

import weft
from weft.runtime.record.frame_flush import MOST_READS_ANEW

N_STEPS = 3 * MOST_READS_ANEW


def solve(weight, x, log):
    """Steps that are repeated with half their length where the error is too large."""
    h, error, rejected = 0.5, weft.zeros(()), x.new_zeros(3)
    for k in range(N_STEPS):
        slope = (x @ weight).tanh()
        trial = x + h * slope
        error = (trial - x).abs().max()
        if error > 0.3:
            h *= 0.5
            rejected[k % 3] += 1
        else:
            x = trial
            h *= 1.1
        log.append(error.item())
    return x, error, rejected


def run(function, n_calls=4, step=0.05):
    weft.manual_seed(3)
    weight = (weft.randn(3, 3) * 0.5).requires_grad_()
    optimizer = weft.optim.Adam([weight], lr=step)
    found = []

    def train(x):
        log = []
        optimizer.zero_grad()
        x, error, rejected = function(weight, x, log)
        loss = (x * x).mean() + error
        loss.backward()
        optimizer.step()
        return loss, x, rejected, log

    compiled = train if function is eager else weft.compile(train)
    for k in range(n_calls):
        loss, x, rejected, log = compiled(weft.full((2, 3), 0.1 * k + 0.2))
        found += [loss.detach().numpy().copy(), x.detach().numpy().copy(), rejected.numpy().copy(), np.array(log)]
        found += [weight.detach().numpy().copy(), weight.grad.numpy().copy()]
    return found, compiled


def eager(weight, x, log):
    return solve(weight, x, log)


def test_the_rest_of_a_call_with_many_reads_runs_eagerly():
    (wanted, _), (found, compiled) = run(eager), run(solve)
    assert [a.tobytes() for a in found] == [b.tobytes() for b in wanted]
    assert "reads needed a program of their own: the rest of this call is eager" in compiled.explain()


def test_such_a_call_makes_few_programs():
    _, compiled = run(solve, n_calls=1)
    n_programs = sum(len(r.programs) for r in compiled.recordings)
    assert MOST_READS_ANEW < n_programs <= MOST_READS_ANEW + 4


def test_its_results_have_a_history():
    def gradient(function):
        weight = weft.eye(3).requires_grad_()
        x, error, _ = function(weight, weft.full((2, 3), 0.3), [])
        weft.autograd.grad((x * x).sum(), weight, create_graph=True)[0].square().sum().backward()
        return weight.grad.numpy().tobytes()

    assert gradient(weft.compile(solve)) == gradient(solve)


def test_calls_of_few_reads_are_not_left():
    @weft.compile
    def few(x):
        for _ in range(MOST_READS_ANEW // 2):
            x = x * 1.5
            if x.sum() > 1e9:
                break
        return x

    for _ in range(4):
        few(weft.ones(3))
    assert "reads needed a program" not in few.explain()


def decide(model, x, flips):
    """Another way through the network for each pattern of flips."""
    for layer, flip in zip(model, flips):
        x = layer(x).tanh().softmax(-1)
        x = x.sin() if flip.item() > 0 else x.cos() * x
    return x


def fit(compiled, patterns):
    weft.manual_seed(2)
    model = weft.nn.ModuleList([weft.nn.Linear(4, 4) for _ in range(12)])
    optimizer = weft.optim.Adam(model.parameters(), lr=0.01)

    def step(flips):
        optimizer.zero_grad()
        loss = decide(model, weft.ones(3, 4), flips).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    step = weft.compile(step) if compiled else step
    losses = [step(weft.tensor(pattern)).item() for pattern in patterns]
    return losses, [p.detach().numpy().tobytes() for p in model.parameters()], step


def test_no_path_is_added_where_those_before_were_compiled_in_vain():
    patterns = np.random.default_rng(5).integers(0, 2, (20, 12)).tolist()
    found, wanted = fit(True, patterns), fit(False, patterns)
    assert found[:2] == wanted[:2]
    (recording,) = found[2].recordings
    assert recording.n_branches <= 8 and "paths were recorded: the rest of this call runs eagerly" in found[2].explain()


def test_paths_that_come_again_are_all_added():
    patterns = np.random.default_rng(5).integers(0, 2, (6, 12)).tolist()
    found, wanted = fit(True, 6 * patterns), fit(False, 6 * patterns)
    assert found[:2] == wanted[:2]
    assert found[2].recordings[0].n_branches >= 6


def test_gradients_of_uses_before_and_after_the_rest_ran_eagerly_are_added_up_in_order():
    """Games are played like this: each move is drawn from what the model says, and their losses meet at the end."""

    def gradients(compile_it):
        weft.manual_seed(0)
        weight, places = weft.randn(4, 2, requires_grad=True), weft.randn(2 * MOST_READS_ANEW, 1, 4)

        def episode():
            losses = []
            for k, place in enumerate(places):
                chances = (place @ weight).softmax(-1)
                losses.append(-(1 + k) * chances.log()[:, 0])
                chances[0, 0].item()
            weft.cat(losses).sum().backward()

        call = weft.compile(episode) if compile_it else episode
        found = []
        for _ in range(4):
            weight.grad = None
            call()
            found.append(weight.grad.numpy().tobytes())
        return found

    assert gradients(True) == gradients(False)


def test_gradients_of_uses_before_and_after_too_many_ways_are_added_up_in_order():
    def gradients(compile_it):
        weft.manual_seed(0)
        weight, places = weft.randn(30, 2, requires_grad=True), weft.randn(6, 1, 30)

        def episode(way):
            losses = []
            for k, place in enumerate(places):
                part = weight.flatten()[way:].sum() if k == 3 else 1.0
                losses.append(-(1 + k) * (place @ weight * part).softmax(-1).log()[:, 0])
            weft.cat(losses).sum().backward()

        call = weft.compile(episode) if compile_it else episode
        found = []
        for way in range(40):
            weight.grad = None
            call(way)
            found.append(weight.grad.numpy().tobytes())
        return found

    assert gradients(True) == gradients(False)
