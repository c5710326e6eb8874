"""What a user's function reads of containers that are not plain lists, tuples and dicts (pure_code.py): of a cached
function what is in its cache, of a dict that makes what it lacks what it has, and of a view of a dict that dict."""

import gc
import types
from collections import defaultdict

from .pure_objects import Impure
from .pure_values import CACHED, described


def is_known_container(kind):
    return kind in (CACHED, types.MappingProxyType, defaultdict)


class ReadsOfContainers:
    """The part of Reads that looks into these."""

    def _add_container_of_python(self, value, name, code, line):
        kind = type(value)
        if kind is CACHED:
            self._add_cached(value, name, code, line)
        elif kind is types.MappingProxyType:
            (shown,) = gc.get_referents(value)
            if type(shown) is not dict:
                raise Impure(f"{name} is {described(value)}", code, line)
            self._add_dict(shown, name, code, line)
        else:
            # What it makes is seen: the dict has changed then.
            self._add_dict(value, name, code, line)

    def _add_cached(self, value, name, code, line):
        """A function with a cache, `functools.lru_cache`: what it has found so far, by identity, and what it does for
        the rest. How often it was asked is not counted where the caller does not run."""
        found = gc.get_referents(value)
        caches = [x for x in found if type(x) is dict and x is not vars(value)]
        function, limit = getattr(value, "__wrapped__", None), value.cache_info().maxsize
        if len(caches) != 1 or not any(x is function for x in found) or vars(value).get("__wrapped__") is not function:
            raise Impure(f"{name} has a cache that cannot be seen", code, line)
        cache = caches[0]
        self._count_parts(len(cache), name, code, line)
        results = list(cache.values())
        if limit is not None:
            # Places for results are used again once it is full: not before, as long as these are held.
            if len(cache) >= limit:
                raise Impure(f"{name} has a cache that is full, and forgets", code, line)
            keys, first = set(map(id, cache)), next(k for k, x in enumerate(found) if x is cache)
            results = [x for x in found[:first] if id(x) not in keys and not _is_of_cache(x)]
        self.dicts.append((cache, tuple(cache), tuple(cache.values())))
        self.attributes.append((value, "__wrapped__", function))
        self.add_value(function, name, code, line)
        for result in results:
            self.add_value(result, f"a result of {name}", code, line)


def _is_of_cache(x):
    """Whether it is one of the types that a cache is made of."""
    return isinstance(x, type) and x.__module__ == CACHED.__module__ and x.__name__.startswith("_lru_")
