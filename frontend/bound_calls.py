"""Compiled methods as instances have them: they tell what compiled functions tell, and begin with the instance."""

import functools


class BoundCall(functools.partial):
    """A compiled function whose first argument is the instance it was asked of, as methods are."""

    __slots__ = ()

    @property
    def __self__(self):
        return self.args[0]

    @property
    def __func__(self):
        return self.func

    @property
    def __name__(self):
        return self.func.__name__

    @property
    def __doc__(self):
        return self.func.__doc__

    def explain(self, *args, verbose=False, **kwargs):
        """As CompiledFunction.explain, for all instances; arguments are those that follow the instance."""
        given = self.args if args or kwargs else ()
        return self.func.explain(*given, *args, verbose=verbose, **kwargs)

    def finish_compiling(self):
        """As CompiledFunction.finish_compiling, for all instances."""
        self.func.finish_compiling()

    @property
    def breaks(self):
        """Those of the method, of calls with any instance."""
        return self.func.breaks

    @property
    def recordings(self):
        """Those of the method, of calls with any instance."""
        return self.func.recordings

    def __getattr__(self, name):
        # A class body cannot have a property of this name.
        if name == "__qualname__":
            return self.func.__qualname__
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def __eq__(self, other):
        if not isinstance(other, BoundCall):
            return NotImplemented
        return self.func is other.func and self.__self__ is other.__self__

    def __hash__(self):
        return hash((id(self.func), id(self.__self__)))

    def __repr__(self):
        return f"<bound {self.func!r}>"
