"""Images as folders: several under their names, each blob once, and only what a node lacks is sent to it."""

import io
import json
import tarfile

import pytest
from localcluster.oci_layout import CONFIG_TYPE, LAYER_TYPE, MANIFEST_TYPE, OciLayout, write_program_image


@pytest.fixture
def layout(tmp_path):
    return OciLayout(tmp_path / "images")


def add_image(layout, name, *layers):
    """An image of these layers' contents; gives their digests."""
    descriptors = [layout.add(content, LAYER_TYPE) for content in layers]
    config = layout.add(name.encode(), CONFIG_TYPE)
    manifest = json.dumps({"config": config, "layers": descriptors}).encode()
    layout.name_manifest(name, layout.add(manifest, MANIFEST_TYPE))
    return [descriptor["digest"] for descriptor in descriptors]


def archived(layout, name, known=frozenset()):
    output = io.BytesIO()
    layout.write_archive(output, name, set(known))
    output.seek(0)
    with tarfile.open(fileobj=output) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}


def test_a_layout_that_is_not_there_has_no_images(layout):
    assert layout.images() == {}


def test_images_of_different_names_live_side_by_side(layout):
    add_image(layout, "one:dev", b"common", b"a")
    add_image(layout, "two:dev", b"common", b"b")
    assert set(layout.images()) == {"one:dev", "two:dev"}


def test_a_new_image_takes_the_place_of_the_one_that_had_its_name_and_its_layers_go(layout):
    (old,) = add_image(layout, "one:dev", b"old")
    (kept,) = add_image(layout, "two:dev", b"kept")
    (new,) = add_image(layout, "one:dev", b"new")
    layout.remove_unused_blobs()
    assert set(layout.images()) == {"one:dev", "two:dev"}
    assert not layout.blob(old).exists()
    assert layout.blob(kept).exists() and layout.blob(new).exists()


def test_an_archive_holds_one_image_under_its_name(layout):
    add_image(layout, "one:dev", b"a")
    (other,) = add_image(layout, "two:dev", b"b")
    files = archived(layout, "one:dev")
    (descriptor,) = json.loads(files["index.json"])["manifests"]
    assert descriptor["digest"] == layout.images()["one:dev"]
    assert descriptor["annotations"] == {"io.containerd.image.name": "one:dev"}
    assert f"blobs/{other.replace(':', '/')}" not in files


def test_an_archive_leaves_out_what_the_node_has(layout):
    common, changed = add_image(layout, "one:dev", b"common", b"changed")
    files = archived(layout, "one:dev", known={common})
    assert f"blobs/{common.replace(':', '/')}" not in files
    assert files[f"blobs/{changed.replace(':', '/')}"] == b"changed"


def test_a_programs_image_runs_that_program(layout, tmp_path):
    program = tmp_path / "pause"
    program.write_bytes(b"\x7fELF")
    write_program_image(layout, "pause:1", program)
    _, config, layer = layout.digests(layout.images()["pause:1"])
    assert json.loads(layout.blob(config).read_text())["config"] == {"Entrypoint": ["/pause"]}
    with tarfile.open(layout.blob(layer)) as files:
        assert [(member.name, member.mode) for member in files] == [("pause", 0o755)]
