"""Finding the pipeline function, and saying what was tried when there is none."""

from __future__ import annotations

import sys

import pytest

from snapshot_engine.graph.loading import INLINE_MODULE, LoadError, load_pipeline
from snapshot_engine.wire.spec import PipelineSpec

PIPELINE = "def pipeline(env):\n    return 'called'\n"


@pytest.fixture(autouse=True)
def clean_imports(monkeypatch):
    """What a test imports is forgotten after it."""
    known = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in set(sys.modules) - known:
        del sys.modules[name]


def load(folder, **spec):
    return load_pipeline(PipelineSpec(**spec), folder)


def failure(folder, **spec):
    with pytest.raises(LoadError) as caught:
        load(folder, **spec)
    return str(caught.value)


def test_a_file_beside_the_manifest(tmp_path):
    (tmp_path / "shop.py").write_text(PIPELINE)
    loaded = load(tmp_path, entrypoint="shop.py:pipeline")
    assert loaded.function(None) == "called"
    assert loaded.local_modules() == ("shop",)


def test_a_file_in_a_folder_below_the_manifest(tmp_path):
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "shop.py").write_text(PIPELINE)
    assert load(tmp_path, entrypoint="jobs/shop.py:pipeline").function(None) == "called"


def test_what_the_file_imports_from_its_folder_is_shipped_with_it(tmp_path):
    (tmp_path / "prices.py").write_text("TAX = 19\n")
    (tmp_path / "shop.py").write_text("import prices\n" + PIPELINE)
    assert set(load(tmp_path, entrypoint="shop.py:pipeline").local_modules()) == {"shop", "prices"}


def test_a_file_never_hides_a_module_of_its_name(tmp_path):
    import json

    (tmp_path / "json.py").write_text(PIPELINE)
    loaded = load(tmp_path, entrypoint="json.py:pipeline")
    assert loaded.function(None) == "called" and loaded.local_modules()[0] == "pipeline_json"
    assert sys.modules["json"] is json


def test_the_same_file_is_read_again_when_it_has_changed(tmp_path):
    file = tmp_path / "shop.py"
    file.write_text(PIPELINE)
    load(tmp_path, entrypoint="shop.py:pipeline")
    file.write_text("def pipeline(env):\n    return 'changed since'\n")
    assert load(tmp_path, entrypoint="shop.py:pipeline").function(None) == "changed since"


def test_dataclasses_of_a_loaded_file_know_their_module(tmp_path):
    text = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\nfrom typing import get_type_hints\n"
        "@dataclass\nclass Order:\n    city: str\n\ndef pipeline(env):\n    return get_type_hints(Order)\n"
    )
    (tmp_path / "shop.py").write_text(text)
    assert load(tmp_path, entrypoint="shop.py:pipeline").function(None) == {"city": str}


def test_a_module_in_the_path_of_the_manifest(tmp_path):
    package = tmp_path / "src" / "shop"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "orders.py").write_text(PIPELINE)
    loaded = load(tmp_path, entrypoint="shop.orders:pipeline", path="src")
    assert loaded.function(None) == "called"
    assert set(loaded.local_modules()) == {"shop", "shop.orders"}


def test_an_installed_module_is_not_shipped(tmp_path):
    loaded = load_pipeline(PipelineSpec(entrypoint="json:dumps"))
    assert loaded.function({"a": 1}) == '{"a": 1}' and loaded.local_modules() == ()


def test_inline_source(tmp_path):
    loaded = load(tmp_path, source="def flow(env):\n    return 'inline'\n", function="flow")
    assert loaded.function(None) == "inline" and loaded.local_modules() == (INLINE_MODULE,)


def test_the_text_of_a_config_map(tmp_path):
    spec = PipelineSpec(config_map={"name": "code"})
    assert load_pipeline(spec, tmp_path, PIPELINE).function(None) == "called"


def test_a_config_map_without_kubernetes_is_refused(tmp_path):
    message = failure(tmp_path, config_map={"name": "code"})
    assert "ConfigMap 'code'" in message and "only exists on Kubernetes" in message and "entrypoint" in message


def test_no_such_file_tells_where_it_looked_and_what_is_there(tmp_path):
    (tmp_path / "shop.py").write_text(PIPELINE)
    message = failure(tmp_path, entrypoint="shpo.py:pipeline")
    assert "no file 'shpo.py'" in message and str(tmp_path / "shpo.py") in message and "shop.py" in message


def test_no_such_module_tells_where_it_looked(tmp_path):
    message = failure(tmp_path, entrypoint="no_such_shop.orders:pipeline")
    assert "no module 'no_such_shop'" in message and str(tmp_path) in message and "pipeline.path" in message


def test_a_path_that_is_no_directory(tmp_path):
    message = failure(tmp_path, entrypoint="shop:pipeline", path="src")
    assert "pipeline.path 'src' is not a directory" in message and str(tmp_path / "src") in message


def test_no_such_function_names_those_there_are(tmp_path):
    (tmp_path / "shop.py").write_text(PIPELINE + "def other(env): ...\ndef _hidden(): ...\nfrom json import dumps\n")
    message = failure(tmp_path, entrypoint="shop.py:pipelin")
    assert "no function 'pipelin'" in message and "did you mean 'pipeline'?" in message
    assert "(functions: pipeline, other)" in message


def test_something_else_than_a_function(tmp_path):
    (tmp_path / "shop.py").write_text("pipeline = 3\n")
    assert "'pipeline' in shop.py is 3, not a function" in failure(tmp_path, entrypoint="shop.py:pipeline")


def test_an_error_while_importing_shows_the_users_frames_only(tmp_path):
    (tmp_path / "prices.py").write_text("def tax():\n    return 1 / 0\n\nTAX = tax()\n")
    (tmp_path / "shop.py").write_text("import prices\n" + PIPELINE)
    message = failure(tmp_path, entrypoint="shop.py:pipeline")
    assert "could not be imported: ZeroDivisionError: division by zero" in message
    assert "shop.py" in message and "prices.py" in message and "return 1 / 0" in message
    assert "snapshot_engine" not in message and "importlib" not in message


def test_a_missing_import_of_the_users_module_is_not_taken_for_a_missing_module(tmp_path):
    (tmp_path / "shop.py").write_text("import not_installed_here\n" + PIPELINE)
    message = failure(tmp_path, entrypoint="shop:pipeline")
    assert "module 'shop' could not be imported" in message and "No module named 'not_installed_here'" in message


def test_a_syntax_error_shows_the_line(tmp_path):
    (tmp_path / "shop.py").write_text("def pipeline(env:\n")
    message = failure(tmp_path, entrypoint="shop.py:pipeline")
    assert "SyntaxError" in message and "def pipeline(env:" in message and "shop.py" in message


def test_an_error_in_inline_source_shows_its_line(tmp_path):
    message = failure(tmp_path, source="x = 1\ny = x / 0\ndef pipeline(env): ...\n")
    assert "<pipeline.source>" in message and "y = x / 0" in message and "line 2" in message


def test_a_file_that_did_not_load_is_not_left_behind(tmp_path):
    (tmp_path / "broken_shop.py").write_text("raise RuntimeError('no')\n")
    failure(tmp_path, entrypoint="broken_shop.py:pipeline")
    assert "broken_shop" not in sys.modules
