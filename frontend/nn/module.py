"""Module: the base of layers and models, with PyTorch's semantics.

    Module -- _parameters   name -> Parameter or None
           |- _buffers      name -> Tensor or None        state that is saved but not trained
           |- _modules      name -> Module or None        children
           `- __dict__      every one of them once more, so that reading `self.weight` is a plain attribute

Attributes are registered by `__setattr__`; names, trees and state_dict keys follow from these three tables.
"""

from inspect import signature
from types import FunctionType

from ..compiler.later import later
from ..notebooks import module_html
from ..runtime.eager.update import zero_gradients
from ..runtime.state.marks import is_module_class
from ..runtime.state.tensor import Tensor
from . import hooks, state
from .conversions import Conversions
from .hooks import RemovableHandle
from .inner_names import InnerNames
from .parameter import Buffer, Parameter


class _SignatureOfCalls:
    """inspect.signature(module) where native code stands in place of `__call__`, as it does once programs are replayed:
    libraries look there for what a model takes. Of a class, and of `__call__`s in Python, inspect finds out itself."""

    def __get__(self, module, owner=None):
        if module is None or isinstance(type(module).__call__, FunctionType):
            raise AttributeError("__signature__")
        return _OF_CALLS


_OF_CALLS = signature(lambda *args, **kwargs: None)
# Whose functions are not made methods by standing in a class: those of PyTorch are none of Python's.
_ROOT = __name__.partition(".")[0]
_OF_TENSORS = {_ROOT, *(f"{_ROOT}.{name}" for name in ("fft", "linalg", "nn.functional", "special"))}
_compile = later("compiled:compile")


@is_module_class
class Module(Conversions, InnerNames):
    """Subclass it, call `super().__init__()`, assign parameters and other modules to attributes, define `forward`."""

    __signature__ = _SignatureOfCalls()
    _has_compiled = False  # children: containers.py
    _backward_hooks, _backward_pre_hooks = map(hooks.backward_hooks, ("after", "before"))

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        for name, value in [*vars(cls).items()]:
            if type(value) is FunctionType and value.__module__ in _OF_TENSORS and "<" not in value.__qualname__:
                setattr(cls, name, staticmethod(value))

    def __init__(self):
        self.__dict__.update(
            training=True,
            _parameters={},
            _buffers={},
            _modules={},
            _non_persistent=set(),
            _forward_pre_hooks={},
            _forward_hooks={},
        )

    def forward(self, *args):
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    def __call__(self, *args, **kwargs):
        if not (self._forward_hooks or self._forward_pre_hooks):
            return self.forward(*args, **kwargs)
        return hooks.call(self, args, kwargs)

    # Classes of users have a __call__ that calls these.
    _call_impl = _wrapped_call_impl = __call__

    def register_forward_pre_hook(self, hook, *, prepend=False, with_kwargs=False):
        """Call hook(module, args) before forward; what it returns, if not None, takes the place of args.

        With `with_kwargs` hook(module, args, kwargs), which returns None or (args, kwargs).
        """
        return RemovableHandle(self._forward_pre_hooks, hooks.with_options(hook, with_kwargs), prepend)

    def register_forward_hook(self, hook, *, prepend=False, with_kwargs=False, always_call=False):
        """Call hook(module, args, output) after forward; what it returns, if not None, takes the place of output.

        With `with_kwargs` hook(module, args, kwargs, output); with `always_call` also after an exception.
        """
        return RemovableHandle(self._forward_hooks, hooks.with_options(hook, with_kwargs, always_call), prepend)

    def register_full_backward_hook(self, hook, prepend=False):
        """Call hook(module, grad_input, grad_output) when the gradients of the inputs are known; what it returns, if
        not None, takes the place of grad_input. Both are tuples, with None where there is no gradient."""
        return RemovableHandle(hooks.around_backward(self).after, hook, prepend)

    register_backward_hook = register_full_backward_hook

    def register_full_backward_pre_hook(self, hook, prepend=False):
        """Call hook(module, grad_output) when the gradients of the outputs are known; what it returns, if not None,
        takes the place of grad_output."""
        return RemovableHandle(hooks.around_backward(self).before, hook, prepend)

    # --- registration -------------------------------------------------------------------------------------------
    def __setattr__(self, name, value):
        if isinstance(value, Parameter):
            self._place("_parameters", name, value, "parameters")
        elif isinstance(value, Module):
            self._place("_modules", name, value, "module")
        elif isinstance(value, Buffer):
            # The tensor itself: layers know weft's own classes of tensors.
            self.__dict__.pop(name, None)
            self.register_buffer(name, value.detach(), value.persistent)
        elif callable(value) and isinstance(getattr(value, "compiled_module", None), Module):
            # Its parameters are those of the module, by the same names; calls go to what is compiled.
            self._place("_modules", name, value.compiled_module, "module")
            self.__dict__.update({name: value, "_has_compiled": True})
        else:
            self._assign_plain(name, value)

    def __getattr__(self, name):
        """What is in a table and no attribute: programs write to the tables too."""
        for table in _TABLES:
            found = self.__dict__.get(table)
            if found is not None and name in found:
                return found[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'", name=name, obj=self)

    def _place(self, table, name, value, noun):
        if table not in self.__dict__:
            raise AttributeError(f"cannot assign {noun} before Module.__init__() call: call super().__init__() first")
        # In the table and among the attributes at once, without a call in between that an exception could follow: they
        # must be one parameter.
        # An attribute of the class of that name is what users find, here as in PyTorch.
        if hasattr(type(self), name):
            self.__dict__[table][name] = value
            self.__dict__.pop(name, None)
        else:
            self.__dict__[table][name] = self.__dict__[name] = value
        for other in _TABLES:
            if other != table:
                self.__dict__[other].pop(name, None)

    def _assign_plain(self, name, value):
        """Assign to a registered name only what fits there; other names are ordinary attributes."""
        for table, (kind, expected) in _TABLES.items():
            if name in self.__dict__.get(table, ()):
                if value is not None and not isinstance(value, expected):
                    raise TypeError(
                        f"cannot assign '{type(value).__name__}' object to {kind} '{name}' "
                        f"(weft.{'' if expected is Tensor else 'nn.'}{expected.__name__} or None required)"
                    )
                self.__dict__[table][name] = value
        object.__setattr__(self, name, value)

    def __delattr__(self, name):
        was_placed = [self.__dict__[table].pop(name, self) is not self for table in _TABLES]
        self._non_persistent.discard(name)
        if name in self.__dict__ or True not in was_placed:
            object.__delattr__(self, name)

    def register_parameter(self, name, param):
        """Add a parameter, or None for one that may come later."""
        self._check_new_name("_parameters", name)
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(f"cannot assign '{type(param).__name__}' object to parameter '{name}' (Parameter required)")
        self._place("_parameters", name, param, "parameter")

    def register_buffer(self, name, tensor, persistent=True):
        """Add a tensor that is state but not trained; only persistent buffers appear in state_dict."""
        self._check_new_name("_buffers", name)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"cannot assign '{type(tensor).__name__}' object to buffer '{name}' (Tensor required)")
        self._place("_buffers", name, tensor, "buffer")
        if persistent:
            self._non_persistent.discard(name)
        else:
            self._non_persistent.add(name)

    def register_module(self, name, module):
        """Add a child, or None."""
        self._check_new_name("_modules", name)
        if module is not None and not isinstance(module, Module):
            if isinstance(getattr(module, "compiled_module", None), Module):
                return setattr(self, name, module)
            if isinstance(module, type) and issubclass(module, Module):
                raise TypeError(f"{module.__name__} is a class and not a module: write {module.__name__}(...)")
            raise TypeError(f"{type(module).__name__} is not a Module subclass")
        self._place("_modules", name, module, "module")

    add_module = register_module

    def _check_new_name(self, table, name):
        noun = {"_parameters": "parameter", "_buffers": "buffer", "_modules": "module"}[table]
        if table not in self.__dict__:
            raise AttributeError(f"cannot assign {noun} before Module.__init__() call: call super().__init__() first")
        if not isinstance(name, str):
            raise TypeError(f"{noun} name should be a string. Got {type(name).__name__}")
        if name == "" or "." in name:
            raise KeyError(f'{noun} name can\'t {"be empty string" if name == "" else "contain a dot"}: "{name}"')
        if hasattr(self, name) and name not in self.__dict__[table]:
            raise KeyError(f"attribute '{name}' already exists")

    # --- traversal ----------------------------------------------------------------------------------------------
    def named_modules(self, memo=None, prefix="", remove_duplicate=True):
        """(path, module) for this module and all below it, parents first, each module once."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, child in self._modules.items():
            if child is not None:
                yield from child.named_modules(memo, _joined(prefix, name), remove_duplicate)

    def modules(self, remove_duplicate=True):
        return (module for _, module in self.named_modules(remove_duplicate=remove_duplicate))

    def named_children(self):
        """(name, child) of the direct children, each once."""
        seen = set()
        for name, child in self._modules.items():
            if child is not None and child not in seen:
                seen.add(child)
                yield name, child

    def children(self):
        return (child for _, child in self.named_children())

    def named_parameters(self, prefix="", recurse=True, remove_duplicate=True):
        """(path, parameter) of this module and those below it, each parameter once."""
        return self._named_members("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse=True):
        if recurse and type(self).named_parameters is _named_parameters:
            return self._distinct_parameters()
        return (param for _, param in self.named_parameters(recurse=recurse))

    def _distinct_parameters(self):
        """The same without their paths, which take longer than all else."""
        seen, visited, left = set(), set(), [self]
        while left:
            module = left.pop()
            if module is None or module in visited:
                continue
            if type(module).named_modules is _named_modules:
                visited.add(module)
                owners = (module,)
                left.extend(reversed(module._modules.values()))
            else:
                owners = (owner for _, owner in module.named_modules(visited))
            for owner in owners:
                for param in owner.__dict__["_parameters"].values():
                    if param is not None and param not in seen:
                        seen.add(param)
                        yield param

    def named_buffers(self, prefix="", recurse=True, remove_duplicate=True):
        return self._named_members("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse=True):
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    def _named_members(self, table, prefix, recurse, remove_duplicate):
        seen = set()
        owners = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, owner in owners:
            for name, member in owner.__dict__[table].items():
                if member is None or member in seen:
                    continue
                if remove_duplicate:
                    seen.add(member)
                yield _joined(path, name), member

    def get_submodule(self, target):
        """The module at a dotted path."""
        module = self
        for name in target.split(".") if target else ():
            if name not in module._modules:
                raise AttributeError(f"{type(module).__name__} has no attribute `{name}` that is a module")
            module = module._modules[name]
        return module

    def set_submodule(self, target, module, strict=False):
        """Put a module at a dotted path. With `strict` there must be one already."""
        if not target:
            raise ValueError("Cannot set the submodule without a target name!")
        path, _, name = target.rpartition(".")
        owner = self.get_submodule(path)
        if strict and name not in owner._modules:
            raise AttributeError(f"{type(owner).__name__} has no attribute `{name}`")
        if not isinstance(module, Module):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        setattr(owner, name, module)

    def get_parameter(self, target):
        """The parameter at a dotted path."""
        path, _, name = target.rpartition(".")
        owner = self.get_submodule(path)
        if name not in owner._parameters:
            raise AttributeError(f"{type(owner).__name__} has no attribute `{name}` that is a parameter")
        return owner._parameters[name]

    def get_buffer(self, target):
        """The buffer at a dotted path."""
        path, _, name = target.rpartition(".")
        owner = self.get_submodule(path)
        if name not in owner._buffers:
            raise AttributeError(f"{type(owner).__name__} has no attribute `{name}` that is a buffer")
        return owner._buffers[name]

    # --- state and modes ----------------------------------------------------------------------------------------
    def state_dict(self, *args, destination=None, prefix="", keep_vars=False):
        """An OrderedDict of path -> tensor, sharing memory with parameters and persistent buffers."""
        if args:
            destination, prefix, keep_vars = (*args, *(destination, prefix, keep_vars)[len(args) :])
        return state.collect(self, state.new() if destination is None else destination, prefix, keep_vars)

    def load_state_dict(self, state_dict, strict=True, assign=False):
        """Copy tensors, or NumPy arrays, into parameters and buffers, in place. With `strict` the keys must be the
        same; with `assign` the tensors themselves take the place of the module's.

        Nothing is copied if anything does not fit: RuntimeError lists missing and unexpected keys and wrong sizes.
        """
        return state.load(self, state_dict, strict, assign)

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        """The state of this module alone; classes of users may add to it."""
        state.collect_own(self, destination, prefix, keep_vars)

    def _load_from_state_dict(
        self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
    ):
        """Load it; classes of users may do more."""
        self._complete_state(state_dict, prefix, local_metadata)
        state.load_own(self, state_dict, prefix, strict, missing_keys, unexpected_keys, error_msgs)

    def _complete_state(self, state_dict, prefix, local_metadata):
        """Add to a dict, which is a copy, what this module's class had not when the dict was made."""

    def _loads_by_itself(self):
        return type(self)._load_from_state_dict is not Module._load_from_state_dict

    def _has_extra_state(self):
        return type(self).get_extra_state is not Module.get_extra_state

    def get_extra_state(self):
        """What state_dict() keeps beside tensors; a class that has such state defines this and set_extra_state."""
        raise RuntimeError("get_extra_state: define it in a class that has state beside its parameters and buffers")

    def set_extra_state(self, state):
        """Take over what get_extra_state returned."""
        raise RuntimeError("set_extra_state: define it in a class that defines get_extra_state")

    def register_state_dict_pre_hook(self, hook):
        """Call hook(module, prefix, keep_vars) before state_dict()."""
        return state.add_hook(self, "_state_dict_pre_hooks", hook)

    def register_state_dict_post_hook(self, hook):
        """Call hook(module, state_dict, prefix, local_metadata) after state_dict(); it may change the dict."""
        return state.add_hook(self, "_state_dict_hooks", hook)

    def register_load_state_dict_pre_hook(self, hook):
        """Call hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        before load_state_dict(); it may change the dict."""

        def with_module(*args):
            hook(self, *args)

        return state.add_hook(self, "_load_state_dict_pre_hooks", with_module)

    def _register_load_state_dict_pre_hook(self, hook, with_module=False):
        """PyTorch's older form, without the module."""
        if with_module:
            return self.register_load_state_dict_pre_hook(hook)
        return state.add_hook(self, "_load_state_dict_pre_hooks", hook)

    _register_state_dict_hook = register_state_dict_post_hook

    def register_load_state_dict_post_hook(self, hook):
        """Call hook(module, incompatible_keys) after load_state_dict(); it may change the lists of keys."""
        return state.add_hook(self, "_load_state_dict_post_hooks", hook)

    def train(self, mode=True):
        """Training mode for this module and all below (dropout draws); `eval()` is the opposite."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for child in self.children():
            child.train(mode)
        return self

    def eval(self):
        return self.train(False)

    def requires_grad_(self, requires_grad=True):
        for param in self.parameters():
            param.requires_grad = requires_grad
        return self

    def zero_grad(self, set_to_none=True):
        params = [param for param in self.parameters() if param.grad is not None]
        if not set_to_none:
            zero_gradients(params)
            return
        for param in params:
            param.grad = None

    def apply(self, fn):
        """Call fn(module) on all modules, children first, this one last."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    def compile(self, *args, **kwargs):
        """Its own forward is a compiled function from now on, with the keywords of weft.compile."""
        self.forward = _compile(self.forward, *args, **kwargs)

    # --- text ---------------------------------------------------------------------------------------------------
    def extra_repr(self):
        """What the class's own constructor was told, for __repr__."""
        return ""

    def _get_name(self):
        return type(self).__name__

    def __repr__(self):
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = ["({}): {}".format(name, repr(child).replace("\n", "\n  ")) for name, child in self._modules.items()]
        if not children and len(lines) <= 1:
            return f"{self._get_name()}({extra})"
        return f"{self._get_name()}(\n  " + "\n  ".join(lines + children) + "\n)"

    def _repr_html_(self):
        return module_html(self)


_TABLES = {
    "_parameters": ("parameter", Parameter),
    "_buffers": ("buffer", Tensor),
    "_modules": ("child module", Module),
}


# A subclass may have its own.
_named_parameters, _named_modules = Module.named_parameters, Module.named_modules


def _joined(prefix, name):
    return f"{prefix}.{name}" if prefix else name
