"""Parameter: a tensor that a module counts as its own."""

from ..runtime.tensor import Tensor


class Parameter(Tensor):
    """A leaf tensor that shares memory with `data`. Assigned to an attribute of a Module it becomes its parameter."""

    __slots__ = ()

    def __new__(cls, data, requires_grad=True):
        if not isinstance(data, Tensor):
            raise TypeError(f"Parameter: data is a {type(data).__name__}; it must be a Tensor: weft.tensor(...)")
        self = Tensor.__new__(cls, data.array)
        self.share_storage(data)
        self.requires_grad = requires_grad
        return self

    def __init__(self, data, requires_grad=True):
        """`__new__` has made the whole object, as it does for every tensor."""

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            memo[id(self)] = Parameter(self.detach().clone(), self.requires_grad)
        return memo[id(self)]

    def __repr__(self):
        return "Parameter containing:\n" + super().__repr__()
