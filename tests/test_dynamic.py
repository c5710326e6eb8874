"""Sizes that are known at run time from the first call on: dynamic=True, marks, and arguments that have changed."""

import pytest

import weft
from weft import nn
from weft._dynamo import mark_dynamic, mark_static, maybe_mark_dynamic


def bits(result):
    if isinstance(result, (tuple, list)):
        return [b for x in result for b in bits(x)]
    return [result.detach().numpy().tobytes()]


def programs(f):
    """(how many programs were compiled for sizes of their own, how many for many sizes)."""
    families = [family for form in f._sizes.forms.values() for family in form.families]
    alone = sum("n" not in p.meta for r in f.recordings for p in r.programs)
    return alone, sum(len(made) for family in families for made in family.programs.values())


def check(function, *make, sizes=(9, 12, 7, 64, 200), mark=None, most=1, dynamic=True):
    """Bits of eager mode for every size, no program for one size alone, and at most so many for all."""
    f = weft.compile(function, dynamic=dynamic)
    for n in sizes:
        given = [m(n) for m in make]
        if mark is not None:
            mark(*given)
        for _ in range(2):
            assert bits(f(*given)) == bits(function(*given)), n
    alone, many = programs(f)
    assert alone == 0 and many <= most, f.explain()
    return f


# --- from the first call on -------------------------------------------------------------------------------------------
def test_true_means_the_first_dimension():
    f = check(lambda x: (x * 2).sum(0), lambda n: weft.randn(n, 6))
    assert "serves many sizes, here 9)" in f.explain()


def test_a_mark_names_the_dimension():
    def mark(x):
        mark_dynamic(x, 1)

    check(lambda x: x.softmax(1), lambda n: weft.randn(4, n), mark=mark, dynamic=None)
    check(lambda x: x.softmax(-1), lambda n: weft.randn(4, n), mark=lambda x: maybe_mark_dynamic(x, -1), dynamic=None)
    # A view that is not in a row in memory.
    check(lambda x: x.exp().sum(1), lambda n: weft.randn(n, 4).t(), mark=mark, dynamic=None)


def test_several_marked_dimensions_of_one_size_are_one():
    def attend(x, mask):
        scores = x @ x.transpose(1, 2)
        return scores.masked_fill(mask, -1e9).softmax(-1) @ x

    def mark(x, mask):
        mark_dynamic(x, 1)
        mark_dynamic(mask, (0, 1))

    check(attend, lambda n: weft.randn(2, n, 8), lambda n: weft.ones(n, n).tril() == 0, mark=mark, most=2, dynamic=None)


def test_arguments_in_containers_and_by_keyword():
    f = weft.compile(lambda batch, scale: batch["x"] * scale + batch["y"][0], dynamic=True)
    for n in (5, 6, 7):
        x, y = weft.randn(n, 3), weft.randn(n, 1)
        assert bits(f({"x": x, "y": [y]}, scale=2.0)) == bits(x * 2.0 + y)
    assert programs(f) == (0, 1)


def test_what_ops_are_given_is_supposed_to_follow():
    """Shapes, the last position, all but the last, positions and matrices that are made in the call."""
    check(lambda x: x.reshape(x.shape[0] * 2, 3) * 2, lambda n: weft.randn(n, 6))
    check(lambda x: x.view(x.shape[0], 2, 3).transpose(1, 2).contiguous().sum(0), lambda n: weft.randn(n, 6))
    check(lambda x: (x[1:] - x[:-1], x[-1] * 2), lambda n: weft.randn(n, 6))
    check(lambda x: weft.cat([x, x.new_zeros(2, 6)]) + 1, lambda n: weft.randn(n, 6))
    check(lambda x: x * weft.arange(x.shape[0])[:, None] + weft.zeros(x.shape[0], 6), lambda n: weft.randn(n, 6))
    check(lambda x: x @ x.t() + 0.5 * weft.eye(x.shape[0]), lambda n: weft.randn(n, 6), most=2)


@pytest.mark.parametrize("size", [2, 4, 6, 8])
def test_sizes_that_are_equal_by_chance(size):
    """As many rows as features, or as heads: whatever was supposed, the numbers are right, and later calls share."""
    w = weft.randn(8, 8)

    def heads(x):
        return ((x @ w).reshape(x.shape[0], 4, 2).sum(2) + x.reshape(-1, 4, 2)[:, :, 0]).softmax(1)

    f = weft.compile(heads, dynamic=True)
    for n in (size, 11, 13, size, 8, 17):
        x = weft.randn(n, 8)
        assert bits(f(x)) == bits(heads(x)), n
    assert programs(f)[1] <= 2


def test_a_training_step_with_what_it_makes_in_its_first_call():
    def train(compiled):
        weft.manual_seed(1)
        model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
        optimizer = weft.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)

        def step(x, y):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        run = weft.compile(step, dynamic=compiled == "said" or None) if compiled else step
        losses = [run(weft.randn(n, 6), weft.randint(0, 3, (n,))).item() for n in (40, 24, 9, 300, 24, 57, 11)]
        return losses, bits(list(model.parameters())), run

    *expected, _ = train(None)
    *found, said = train("said")
    assert found == expected and programs(said) == (0, 2)
    # What has changed in the arguments is supposed to change again, whatever else is different in the second call.
    *found, unsaid = train("unsaid")
    assert found == expected and programs(unsaid) == (1, 1)


def test_gradients_of_results():
    weft.manual_seed(2)
    model = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.LayerNorm(20), nn.Linear(20, 3))
    f = weft.compile(model, dynamic=True)
    for n in (20, 24, 7, 64):
        x = weft.randn(n, 6, requires_grad=True)
        found = []
        for run in (f, model):
            model.zero_grad()
            x.grad = None
            (run(x) ** 2).mean().backward()
            found.append(bits([x.grad, *(p.grad for p in model.parameters())]))
        assert found[0] == found[1], n
    assert programs(f)[0] == 0


# --- where it cannot be -----------------------------------------------------------------------------------------------
def test_explain_says_where_not():
    """As many rows as a third of the size: nothing supposes it, and two calls show it."""

    def in_rows(x):
        return x.reshape(-1, 3).sum(1) * 2

    f = weft.compile(in_rows, dynamic=True)
    for n in (12, 15):
        x = weft.randn(n)
        assert bits(f(x)) == bits(in_rows(x))
    assert programs(f) == (1, 1)
    text = f.explain()
    assert "not known at run time, though marked or dynamic=True: reshape [" in text
    assert "takes no size that is known at run time" in text


def test_sizes_of_one_are_compiled_for_themselves():
    f = weft.compile(lambda x: x * 2)
    x = weft.randn(1, 3)
    mark_dynamic(x, 0)
    assert bits(f(x)) == bits(x * 2) and programs(f) == (1, 0)
    assert "though marked or dynamic=True: sizes below 2 are compiled for themselves" in f.explain()


def test_what_is_supposed_wrongly_is_not_used():
    """Not the batch is 8 here, but a constant; and a loop over what changes makes other steps."""

    def first_eight(x):
        return x[:8] * 2

    def steps(x):
        total = x[0] * 1
        for row in x:
            total = total + row * 2
        return total

    for function in (first_eight, steps):
        f = weft.compile(function, dynamic=True)
        for n in (8, 9, 12, 8, 10):
            x = weft.randn(n, 3)
            assert bits(f(x)) == bits(function(x)), n


def test_loops_over_what_changes_are_not_supposed_for_ever():
    """Each length is another stretch; without a word from the user a few are tried for many sizes, and no more. Those
    that are rolled up (runtime/programs/loops.py) share a program."""

    def steps(x):
        total = x[0] * 1
        for k in range(1, len(x)):
            total = (total + x[k]).tanh()
        return total

    f = weft.compile(steps)
    for n in (3, 4, 5, 6, 7, 8):
        x = weft.randn(n, 3)
        assert bits(f(x)) == bits(steps(x)), n
    made = [p.meta for r in f.recordings for p in r.programs]
    assert sum("n" in meta and "has_loops" not in meta for meta in made) <= 2


# --- the words --------------------------------------------------------------------------------------------------------
def test_false_wins_over_marks():
    f = weft.compile(lambda x: x * 2, dynamic=False)
    for n in (4, 5):
        x = weft.randn(n)
        mark_dynamic(x, 0)
        f(x)
    assert all("n" not in p.meta for r in f.recordings for p in r.programs)


def test_static_dimensions_are_not_supposed_to_change():
    f = weft.compile(lambda x: x * 2, dynamic=True)
    x = weft.randn(5, 6)
    mark_dynamic(x, 0)
    mark_static(x, 0)
    f(x)
    assert f.recordings[-1].programs[0].meta["n"] == 6
    mark_static(y := weft.randn(5, 7, 2))
    f(y)
    assert "n" not in f.recordings[-1].programs[0].meta


def test_marks_of_what_is_not_there():
    with pytest.raises(IndexError, match=r"mark_dynamic: dimension 2 of a tensor of shape \(3, 4\); it has 2"):
        mark_dynamic(weft.randn(3, 4), 2)
    with pytest.raises(TypeError, match="mark_static: expected a tensor, got list; mark the arguments"):
        mark_static([1, 2], 0)
