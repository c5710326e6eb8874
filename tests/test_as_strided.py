"""as_strided, which reads elements by their place in memory."""

import numpy as np
import pytest

import weft


@pytest.mark.oracle
@pytest.mark.parametrize("wrap", [lambda f: f, weft.compile], ids=["eager", "compiled"])
@pytest.mark.parametrize(
    ("view", "size", "stride", "offset"),
    [
        (lambda x: x.transpose(0, 2), (2, 2), (1, 3), None),
        (lambda x: x.permute(2, 0, 1), (3, 2), (4, 12), 1),
        (lambda x: x[1].t(), (3,), (2,), 12),
        (lambda x: x[:, 1:], (2, 2), (12, 1), None),
        (lambda x: x[..., 0:1].expand(2, 3, 5), (2, 3), (12, 4), None),
    ],
)
def test_as_strided_of_what_does_not_lie_in_order(view, size, stride, offset, wrap):
    torch = pytest.importorskip("torch")
    numbers = np.arange(24, dtype=np.float32).reshape(2, 3, 4)

    def squares(library, wrap=lambda f: f):
        leaf = library.tensor(numbers, requires_grad=True)

        def step(x):
            shown = view(x * 1).as_strided(size, stride, storage_offset=offset)
            (shown * shown).sum().backward()
            return shown

        return wrap(step)(leaf).tolist(), leaf.grad.tolist()

    assert squares(weft, wrap) == squares(torch)


@pytest.mark.oracle
@pytest.mark.parametrize("wrap", [lambda f: f, weft.compile], ids=["eager", "compiled"])
@pytest.mark.parametrize(
    ("size", "stride", "offset"),
    [
        ((3, 4), (7, 1), 1),
        ((4, 3), (1, 7), 0),
        ((2, 3, 2), (12, 2, 1), 3),
        ((2, 1, 3), (3, 0, 1), 18),
        ((3,), (9,), 5),
        ((3, 2), (2, 3), 0),
        ((1, 1), (5, 5), 7),
        ((2, 2), (20, 1), 0),
    ],
)
def test_gradients_go_to_their_places(size, stride, offset, wrap):
    """Of steps that nest and of others, through tensors of their own memory and through views of all of it."""
    torch = pytest.importorskip("torch")
    numbers = np.arange(24, dtype=np.float64)

    def gradients(library, wrap=lambda f: f):
        leaf = library.tensor(numbers, requires_grad=True)

        def step(x, again):
            for _ in range(again):
                x = x.view(4, 6)
            part = library.as_strided(x, size, stride, offset)
            return (part * part * library.arange(float(part.numel())).view(size)).sum()

        call, found = wrap(step), []
        for again in (0, 1, 2):
            for _ in range(3):
                (first,) = library.autograd.grad(call(leaf, again), leaf, create_graph=True)
                found += [first.tolist(), library.autograd.grad((first**2).sum(), leaf)[0].tolist()]
        return found

    assert gradients(weft, wrap) == gradients(torch)


def test_as_strided_reaches_what_the_tensor_shows():
    x = weft.zeros(2, 3)
    with pytest.raises(RuntimeError, match="out of bounds for 6 elements"):
        x.as_strided((3,), (3,))
    with pytest.raises(NotImplementedError, match=r"does not show; call it on the tensor that this is a view of"):
        x[:, :2].as_strided((3,), (1,))
    with pytest.raises(NotImplementedError, match="does not show"):
        x[1].as_strided((3,), (1,), 0)


def changed_through(library, wrap=lambda f: f):
    """A part of a tensor, by strides, is changed; gradients through it and around it."""
    leaf = library.tensor(np.arange(12.0), requires_grad=True)

    def step(x):
        x = x * 1
        part = library.as_strided(x.view(3, 4), (2, 3), (6, 2), 1)
        part.mul_(3)
        part[0] += 10
        return x, (part * part).sum()

    whole, total = wrap(step)(leaf)
    (first,) = library.autograd.grad(total + (whole**3).sum(), leaf, create_graph=True)
    (second,) = library.autograd.grad((first * first).sum(), leaf)
    return [t.tolist() for t in (whole, total, first, second)]


@pytest.mark.oracle
@pytest.mark.parametrize("wrap", [lambda f: f, weft.compile], ids=["eager", "compiled"])
def test_a_part_is_changed_in_place(wrap):
    torch = pytest.importorskip("torch")
    assert changed_through(weft, wrap) == changed_through(weft) == changed_through(torch)


def test_a_diagonal_is_filled():
    x = weft.zeros(3, 3)
    x.as_strided((3,), (4,)).fill_(1)
    assert x.tolist() == weft.eye(3).tolist() and x._version == 1


def test_the_tensor_itself_takes_strides():
    leaf = weft.arange(12.0).requires_grad_()
    y = leaf * 2
    assert y.as_strided_((2, 3), (6, 2), 1) is y and y.stride() == (6, 2)
    assert y.tolist() == [[2, 6, 10], [14, 18, 22]]
    y.sum().backward()
    assert leaf.grad.tolist() == [0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2]
    with pytest.raises(NotImplementedError, match="show an element twice"):
        weft.zeros(6).as_strided_(size=(3, 2), stride=(1, 1))
    assert weft.as_strided_(weft.zeros(2, 2), (0,), (1,)).shape == (0,)


def test_a_view_of_no_other_owner_keeps_the_memory_alive():
    part = weft.arange(8.0).as_strided((2, 2), (4, 1), 2)
    assert part.tolist() == [[2, 3], [6, 7]] and (part + 1).tolist() == [[3, 4], [7, 8]]
    assert not part.is_contiguous() and part.storage_offset() == 2
