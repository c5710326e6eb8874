"""A module cut into parts that are compiled apart, at the same time.

    parts(text) -> [text of a module, ...]

Where a module is cut depends on its text alone, never on the machine or how many threads there are, so that its code
is the same everywhere. A part defines whole functions, in their order, and declares what it uses of the others. What
was internal to the module and is used in several parts becomes global, so parts must be linked with each other and
with nothing else; private constants are copied into each part that reads them.

LLVM works on one function after the other (no pass looks into another one), so functions are the same code in parts.
"""

import re

# A part of this many characters takes LLVM 20 to 40 ms; a module that defines nothing takes 2 ms, and 0.08 ms to link
# whenever the program is loaded, so there are no more parts than keep this many CPUs busy.
PART_SIZE = 24_000
MOST_PARTS = 16

_FUNCTION = re.compile(r"^define .*?^}$\n?", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"@([\w.]+)")
_VARIABLE = re.compile(r"@[\w.]+ = (?:internal )?(global \[\d+ x \w+\]) zeroinitializer(.*)")


def parts(text, size=None):
    """The parts of a module in IR text as weft writes it: one if it is not worth it, or cannot be cut. `size`: of one,
    in characters; by default at least PART_SIZE."""
    functions, rest = _read(text)
    size = size or max(PART_SIZE, len(text) // MOST_PARTS)
    shared = {_NAME.match(line)[1]: line for line in rest if line.startswith("@")}
    variables = {name: line for name, line in shared.items() if "constant" not in line}
    groups = _groups(functions, size)
    if len(groups) < 2 or not all(map(_VARIABLE.fullmatch, variables.values())):
        return [text]
    used = [set(_NAME.findall(group)) for group in map("".join, groups)]
    homes = {_defined(function): k for k, group in enumerate(groups) for function in group}
    # A variable is defined by the first part that uses it; by the first of all if none does.
    homes |= {name: next((k for k, names in enumerate(used) if name in names), 0) for name in variables}
    abroad = {name for k, names in enumerate(used) for name in names if homes.get(name, k) != k}
    heads = {_defined(function): function.partition(" {\n")[0] for function in functions}
    return [_part(k, group, used[k], homes, abroad, heads, rest, variables) for k, group in enumerate(groups)]


def _read(text):
    """(the texts of functions, the lines of everything else)."""
    functions, others, end = [], [], 0
    for found in _FUNCTION.finditer(text):
        functions.append(found[0])
        others.append(text[end : found.start()])
        end = found.end()
    return functions, [line for line in "".join([*others, text[end:]]).splitlines() if line]


def _groups(functions, size):
    """Functions that follow each other, of this size together or more, but for the last."""
    groups, length = [], size
    for function in functions:
        if length >= size:
            groups.append([])
            length = 0
        groups[-1].append(function)
        length += len(function)
    return groups


def _defined(function):
    return _NAME.search(function)[1]


def _part(number, functions, used, homes, abroad, heads, rest, variables):
    lines = []
    for line in rest:
        name = _NAME.search(line)
        if name is None:  # attributes
            lines.append(line)
        elif name[1] in variables:
            if homes[name[1]] == number:
                lines.append(_shown(line) if name[1] in abroad else line)
            elif name[1] in used:
                lines.append(_VARIABLE.sub(rf"@{name[1]} = external \1\2", line))
        elif name[1] in used:  # a constant, or a function from outside the module
            lines.append(line)
    elsewhere = [name for name in heads if name in used and homes[name] != number]
    lines += [_shown(heads[name]).replace("define ", "declare ", 1) for name in elsewhere]
    defined = [_shown(function) if _defined(function) in abroad else function for function in functions]
    return "\n".join([*lines, *defined])


def _shown(text):
    return text.replace("internal ", "", 1)
