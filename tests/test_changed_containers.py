"""Functions that change the containers they are given: results put into the batch, tensors taken out of a list."""

import weft


def test_a_result_is_put_into_the_batch():
    w = weft.randn(3, 2)

    @weft.compile
    def predict(batch):
        batch["scores"] = batch["x"] @ w
        return batch

    for _ in range(8):
        x = weft.randn(4, 3)
        batch = predict({"x": x})
        assert list(batch) == ["x", "scores"] and batch["x"] is x
        assert batch["scores"].tolist() == (x @ w).tolist()
    assert predict.recordings[0].replays


def test_the_same_batch_is_given_again_with_what_was_put_into_it():
    @weft.compile
    def predict(batch):
        batch["scores"] = batch["x"] * 2
        return batch["scores"]

    batch = {}
    for k in range(8):
        batch["x"] = weft.full((2,), float(k))
        assert predict(batch).tolist() == [2.0 * k] * 2


def test_tensors_are_taken_out_of_a_list():
    @weft.compile
    def total(parts, *, names):
        value = parts.pop()
        while parts:
            value = value + parts.pop()
        names.append("total")
        return value

    for k in range(8):
        parts, names = [weft.full((2,), float(k + j)) for j in range(3)], ["a"]
        assert total(parts, names=names).tolist() == [3.0 * k + 3] * 2
        assert parts == [] and names == ["a", "total"]
    assert total.recordings[0].replays


def test_both_outcomes_of_an_if_change_them():
    @weft.compile
    def f(batch):
        if batch["x"].sum() > 0:
            batch["positive"] = batch["x"] + 1
        else:
            batch["rest"] = batch["x"] - 1
        return batch

    for k in (1, -1, 1, -1, -1, 1, 1, -1, -1, -1, 1, 1):
        x = weft.full((2,), float(k))
        batch = f({"x": x})
        name = "positive" if k > 0 else "rest"
        assert list(batch) == ["x", name] and batch[name].tolist() == [2.0 * k] * 2
