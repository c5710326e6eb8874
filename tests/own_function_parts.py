"""Functions of a user for test_own_functions.py: what they read, keep and do. Not a test."""

import weft
from weft import nn
from weft.autograd import Function

SCALE = 2.0
KEPT = []


def slope(x):
    return 1 - x.tanh().square()


def as_cosine(x):
    return x.cos()


class Clip(Function):
    @staticmethod
    def forward(ctx, x, limit):
        ctx.save_for_backward(x)
        ctx.limit = limit
        return x.clamp(-limit, limit)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (x.abs() <= ctx.limit), None


class Tanh(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.tanh() * SCALE

    @staticmethod
    def backward(ctx, g):
        return g * slope(ctx.saved_tensors[0])


class ScaledBack(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, g):
        return g * SCALE


class OfItsClass(Function):
    factor = 3.0

    @staticmethod
    def forward(ctx, x):
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        return g * OfItsClass.factor


class Rectified(Function):
    """As in PyTorch's tutorial."""

    @staticmethod
    def forward(ctx, input):
        ctx.save_for_backward(input)
        return input.clamp(min=0)

    @staticmethod
    def backward(ctx, grad_output):
        (input,) = ctx.saved_tensors
        grad_input = grad_output.clone()
        grad_input[input < 0] = 0
        return grad_input


class Linear(Function):
    """As in PyTorch's manual."""

    @staticmethod
    def forward(ctx, input, weight, bias=None):
        ctx.save_for_backward(input, weight, bias)
        output = input.mm(weight.t())
        if bias is not None:
            output += bias.unsqueeze(0).expand_as(output)
        return output

    @staticmethod
    def backward(ctx, grad_output):
        input, weight, bias = ctx.saved_tensors
        grad_input = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_input = grad_output.mm(weight)
        if ctx.needs_input_grad[1]:
            grad_weight = grad_output.t().mm(input)
        if bias is not None and ctx.needs_input_grad[2]:
            grad_bias = grad_output.sum(0)
        return grad_input, grad_weight, grad_bias


class Product(Function):
    """Gradients of other shapes and types than the arguments'."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x.double() * y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * y, g * x


class Picked(Function):
    """Saves places and the output."""

    @staticmethod
    def forward(ctx, x, places):
        y = x.exp()
        mask = y > 1
        ctx.save_for_backward(y, places, mask)
        return y

    @staticmethod
    def backward(ctx, g):
        y, places, mask = ctx.saved_tensors
        return (g * y * mask).index_select(0, places), None


class Dropped(Function):
    @staticmethod
    def forward(ctx, x):
        y = nn.functional.dropout(x, 0.5)
        return y * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


class DroppedBack(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return nn.functional.dropout(g, 0.5)


class ReadsForward(Function):
    @staticmethod
    def forward(ctx, x, scale):
        factor = float(scale)
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, g):
        return g * ctx.factor, None


class ReadsBack(Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(scale)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        (scale,) = ctx.saved_tensors
        return (g * 2 if scale > 0 else g * 3), None


class Keeps(Function):
    @staticmethod
    def forward(ctx, x):
        y = x * 2
        KEPT.append(y)
        return y

    @staticmethod
    def backward(ctx, g):
        return g * 2


class Looks(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x.cos() if weft.is_grad_enabled() else g * 5


class StopsBack(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        with weft.no_grad():
            two = x * 2
        return g * two


class SetUp(Function):
    @staticmethod
    def forward(x, power=2.0):
        return x.abs() ** power

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.power = inputs
        ctx.save_for_backward(x, output)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * ctx.power * y / x, None


class Sum(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.set_materialize_grads(False)
        return x * 2 + y * 3

    @staticmethod
    def backward(ctx, g):
        return (g * 2, g * 3) if g is not None else (None, None)


class Raises(Function):
    @staticmethod
    def forward(ctx, x, flag):
        if flag:
            raise ValueError("no")
        ctx.flag = flag
        return x * 3

    @staticmethod
    def backward(ctx, g):
        return g * 3, None


class NotOfOne(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(y)
        return x * y

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0], None


class Sized(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.n = x.shape[0]
        return x * ctx.n

    @staticmethod
    def backward(ctx, g):
        return g * g.shape[0] + weft.ones(g.shape[0], 1)


class SavesTooMuch(Function):
    @staticmethod
    def forward(ctx, x):
        y = x * 2
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * 2
