"""Functions that are decorated in a loop: where they do not last, the next ones begin with eager calls."""

import pytest

import weft

PAYS_AFTER = 16


@pytest.fixture(autouse=True)
def they_are_counted(monkeypatch, replayed_however_often, python_runs):
    monkeypatch.setattr("weft.made_anew.PAYS_AFTER", PAYS_AFTER)


def called(make, *numbers):
    """Of functions made one after another and called so often: whether their first call was eager."""
    eager = []
    for k, n in enumerate(numbers):
        function = make(float(k))
        for j in range(n):
            x = weft.full((2,), float(j))
            assert function(x).tolist() == [j * (k + 1.0)] * 2
            if j == 0:
                eager.append(not function.recordings)
    return eager


def test_the_third_that_does_not_last_begins_eagerly():
    def make(k):
        @weft.compile
        def scaled(x):
            return x * k + x

        return scaled

    assert called(make, 7, 7, 7, 7, 1, 1) == [False, False, True, True, True, True]
    # One that is called for longer is recorded after all, and those after it from their first call on.
    assert called(make, 40, 7, 7, 7) == [True, False, False, True]


def test_one_that_lasts_is_recorded():
    def make(k):
        return weft.compile(lambda x: x * k + x)

    called(make, 3, 3)
    function = make(2.0)
    for n in range(1, 25):
        assert function(weft.ones(2)).tolist() == [3, 3]
        assert bool(function.recordings) == (n > PAYS_AFTER)
    assert function.recordings[0].calls == 8


def test_explain_says_so():
    def make(k):
        return weft.compile(lambda x: x * k + x)

    called(make, 3, 3)
    function = make(2.0)
    function(weft.ones(2))
    text = "calls run eagerly, for now: the last ones that were made of the same code were called less than 16 times"
    assert text in function.explain()
    for _ in range(PAYS_AFTER):
        function(weft.ones(2))
    assert "eagerly" not in function.explain()


def test_functions_made_all_at_once_and_modules_are_recorded():
    def make(k):
        return weft.compile(lambda x: x * k)

    several = [make(float(k)) for k in range(5)]
    for function in several:
        function(weft.ones(2))
    assert all(function.recordings for function in several)
    for _ in range(4):
        model = weft.compile(weft.nn.Linear(2, 2))
        model(weft.ones(2))
        assert model.recordings


def test_who_wants_no_eager_calls_gets_none():
    for k in range(5):
        function = weft.compile(lambda x, k=k: x * k, fullgraph=True)
        function(weft.ones(2))
        assert function.recordings


def test_training_in_folds_gives_the_bits_of_eager_mode():
    def losses(compile):
        found = []
        for fold in range(4):
            weft.manual_seed(fold)
            model = weft.nn.Linear(3, 1)
            optimizer = weft.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)

            @compile
            def step(x, y, model=model, optimizer=optimizer):
                optimizer.zero_grad()
                loss = weft.nn.functional.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
                return loss

            found += [step(weft.randn(5, 3), weft.randn(5, 1)).item() for _ in range(5 + 15 * (fold == 2))]
        return found

    assert losses(weft.compile) == losses(lambda function: function)
