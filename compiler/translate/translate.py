"""Translates functions of the subset: their text, and that of all native functions they call, to one module of IR.

    translation = translate([apply, call_op], layout)
    translation.text, translation.slots, translation.warnings

Functions are written on demand, one after the other; where something was assumed wrongly about a loop or a call (see
values.py: Retry), a function is written again.
"""

from . import calls, expressions, forms, objects, statements
from .unit import Signature, Unit
from .values import Retry

_HANDLERS = {**expressions.HANDLERS, **objects.HANDLERS, **calls.HANDLERS, **statements.HANDLERS}
_HANDLERS["body"] = statements.write_body
_MOST_ATTEMPTS = 100


def translate(functions, layout=None):
    """The Translation of native functions. layout: {name: byte offset} of what is in objects, if they use any."""
    translation = Translation(dict(layout or {}))
    for function in functions:
        translation.signature(function)
    return translation


class Translation(Unit):
    """A Unit that writes functions as they are asked for."""

    def signature(self, function):
        """How a native function is called; it is written now if it was not yet."""
        key = function.declaration.function
        if key not in self.signatures:
            source = self.source(key)
            self.signatures[key] = self._declared(source)
            self._write(source, self.signatures[key], {})
        signature = self.signatures[key]
        signature.is_called_back |= not signature.finished
        return signature

    def _declared(self, source):
        declaration, (kinds, result) = source.function.declaration, self.kinds(source)
        names = source.function.__code__.co_varnames
        forms.check(source, kinds, result)
        name = declaration.name or f"weft_{source.function.__module__}.{source.function.__name__}"
        return Signature(name, list(zip(names, kinds)), result, declaration.form)

    def _write(self, source, signature, assumed):
        n_signatures, n_functions = len(self.signatures), len(self.ir.functions)
        known = self.ir.signatures.copy()
        for _ in range(_MOST_ATTEMPTS):
            try:
                writer = _write_once(self, source, signature, assumed)
            except Retry as retry:
                assumed[retry.key], self.ir.signatures = retry.found, known.copy()
                if retry.key == "departs":
                    signature.departs = True
                    if signature.is_called_back:
                        self._forget(n_signatures, n_functions)
                continue
            signature.runs_code, signature.finished = writer.events > 0, True
            self.warnings += writer.warnings
            return
        raise AssertionError(f"{signature.name}: no end of attempts, {assumed}")

    def _forget(self, n_signatures, n_functions):
        """What was written since: functions that call this one back took it for one that does not depart."""
        for key in list(self.signatures)[n_signatures:]:
            del self.signatures[key]
        del self.ir.functions[n_functions:]


def _write_once(unit, source, signature, assumed):
    writer = forms.start(unit, source, signature, assumed, _HANDLERS)
    writer.write_body(source)
    forms.finish(writer)
    return writer
