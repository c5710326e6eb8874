"""Random trainings, longer than those of random_training.py and with more that happens between their calls.

The step, the loss, the optimizer are the fragments of random_training.py; here the step is called more often, for two
models in turn, with the backward or the optimizer's step outside, and the state is looked at more or less closely.
"""

import random_training as fragments
from random_training import RandomTraining

MORE_EVENTS = (
    "model.double()\nmodel.float()",
    "model.double()",
    "model.float()",
    "model[0].weight = nn.Parameter(randn(5, 5))",
    "model[0].bias = None",
    "optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))",
    "optimizer.state.clear()",
    "optimizer.param_groups[0]['weight_decay'] = 0.01",
    "optimizer = optim.Adam(model.parameters(), lr=0.01)",
    "optimizer = optim.SGD(model.parameters(), lr=0.01)",
    "model, shadow = shadow, model",
    "model = copy.deepcopy(model)",
    "step = compile(copy.copy(plain))",
    "gc.collect()",
    "table = weft.ones(4, 5)",
    "handle = model[0].register_forward_hook(lambda module, given, out: out * 0.5)",
    "model.append(nn.Linear(5, 5))",
    "scale = randn(5, requires_grad=True)",
    "model[0].weight.data[0] = 1.0",
    "for p in model.parameters():\n    p.grad = weft.zeros_like(p)",
    "scale.requires_grad_(True)",
    "weft.set_grad_enabled(True)",
    "nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(model.parameters()), model.parameters())",
    "model.apply(lambda m: m.reset_parameters() if hasattr(m, 'reset_parameters') else None)",
)
# The step without its end; what is left is done by the caller.
OUTSIDE = (
    ("return loss", "result.backward()\noptimizer.step()\noptimizer.zero_grad()"),
    ("return loss, out", "result[0].backward()\noptimizer.step()\nmodel.zero_grad()"),
    ("return {'loss': loss, 'out': out}", "(result['loss'] + result['out'].mean()).backward()\noptimizer.step()"),
    ("return out", "F.mse_loss(result, y).backward()\noptimizer.step()\noptimizer.zero_grad()"),
    ("return loss", "result.backward()\nnn.utils.clip_grad_norm_(model.parameters(), 0.1)\noptimizer.step()"),
    ("loss.backward()\nreturn loss", "optimizer.step()\noptimizer.zero_grad()"),
    ("return loss", "gs = weft.autograd.grad(result, [*model.parameters()], allow_unused=True)\nyield gs[0]"),
    ("return loss, (out * 0.1).sum()", "result[0].backward(retain_graph=True)\nresult[1].backward()\noptimizer.step()"),
)  # fmt: skip


class LongTraining(RandomTraining):
    """seed -> `source`."""

    def __init__(self, seed):
        super().__init__(seed)
        self.n_calls = int(self.rng.integers(12, 26))
        self.outside = self.pick(OUTSIDE) if self.rng.random() < 0.4 else None

    def body(self):
        if self.outside is None:
            return super().body()
        parts = [self.pick(fragments.FORWARDS), self.pick(fragments.LOSSES)]
        parts += [*self.some(fragments.BETWEEN, 2), self.outside[0]]
        return [line for part in parts for line in part.split("\n")]

    def event(self, call):
        text = self.pick(MORE_EVENTS if self.rng.random() < 0.5 else fragments.EVENTS)
        return [f"if call == {call}:", *(f"    {line}" for line in text.split("\n"))]

    @property
    def source(self):
        head, rest = super().source.split("    step = compile(step)\n")
        rare = (0.08, 0.25)[self.seed % 2]
        events = [line for call in range(4, self.n_calls) if self.rng.random() < rare for line in self.event(call)]
        after = self.outside[1].split("\n") if self.outside else []
        lines = ["plain, step = step, compile(step)", "saved = handle = held = result = None", "size = 4"]
        lines += [f"for call in range({self.n_calls}):", "    try:", *_indented(events, 2)]
        lines += ["        x, y = randn(size, 5), randn(size, 5)", "        result = step(x, y, 0.5 + call)"]
        lines += _indented([*after, self.pick(("result = None", "yield result", "yield peek(result)", "pass"))], 2)
        lines += ["    except Exception as error:", "        yield said(error)"]
        lines += ["    yield peek([x, list(model.parameters()), list(model.buffers()), scale, table])"]
        lines += self.pick(([], ["    yield seen, kept"], ["    yield [p.grad for p in model.parameters()]"]))
        ending = rest[rest.index("    yield seen, kept, list(shadow.parameters())") :]
        ending = ending.replace("from compiled_twin import", "from attack.compare import")
        head = head.replace("import copy\n", "import copy\nimport gc\n\nfrom attack.compare import peek, said\n", 1)
        return head + "\n".join(_indented(lines, 1)) + "\n" + ending


def _indented(lines, n):
    return ["    " * n + line for line in lines]
