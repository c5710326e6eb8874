"""weft.hub: torch.hub without a network: models of a folder on disk, and files that have been fetched already.

load(folder, "model", source="local")       what hubconf.py in that folder makes
load_state_dict_from_url(url)               the file of that name in get_dir()/checkpoints, if it is there
"""

import importlib.util
import os
import re
import sys
from urllib.parse import unquote, urlparse

from .serialization import load as load_file

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")  # the part of a file's name that its contents begin with, when hashed

_CONF = "hubconf.py"
_FOLDER = {}


def _get_torch_home():
    """$TORCH_HOME, or ~/.cache/torch if nothing is set."""
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.environ.get("TORCH_HOME", os.path.join(cache, "torch")))


def get_dir():
    """Where files are looked for: set_dir's folder, or $TORCH_HOME/hub, which is ~/.cache/torch/hub if nothing is
    set."""
    return _FOLDER.get("dir") or os.path.join(_get_torch_home(), "hub")


def set_dir(d):
    """Look for files in another folder from now on."""
    _FOLDER["dir"] = os.path.expanduser(d)


def load(repo_or_dir, model, *args, source="github", trust_repo=None, force_reload=False, **options):
    """What the function `model` of hubconf.py in a folder returns, given the other arguments. source: "local", since
    weft fetches nothing."""
    return _entry(_conf(repo_or_dir, source), model)(*args, **_without_switches(options))


def list(github, force_reload=False, skip_validation=False, trust_repo=None, verbose=True, *, source="local"):
    """The functions of hubconf.py in a folder."""
    found = vars(_conf(github, source))
    return [name for name, value in found.items() if callable(value) and not name.startswith("_")]


def help(github, model, force_reload=False, skip_validation=False, trust_repo=None, *, source="local"):
    """What such a function says of itself."""
    return _entry(_conf(github, source), model).__doc__


def _without_switches(options):
    return {name: value for name, value in options.items() if name not in ("verbose", "skip_validation")}


def _conf(folder, source):
    if source not in ("github", "local"):
        raise ValueError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    folder = os.path.expanduser(folder)
    path = os.path.join(folder, _CONF)
    if source == "github" and not os.path.exists(path):
        raise RuntimeError(
            f"hub: weft fetches nothing: fetch the repository {folder!r}, then hub.load(its folder, ..., "
            'source="local")'
        )
    if not os.path.exists(path):
        raise FileNotFoundError(f"hub: there is no {_CONF} in {folder!r}")
    spec = importlib.util.spec_from_file_location("hubconf", path)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(folder)
    missing = [name for name in getattr(module, "dependencies", ()) if importlib.util.find_spec(name) is None]
    if missing:
        raise RuntimeError(f"Missing dependencies: {', '.join(missing)}")
    return module


def _entry(conf, name):
    found = getattr(conf, name, None)
    if not callable(found):
        raise RuntimeError(f"Cannot find callable {name} in hubconf")
    return found


def load_state_dict_from_url(
    url, model_dir=None, map_location=None, progress=True, check_hash=False, file_name=None, weights_only=False
):
    """The file that was fetched from there, as weft.load reads it; RuntimeError, which says where to put it, if it is
    not there."""
    folder = model_dir or os.path.join(get_dir(), "checkpoints")
    path = os.path.join(folder, file_name or os.path.basename(unquote(urlparse(url).path)))
    if not os.path.exists(path):
        raise RuntimeError(f"load_state_dict_from_url: weft fetches nothing: fetch {url} and put it at {path}")
    return load_file(path, map_location=map_location)


def download_url_to_file(url, dst, hash_prefix=None, progress=True):
    """RuntimeError: weft fetches nothing."""
    raise RuntimeError(f"download_url_to_file: weft fetches nothing: fetch {url} and put it at {dst}")


load_url = load_state_dict_from_url  # its name in utils.model_zoo
