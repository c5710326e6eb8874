"""Programs with `__torch_function__`, for PyTorch and for weft: each returns what it has seen."""

import copy
import operator


def described(torch, x):
    """What a result is, with classes by their names."""
    if isinstance(x, (tuple, list)):
        return [described(torch, part) for part in x]
    if not isinstance(x, torch.Tensor):
        return x if isinstance(x, (bool, int, float, str, type(None))) else type(x).__name__
    with torch._C.DisableTorchFunction():
        return type(x).__name__, x.tolist(), x.requires_grad


def seen(torch, log, cases):
    """Of each function its result, and whom it has asked about what."""
    rows = []
    for name, function in cases.items():
        log.clear()
        try:
            result = function()
        except (TypeError, RuntimeError, ValueError) as error:
            result = type(error).__name__
        asked = list(log)
        rows.append((name, described(torch, result), asked))
    return rows


def noted(args):
    return [type(a).__name__ for a in args if isinstance(a, (int, float, str, tuple, list)) or hasattr(a, "tolist")]


# --- a type that is no tensor -----------------------------------------------------------------------------------------
def scalar_tensor(torch):
    """The identity matrix times a number, which answers two functions; and a tensor with a label."""
    handled = {}

    def implements(function):
        return lambda own: handled.setdefault(function, own)

    class Scaled:
        def __init__(self, n, value):
            self.n, self.value = n, value

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func not in handled or not all(issubclass(kind, (torch.Tensor, Scaled)) for kind in types):
                return NotImplemented
            return handled[func](*args, **(kwargs or {}))

    @implements(torch.mean)
    def mean(input):
        return input.value / input.n

    def whole(x):
        return x.value * torch.eye(x.n) if isinstance(x, Scaled) else x

    @implements(torch.add)
    def add(input, other):
        return torch.add(whole(input), whole(other))

    class Labelled:
        def __init__(self, data, label):
            self.data, self.label = torch.as_tensor(data), label

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            label = next(a.label for a in args if hasattr(a, "label"))
            return Labelled(func(*[getattr(a, "data", a) for a in args], **(kwargs or {})), label)

    x, y, named = Scaled(2, 3.0), torch.ones(2, 2), Labelled([1.0, 2.0], "m")
    found = [torch.mean(x), torch.add(x, y).tolist(), torch.add(y, x).tolist()]
    for refused in (lambda: torch.mul(x, y), lambda: torch.cat([y, x]), lambda: torch.nn.functional.relu(x)):
        try:
            refused()
        except TypeError as error:
            found.append("implement" in str(error).lower())
    for z in (torch.mul(torch.ones(2), named), torch.nn.functional.softmax(named, 0), torch.exp(named)):
        found.append((z.label, [round(v, 5) for v in z.data.tolist()]))
    return found


# --- subclasses -------------------------------------------------------------------------------------------------------
def logging_tensor(torch):
    """Operators, methods, functions and properties of a subclass that notes what it is asked."""
    log = []

    class Noting(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func is not torch.Tensor.__repr__:
                kinds = [kind.__name__ for kind in types if kind is not torch.Tensor]
                log.append((func.__name__, noted(args), kinds))
            return super().__torch_function__(func, types, args, kwargs)

    class More(Noting):
        pass

    s, m, t = torch.ones(3).as_subclass(Noting), torch.ones(3).as_subclass(More), torch.ones(3) + 1
    si, ti = torch.tensor([1, 2, 0]).as_subclass(Noting), torch.tensor([1, 2, 2])
    cases = {}
    for name in ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lt", "le", "gt", "ge", "eq", "ne"]:
        op = getattr(operator, name)
        pairs = {"s t": (s, t), "t s": (t, s), "2 s": (2, s), "s 2": (s, 2)}
        for operands, (x, y) in pairs.items():
            cases[f"{name} {operands}"] = lambda op=op, x=x, y=y: op(x, y)
    for name in ["and_", "or_", "xor", "lshift", "rshift"]:
        op = getattr(operator, name)
        for operands, (x, y) in {"s t": (si, ti), "t s": (ti, si), "2 s": (2, si)}.items():
            cases[f"{name} {operands}"] = lambda op=op, x=x, y=y: op(x, y)
    for name in ["neg", "pos", "abs", "invert"]:
        cases[name] = lambda name=name: getattr(operator, name)(si)
    for name in ["iadd", "isub", "imul", "ipow", "iand", "ior", "ixor"]:
        op = getattr(operator, name)
        cases[name] = lambda op=op: op(si.clone(), ti)
        cases[f"{name} t s"] = lambda op=op: op(ti.clone(), si)
    cases |= {
        "matmul": lambda: s @ t,
        "matmul t s": lambda: t @ s,
        "two classes": lambda: torch.add(s, m),
        "method": lambda: s.add(m),
        "of plain": lambda: t.mul(s),
        "in place": lambda: t.clone().add_(s),
        "list": lambda: torch.cat([t, s]),
        "tuple": lambda: torch.stack((s, t)),
        "where": lambda: torch.where(t > 0, t, s),
        "several": lambda: list(torch.max(s.reshape(1, 3), 1)),
        "unbind": lambda: torch.unbind(s),
        "out": lambda: torch.add(t, t, out=s.detach()),
        "iter": lambda: list(iter(s)),
        "bool": lambda: bool(s[0]),
        "float": lambda: float(s[0]),
        "item": lambda: s[0].item(),
        "index": lambda: t[si],
        "set": lambda: s.__setitem__(0, 1),
        "contains": lambda: 1 in s,
        "repr": lambda: repr(s),
        "repr of one": lambda: repr(s[0]),
        "shape": lambda: s.shape[0],
        "ndim": lambda: s.ndim,
        "T": lambda: s.reshape(1, 3).T,
        "data": lambda: s.data,
        "requires": lambda: s.requires_grad,
        "set grad": lambda: setattr(s, "grad", t),
        "grad": lambda: s.grad,
        "clone": lambda: s.clone(),
        "detach": lambda: s.detach(),
        "new": lambda: s.new_zeros(2),
        "like": lambda: torch.ones_like(s),
        "tensor": lambda: torch.tensor([1.0]),
        "linear": lambda: torch.nn.functional.linear(s, torch.ones(2, 3)),
        "layer": lambda: torch.nn.ReLU()(s),
        "as tensor": lambda: s.as_subclass(torch.Tensor),
        "is_tensor": lambda: torch.is_tensor(s),
    }
    return seen(torch, log, cases)


def kept_classes(torch):
    """What becomes of subclasses that say nothing themselves."""

    class Plain(torch.Tensor):
        pass

    class Off(torch.Tensor):
        __torch_function__ = torch._C._disabled_torch_function_impl

    class Unit(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            made = super().__torch_function__(func, types, args, kwargs)
            if isinstance(made, Unit):
                made.unit = next((a.unit for a in args if hasattr(a, "unit")), None)
            return made

        def __deepcopy__(self, memo):
            made = self.detach().clone()
            made.unit = self.unit
            return made

    leaf = torch.tensor([1.0, 2.0], requires_grad=True)
    x = leaf.as_subclass(Plain)
    y = (x * 2 + torch.ones(2)).exp()
    y.sum().backward()
    found = [described(torch, y), [round(v, 3) for v in leaf.grad.tolist()], x.is_leaf, y.grad_fn is not None]
    x = Plain([1.0, 2.0]).requires_grad_()
    (x**2).sum().backward()
    found += [type(x.grad).__name__, x.grad.tolist(), type(x.data).__name__, type(x.detach()).__name__]
    found += [described(torch, torch.autograd.grad((x * 3).sum(), x)), isinstance(x, Plain)]
    with torch.no_grad():
        x += 1
    found += [described(torch, x), type(Off([1.0]) * 2).__name__, type(torch.ones(1).as_subclass(Off)).__name__]
    u = torch.ones(2).as_subclass(Unit)
    u.unit = "m"
    found += [(u * 2).unit, u.sum().unit, u[0].unit, repr(u), copy.deepcopy(u).unit]
    with torch._C.DisableTorchFunctionSubclass():
        found.append(type(u * 2).__name__)
    return found


def parameters(torch):
    """Parameters of a subclass in a network that is trained."""

    class Plain(torch.Tensor):
        pass

    class Own(torch.nn.Parameter):
        pass

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor([1.0, 2.0]).as_subclass(Plain))

        def forward(self, x):
            return (self.weight * x).sum()

    net, own = Net(), Own(torch.ones(2))
    found = [
        type(net.weight).__name__,
        isinstance(net.weight, torch.nn.Parameter),
        [n for n, _ in net.named_parameters()],
    ]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        loss = net(torch.ones(2))
        loss.backward()
        optimizer.step()
    found += [described(torch, net.weight), type(loss).__name__, type(own).__name__, type(own * 2).__name__]
    return [*found, isinstance(torch.ones(2).as_subclass(Plain), torch.nn.Parameter)]


# --- modes ------------------------------------------------------------------------------------------------------------
def modes(torch):
    """A mode, two of them, and one around a subclass."""
    log = []
    functional = torch.nn.functional
    early = torch.nn.functional.softmax

    class Noting(torch.overrides.TorchFunctionMode):
        def __init__(self, tag="m"):
            self.tag = tag

        def __torch_function__(self, func, types, args=(), kwargs=None):
            log.append((self.tag, func.__name__, [type(a).__name__ for a in args if isinstance(a, torch.Tensor)]))
            return func(*args, **(kwargs or {}))

    class Changing(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func is torch.add:
                return 42
            made = func(*args, **(kwargs or {}))
            return made + 1 if func in (torch.Tensor.mul, torch.ones) else made

    class Plain(torch.Tensor):
        pass

    t, x2, x3 = torch.ones(3).requires_grad_(), torch.ones(2, 3), torch.ones(1, 1, 4)
    s = torch.ones(2).as_subclass(Plain)
    lin, emb, conv, pool = (
        torch.nn.Linear(3, 2),
        torch.nn.Embedding(3, 2),
        torch.nn.Conv1d(1, 1, 2),
        torch.nn.MaxPool1d(2),
    )
    index = torch.tensor([1])
    cases = {
        "len": lambda: len(t),
        "add": lambda: t + 1,
        "rsub": lambda: 1 - t,
        "neg": lambda: -t,
        "compare": lambda: t > 1,
        "item": lambda: t[0].item(),
        "shape": lambda: t.shape[0],
        "T": lambda: x2.T,
        "grad": lambda: t.grad,
        "tensor": lambda: torch.tensor([1.0]),
        "zeros": lambda: torch.zeros(2),
        "arange": lambda: torch.arange(3),
        "full": lambda: torch.full((2,), 1.0),
        "early": lambda: early(t, 0),
        "relu": lambda: functional.relu(t),
        "linear": lambda: lin(t).shape[0],
        "embedding": lambda: emb(index).shape[1],
        "conv": lambda: conv(x3).shape[2],
        "pool": lambda: pool(x3),
        "backward": lambda: (t * 2).sum().backward(),
        "is_tensor": lambda: torch.is_tensor(t),
        "meshgrid": lambda: torch.meshgrid(t, t, indexing="ij")[0],
        "clone": lambda: t.clone(),
        "in place": lambda: x2.clone().add_(1),
        "subclass": lambda: s + 1,
    }
    with Noting():
        found = seen(torch, log, cases)
    with Noting("a"):
        with Noting("b"):
            found += seen(
                torch, log, {"nested": lambda: t.mean(), "nested +": lambda: t + t, "shape": lambda: t.shape[0]}
            )
        found += seen(torch, log, {"one": lambda: t * t})
    found += seen(torch, log, {"none": lambda: t * t})
    with Changing():
        found.append((torch.add(t, t), (t * t).tolist(), torch.ones(2).tolist(), t.add(t).tolist()))
    try:
        with Noting():
            raise KeyError
    except KeyError:
        found.append(torch.overrides._get_current_function_mode())
    return found


# --- functions of a user's --------------------------------------------------------------------------------------------
def own_functions(torch):
    """What is there for functions that ask themselves."""
    overrides = torch.overrides

    class Duck:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func.__name__, [kind.__name__ for kind in types], len(args), kwargs or {}

    class Plain(torch.Tensor):
        pass

    @overrides.wrap_torch_function(lambda x, scale=1.0: (x,))
    def scaled(x, scale=1.0):
        return x * scale

    duck, x, s = Duck(), torch.ones(2), torch.ones(2).as_subclass(Plain)
    parameter = torch.nn.Parameter(torch.ones(1))
    found = [scaled(duck, scale=2.0), scaled(x, 2.0).tolist(), type(scaled(s)).__name__]
    found += [overrides.is_tensor_like(y) for y in (x, s, duck, 1.0, None)]
    found += [overrides.has_torch_function((y,)) for y in (x, s, duck, 1.0, parameter)]
    found += [
        overrides.is_tensor_method_or_property(f) for f in (torch.Tensor.add, torch.add, torch.Tensor.shape.__get__)
    ]
    found += [overrides.resolve_name(f) for f in (torch.Tensor.add, torch.add, torch.nn.functional.relu, len)]
    asking = overrides.get_overridable_functions()
    found += [torch.add in asking[torch], torch.Tensor.add in asking[torch.Tensor], torch.is_tensor in asking[torch]]
    found.append(torch.is_tensor in overrides.get_ignored_functions())
    return found


PROGRAMS = {f.__name__: f for f in (scalar_tensor, logging_tensor, kept_classes, parameters, modes, own_functions)}
