"""torch.hub without a network."""

import pytest

import weft
from weft import hub
from weft.utils import model_zoo


def test_models_of_a_folder(tmp_path):
    (tmp_path / "size.py").write_text("SIZE = 3\n")
    (tmp_path / "hubconf.py").write_text(
        "dependencies = ['json']\nfrom size import SIZE\nimport weft\n"
        "def model(n, bias=True):\n    'A layer.'\n    return weft.nn.Linear(n, SIZE, bias)\n"
    )
    assert hub.load(str(tmp_path), "model", 2, source="local", bias=False).weight.shape == (3, 2)
    assert hub.list(str(tmp_path)) == ["model"] and hub.help(str(tmp_path), "model") == "A layer."
    with pytest.raises(RuntimeError, match="Cannot find callable nothing in hubconf"):
        hub.load(str(tmp_path), "nothing", source="local")
    (tmp_path / "hubconf.py").write_text("dependencies = ['no_such_package']\n")
    with pytest.raises(RuntimeError, match="Missing dependencies: no_such_package"):
        hub.list(str(tmp_path))


def test_what_would_be_fetched_says_what_to_do(tmp_path):
    with pytest.raises(RuntimeError, match="weft fetches nothing: fetch the repository 'pytorch/vision'"):
        hub.load("pytorch/vision", "resnet18")
    with pytest.raises(FileNotFoundError, match="no hubconf.py"):
        hub.load(str(tmp_path), "model", source="local")
    with pytest.raises(ValueError, match="Unknown source"):
        hub.load(str(tmp_path), "model", source="elsewhere")
    with pytest.raises(RuntimeError, match="fetch http://example.org/a and put it at b"):
        hub.download_url_to_file("http://example.org/a", "b")


def test_files_that_have_been_fetched(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    url = "https://example.org/models/net-1234.pt?download=1"
    with pytest.raises(RuntimeError, match="net-1234.pt"):
        hub.load_state_dict_from_url(url)
    folder = tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    weft.save({"weight": weft.ones(2)}, folder / "net-1234.pt")
    assert hub.load_state_dict_from_url(url, progress=False)["weight"].tolist() == [1, 1]
    assert model_zoo.load_url(url, model_dir=str(folder), map_location="cpu")["weight"].tolist() == [1, 1]
    hub.set_dir(str(tmp_path))
    try:
        assert hub.get_dir() == str(tmp_path)
    finally:
        hub._FOLDER.clear()
