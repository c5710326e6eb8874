"""IR text of what follows a change of a tensor that has other names (native_text.py): the native twin of
runtime/replay/usual_through.py."""

from ...compiler.emit.builder import I64
from . import native_words as t
from .native_ops import take_numbers_again


def show_again(f, n, tensors):
    """So many names of what has just changed, tensors of the call each, show it again, as the next entries say."""
    b = f.b
    with b.loop(0, n, 1):
        entry = b.offset(f.word(t.ENTRIES), f.word(t.K, I64), 8 * t.ENTRY_WORDS)
        change = f.load(entry, 8 * t.CHANGE)
        take_numbers_again(f, change)
        tensor = f.item(tensors, f.load(change, 8 * t.OLD, I64))
        f.assign(tensor, b.offset(tensors, f.load(change, 8 * t.NEW, I64), 8), 0)
        number_anew(f, change, tensor, tensors)
        f.advance()


def number_anew(f, change, tensor, tensors):
    """A tensor of the call holds another value."""
    for word, slot in ((t.NEW_NUMBER, "vid"), (t.NEW_META, "meta"), (t.NEW_FLAG, "requires_grad")):
        f.assign(f.load(change, 8 * word), tensor, getattr(f.layout, slot))
    f.assign(f.word(t.NONE), f.b.offset(tensors, f.load(change, 8 * t.OLD, I64), 8), 0)
