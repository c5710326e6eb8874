"""What a frame may do again as it was done in the call before, without being told how: asked first, at weft's door."""


class NothingAgain:
    """The answers of a frame that expects nothing. A UsualFrame has others, most of them in native code."""

    walked = None  # what a backward pass that is noted has met (frame_walks.py)

    def call_again(self, function, args):
        """function(*args), which may be taken as a whole (frame_spans.py)."""
        return function(*args)

    def connect_again(self, node, outputs, inputs, name):
        """Whether the outputs of a Function of this name go on as values with a history here too, and do."""
        return False

    def connected_again(self, facts, context, args, outputs):
        """The same for what a call of a Function was given and has returned, if it has come before: its node."""
        return None

    def function_again(self, ways, args):
        """What a call of a Function that does nothing but ops (own_ops.py) returns, if it has come here before; else
        None."""
        return None

    def place_of_function(self, ways, args):
        """What learns from the call of such a Function that begins here, if anything does."""
        return None

    def hook_again(self, tensor):
        """What hooks of a value are to be registered with, if it had some in the call before."""
        return None

    def backward_again(self, outputs, gradients, retain_graph, create_graph, inputs):
        """Whether backward() of these outputs is the one expected here, and has been done."""
        return False

    def gradients_again(self, outputs, cotangents, inputs, retain_graph, create_graph):
        """The same for autograd.grad: its result or None."""
        return None

    def inplace_again(self, op, target, operands, attributes):
        """Whether target becomes op(*operands) here too, and has been changed."""
        return False

    def shows_whole(self, view, tensor):
        """Whether a pending view that the call has made is another name of the whole tensor."""
        return False

    def takes_memory(self, target, value):
        """Whether a tensor has become another name of a value of the call, as `target.data = value` makes it."""
        return False

    def make_leaf(self, tensor):
        """Whether a tensor that the call has made is a leaf that requires gradients from now on."""
        return False

    def update_again(self, rule, params, states, names, numbers, flags):
        """The same for an update (runtime/eager/update.py) with a row (param, its gradient, states[param][name] for
        every name) per param that has a gradient."""
        return False

    def step_again(self, optimizer):
        """The same for a step of an optimizer, with all its updates."""
        return False

    def count_steps(self, params, states):
        """The number of an optimizer's step, if states[param]["step"] has been counted up to it for all params that
        have a gradient; else None."""
        return None

    def drop_gradients(self, groups):
        """Whether .grad of all parameters in an optimizer's groups has become None."""
        return False
