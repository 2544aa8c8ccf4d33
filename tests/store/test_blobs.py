import pytest

from cuda_agent.errors import StoreError
from cuda_agent.store.blobs import Blobs


@pytest.fixture(params=["file", "s3"])
def blobs(request, tmp_path):
    if request.param == "file":
        return Blobs(str(tmp_path / "blobs"))
    return Blobs(request.getfixturevalue("s3_root"))


def test_bytes_come_back_and_equal_content_is_stored_once(blobs):
    first, second = blobs.put_bytes(b"kernel"), blobs.put_bytes(b"kernel")
    assert first == second
    assert first.uri.endswith(first.sha256)
    assert blobs.get_bytes(first.uri, first.sha256) == b"kernel"
    assert blobs.exists(first.uri)


def test_a_folder_comes_back_file_by_file(blobs, tmp_path):
    source = tmp_path / "weights"
    (source / "shards").mkdir(parents=True)
    (source / "config.json").write_text("{}")
    (source / "shards" / "0.bin").write_bytes(bytes(range(256)) * 20_000)
    blob = blobs.put_folder(source)
    assert blob.size == 2 + 256 * 20_000
    copy = blobs.get_folder(blob.uri, tmp_path / "cache" / blob.sha256, blob.sha256)
    assert (copy / "config.json").read_text() == "{}"
    assert (copy / "shards" / "0.bin").read_bytes() == (source / "shards" / "0.bin").read_bytes()
    assert blobs.get_folder(blob.uri, copy) == copy
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [blob.sha256]


def test_a_missing_blob_is_a_store_error(blobs):
    with pytest.raises(StoreError, match="could not read blob"):
        blobs.get_bytes(f"{blobs.root}/aa/{'a' * 64}")


def test_a_damaged_blob_is_refused(tmp_path):
    blobs = Blobs(str(tmp_path))
    blob = blobs.put_bytes(b"weights")
    path = tmp_path / blob.sha256[:2] / blob.sha256
    path.write_bytes(b"wEights")
    with pytest.raises(StoreError, match="digest"):
        blobs.get_bytes(blob.uri)
    with pytest.raises(StoreError, match="digest"):
        blobs.get_file(blob.uri, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_truncated_blob_is_written_again(tmp_path):
    blobs = Blobs(str(tmp_path))
    blob = blobs.put_bytes(b"weights")
    (tmp_path / blob.sha256[:2] / blob.sha256).write_bytes(b"wei")
    assert blobs.get_bytes(blobs.put_bytes(b"weights").uri) == b"weights"


def test_links_and_empty_folders_are_not_stored(tmp_path):
    blobs = Blobs(str(tmp_path / "blobs"))
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError, match="no file"):
        blobs.put_folder(tmp_path / "folder")
    (tmp_path / "folder" / "link").symlink_to("/etc/passwd")
    with pytest.raises(StoreError, match="link"):
        blobs.put_folder(tmp_path / "folder")


def test_links_of_a_named_checkpoint_are_stored_as_their_files(tmp_path):
    (tmp_path / "blob").write_text("weights")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "model.safetensors").symlink_to(tmp_path / "blob")
    blobs = Blobs(str(tmp_path / "store"))
    stored = blobs.put_folder(tmp_path / "folder", follow_links=True)
    copy = blobs.get_folder(stored.uri, tmp_path / "copy") / "model.safetensors"
    assert copy.read_text() == "weights" and not copy.is_symlink()


def test_a_manifest_cannot_write_outside_its_folder(tmp_path):
    blobs = Blobs(str(tmp_path / "blobs"))
    evil = blobs.put_bytes(b'{"../evil":{"sha256":"00","size":1}}')
    with pytest.raises(StoreError, match="outside"):
        blobs.get_folder(evil.uri, tmp_path / "copy")
    assert not (tmp_path / "evil").exists()


def test_an_unwritable_root_names_the_reason(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="could not write blob"):
        Blobs(str(tmp_path / "file")).put_bytes(b"x")
