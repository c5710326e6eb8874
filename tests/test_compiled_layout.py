"""Questions about layout in a compiled call: the answers are eager mode's, and nothing is computed for them."""

import pytest

import weft


def answers(x):
    y = x * 2
    turned, rows = y.t(), y[1:]
    wide = y.unsqueeze(1).expand(-1, 3, -1)
    found = [y, turned, rows, rows[:, ::2], wide, y.data, turned.data, y.reshape(-1), turned.contiguous(), x, x.t()]
    return [(v.is_contiguous(), v.stride(), v.stride(-1)) for v in found], turned.contiguous() + 1


def notes(function):
    return [reason for recording in function.recordings for reason, _ in recording.fallbacks]


@pytest.mark.parametrize(
    "make", [lambda: weft.ones(4, 6), lambda: weft.ones(6, 4).t(), lambda: weft.ones(4, 6)[:, ::2]]
)
def test_layout_of_pending_values_is_known_without_computing(make):
    compiled = weft.compile(answers)
    expected, values = answers(make())
    for _ in range(6):
        found, result = compiled(make())
        assert found == expected and result.tolist() == values.tolist()
    assert not notes(compiled)


@pytest.mark.oracle
def test_layout_is_pytorchs():
    torch = pytest.importorskip("torch")
    assert weft.compile(answers)(weft.ones(4, 6))[0] == answers(torch.ones(4, 6))[0]


def test_a_transposed_value_that_is_made_contiguous_does_not_cut_the_call():
    @weft.compile
    def heads(x):
        b, n, c = x.size()
        y = x.view(b, n, 2, c // 2).transpose(1, 2)
        y = y if y.is_contiguous() else y.contiguous()
        return (y @ y.transpose(-2, -1)).transpose(1, 2).contiguous().view(b, n, -1)

    x = weft.rand(2, 3, 8)
    expected = heads._function(x)
    for _ in range(6):
        assert heads(x).tolist() == expected.tolist()
    assert not notes(heads)


def test_layout_of_a_tensor_from_outside_that_the_call_has_changed():
    table, seen = weft.ones(3, 4).t(), []

    @weft.compile
    def step(x):
        table.mul_(2)
        seen.append((table.stride(), table.is_contiguous()))
        return table + x

    for _ in range(5):
        step(weft.ones(4, 3))
    assert set(seen) == {((1, 4), False)} and table.tolist() == [[32.0] * 3] * 4
    assert "a value was read before the call ended" not in notes(step)


def test_layout_asked_where_two_paths_part():
    @weft.compile
    def step(x, turned):
        y = (x * 2).t() if turned else x * 3
        return y.stride(), y.contiguous()

    x = weft.rand(3, 3)
    for k in range(12):
        (stride, y), expected = step(x, k % 3 == 0), step._function(x, k % 3 == 0)
        assert stride == expected[0] and y.tolist() == expected[1].tolist()


def test_a_tensor_of_an_earlier_call_still_answers():
    f = weft.compile(lambda x: (x * 2).t())
    kept = [f(weft.ones(2, 3)) for _ in range(6)]
    assert {y.stride() for y in kept} == {(1, 3)} and not any(y.is_contiguous() for y in kept)


def test_classes_are_checked_without_cutting_the_call():
    def nearest(points, centres, count):
        index = ((points[:, None] - centres[None]) ** 2).sum(-1).argmin(dim=1)
        member = weft.nn.functional.one_hot(index, count).float()
        return member.t() @ points

    compiled, points, centres = weft.compile(nearest), weft.rand(9, 2), weft.rand(3, 2)
    for _ in range(6):
        assert compiled(points, centres, 3).tolist() == nearest(points, centres, 3).tolist()
    assert not notes(compiled)
    assert compiled(points, centres, 4).shape == (4, 2)
    for wrong in (1, 0, -2):
        errors = []
        for function in (nearest, compiled, compiled, compiled):
            with pytest.raises(RuntimeError, match="one_hot: ") as caught:
                function(points, centres, wrong)
            errors.append(str(caught.value))
        assert len(set(errors)) == 1
    assert compiled(points, centres, 3).tolist() == nearest(points, centres, 3).tolist()
