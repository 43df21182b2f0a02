from __future__ import annotations

import gzip
import io
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from ilk.data import hub, sources
from ilk.data.formats import Expected, read_idx
from ilk.errors import IlkError

GREY, RGB, HUNDRED, USPS = (
    Expected((1, 28, 28), 10),
    Expected((3, 32, 32), 10),
    Expected((3, 32, 32), 100),
    Expected((1, 16, 16), 10),
)
TRAIN, TEST = 6, 3


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """No test sees the user's own folders or permissions."""
    monkeypatch.setenv("ILK_CACHE", str(tmp_path / "cache"))
    for variable in ("ILK_DATA", "ILK_DOWNLOAD", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "data"
    made.mkdir()
    return made


def arrays(expected: Expected, seed: int = 0) -> dict[str, np.ndarray]:
    """Made images, channels last as in most files, and labels."""
    random = np.random.default_rng(seed)
    made = {}
    for part, count in (("train", TRAIN), ("test", TEST)):
        made[f"x_{part}"] = random.integers(0, 256, (count, *expected.image), dtype=np.uint8)
        made[f"y_{part}"] = random.integers(0, expected.classes, count, dtype=np.uint8)
    return made


def channel_first(images: np.ndarray) -> np.ndarray:
    return images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)


def idx(array: np.ndarray) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()


IDX_FILES = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}


def write_idx(place: Path, made: dict[str, np.ndarray], *, dot: bool = False, packed: bool = False) -> None:
    place.mkdir(parents=True, exist_ok=True)
    for key, name in IDX_FILES.items():
        name = name.replace("-idx", ".idx") if dot else name
        data = idx(made[key])
        (place / (name + ".gz" if packed else name)).write_bytes(gzip.compress(data) if packed else data)


def write_svhn(place: Path, made: dict[str, np.ndarray]) -> None:
    for part in ("train", "test"):
        labels = np.where(made[f"y_{part}"] == 0, 10, made[f"y_{part}"]).astype(np.uint8)
        savemat(place / f"{part}_32x32.mat", {"X": made[f"x_{part}"].transpose(1, 2, 3, 0), "y": labels[:, None]})


def write_usps(place: Path, lines: list[str]) -> None:
    for name in ("zip.train", "zip.test"):
        (place / name).write_text("\n".join(lines))


def read(name: str, expected: Expected, folder: Path):
    source = sources.in_folder(name, folder, expected)
    assert source is not None
    return source.read()


def assert_holds(splits, made: dict[str, np.ndarray]) -> None:
    for part, split in zip(("train", "test"), splits, strict=True):
        np.testing.assert_array_equal(split.images, channel_first(made[f"x_{part}"]))
        np.testing.assert_array_equal(split.labels, made[f"y_{part}"])
        assert split.images.dtype == np.uint8
        assert split.labels.dtype == np.int64
        assert split.images.flags.c_contiguous


# What each layout holds


@pytest.mark.parametrize(("name", "expected"), [("fashion-mnist", GREY), ("cifar10", RGB), ("usps", USPS)])
def test_npz(folder, name, expected):
    made = arrays(expected)
    np.savez_compressed(folder / f"{name.replace('-', '_')}.npz", **made, idx_train=np.arange(TRAIN))
    assert_holds(read(name, expected, folder), made)


def test_npz_with_lzma_members(folder):
    made = arrays(RGB)
    with zipfile.ZipFile(folder / "svhn.npz", "w", zipfile.ZIP_LZMA) as archive:
        for key, array in made.items():
            data = io.BytesIO()
            np.save(data, array)
            archive.writestr(f"{key}.npy", data.getvalue())
    assert_holds(read("svhn", RGB, folder), made)


def test_idx_header_is_big_endian(tmp_path):
    path = tmp_path / "some"
    path.write_bytes(b"\x00\x00\x08\x02\x00\x00\x00\x02\x00\x00\x00\x03\x01\x02\x03\x04\x05\xff")
    assert read_idx(path).tolist() == [[1, 2, 3], [4, 5, 255]]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dot", [False, True])
@pytest.mark.parametrize("place", ["", "fashion-mnist", "fashion_mnist", "FashionMNIST/raw", "FashionMNIST", "raw"])
def test_idx_wherever_it_lies(folder, place, dot, packed):
    made = arrays(GREY)
    write_idx(folder / place, made, dot=dot, packed=packed)
    assert_holds(read("fashion-mnist", GREY, folder), made)


def test_a_packed_file_is_known_by_its_content(folder):
    made = arrays(GREY)
    write_idx(folder, made, packed=True)
    for path in list(folder.iterdir()):
        path.rename(path.with_suffix(""))
    assert_holds(read("mnist", GREY, folder), made)


def test_cifar10_records_are_a_label_and_three_planes_row_by_row(folder):
    place = folder / "cifar-10-batches-bin"
    place.mkdir()
    for batch in range(1, 6):
        planes = b"".join(bytes([value]) * 1023 + bytes([value + batch]) for value in (10, 20, 30))
        (place / f"data_batch_{batch}.bin").write_bytes((bytes([batch]) + planes) * 2)
    row = bytes([7]) + bytes(range(32)) + bytes(3072 - 32)
    (place / "test_batch.bin").write_bytes(row)
    train, test = read("cifar10", RGB, folder)
    assert train.labels.tolist() == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert train.images[2, :, 0, 0].tolist() == [10, 20, 30]
    assert train.images[2, :, 31, 31].tolist() == [12, 22, 32]
    assert test.images[0, 0, 0].tolist() == list(range(32))
    assert test.images[0, 0, 1:].max() == 0


def test_cifar100_takes_the_fine_label(folder):
    place = folder / "cifar100" / "cifar-100-binary"
    place.mkdir(parents=True)
    for name in ("train.bin", "test.bin"):
        (place / name).write_bytes(bytes([19, 99]) + bytes([1]) * 1024 + bytes([2]) * 1024 + bytes([3]) * 1024)
    train, test = read("cifar100", HUNDRED, folder)
    assert train.labels.tolist() == test.labels.tolist() == [99]
    assert train.images[0, :, 5, 5].tolist() == [1, 2, 3]


def test_svhn_puts_the_samples_last_and_calls_zero_ten(folder):
    made = arrays(RGB)
    made["y_train"][:2] = 0, 9
    write_svhn(folder, made)
    assert_holds(read("svhn", RGB, folder), made)


def test_usps_lines(folder):
    line = " ".join(["6.0000", "-1.0000", "1.0000", "0.0000"] + ["-0.500"] * 253)
    write_usps(folder, [line, line])
    train, _ = read("usps", USPS, folder)
    assert train.labels.tolist() == [6, 6]
    assert train.images[1, 0, 0, :4].tolist() == [0, 255, 128, 64]


# Which source is taken


def test_the_archive_goes_before_the_original_files(folder):
    original, archived = arrays(GREY, seed=1), arrays(GREY, seed=2)
    write_idx(folder, original)
    assert "original files" in sources.in_folder("mnist", folder, GREY).origin
    np.savez(folder / "mnist.npz", **archived)
    assert sources.in_folder("mnist", folder, GREY).origin.endswith("mnist.npz")
    assert_holds(read("mnist", GREY, folder), archived)


def test_a_folder_of_the_name_goes_before_loose_files(folder):
    loose, named = arrays(GREY, seed=1), arrays(GREY, seed=2)
    write_idx(folder, loose)
    write_idx(folder / "MNIST" / "raw", named)
    assert_holds(read("mnist", GREY, folder), named)


def test_mnist_is_not_taken_for_fashion_mnist(folder):
    made = arrays(GREY)
    made["y_train"] = np.array([5, 0, 4, 1, 9, 2, 1, 3, 1, 4], np.uint8)  # how MNIST begins
    made["x_train"] = np.zeros((10, 28, 28), np.uint8)
    write_idx(folder, made, packed=True)
    assert sources.in_folder("mnist", folder, GREY) is not None
    assert sources.in_folder("fashion-mnist", folder, GREY) is None
    with pytest.raises(IlkError, match="another data set's"):
        sources.find("fashion-mnist", GREY, folder, download=False).read()


def test_the_given_folder_goes_before_the_environment(folder, tmp_path, monkeypatch):
    assert sources.data_folder(None) is None
    monkeypatch.setenv("ILK_DATA", str(tmp_path))
    assert sources.data_folder(None) == tmp_path
    assert sources.data_folder(folder) == folder


def test_a_folder_that_does_not_exist_or_is_a_file(tmp_path, monkeypatch):
    with pytest.raises(IlkError, match="missing, given as data folder, does not exist"):
        sources.data_folder(tmp_path / "missing")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ILK_DATA", str(tmp_path / "file"))
    with pytest.raises(IlkError, match="file, named by ILK_DATA, is a file"):
        sources.data_folder(None)


def test_not_found_says_where_it_looked_and_what_to_do(folder):
    write_idx(folder, arrays(GREY))
    (folder / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(IlkError) as caught:
        sources.find("mnist", GREY, folder, download=False).read()
    for needed in (
        str(folder),
        "lacks t10k-labels-idx1-ubyte",
        "mnist.npz",
        "ILK_DATA",
        "--data-dir",
        "pip install 'ilk[hub]'",
        "--download",
        "no download was allowed",
    ):
        assert needed in str(caught.value)


# Bad files


def remove(made, key):
    del made[key]


def cut(made, key):
    made[key] = made[key][:-1]


def put(made, key, array):
    made[key] = array


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda made: remove(made, "y_test"), "has no y_test; it has x_train"),
        (lambda made: cut(made, "y_train"), "x_train has 6 images, but .*y_train 5 labels"),
        (
            lambda made: put(made, "x_test", np.zeros((3, 32, 32), np.uint8)),
            "x_test has the shape 3 x 32 x 32, expected N x 28 x 28",
        ),
        (lambda made: put(made, "x_test", np.zeros((3, 28, 28, 3), np.uint8)), "expected N x 28 x 28"),
        (lambda made: put(made, "x_test", np.zeros(())), "expected uint8"),
        (lambda made: put(made, "x_train", made["x_train"].astype(np.float32)), "type float32, expected uint8"),
        (lambda made: put(made, "y_train", made["y_train"].astype(np.float64)), "type float64, expected N whole"),
        (lambda made: put(made, "y_train", made["y_train"][:, None]), "shape 6 x 1 .*expected N whole"),
        (lambda made: put(made, "y_train", np.full(6, 10)), "labels from 10 to 10, expected 0 to 9"),
        (lambda made: put(made, "y_train", np.full(6, -1)), "labels from -1 to -1"),
        (lambda made: put(made, "y_train", np.array([None] * 6)), "allow_pickle=False"),
        (
            lambda made: made.update(x_test=np.zeros((0, 28, 28), np.uint8), y_test=np.zeros(0, np.uint8)),
            "has no images",
        ),
    ],
)
def test_bad_arrays(folder, damage, says):
    made = arrays(GREY)
    damage(made)
    np.savez(folder / "mnist.npz", **made)
    with pytest.raises(IlkError, match=says) as caught:
        read("mnist", GREY, folder)
    assert str(folder / "mnist.npz") in str(caught.value)


def flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes(255 - byte for byte in data[middle : middle + 64]) + data[middle + 64 :]


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda data: b"", "is empty"),
        (lambda data: b"plain text", "no zip file at all"),
        (lambda data: data[: len(data) // 2], "cut short"),
        (flipped, "cannot be read"),
    ],
)
@pytest.mark.parametrize("packing", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
def test_bad_archives(folder, packing, damage, says):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", packing) as archive:
        for key, array in arrays(GREY).items():
            data = io.BytesIO()
            np.save(data, array)
            archive.writestr(f"{key}.npy", data.getvalue())
    (folder / "mnist.npz").write_bytes(damage(made.getvalue()))
    with pytest.raises(IlkError, match=says) as caught:
        read("mnist", GREY, folder)
    assert "mnist.npz" in str(caught.value)


def test_an_archive_member_that_is_no_array(folder):
    with zipfile.ZipFile(folder / "mnist.npz", "w") as archive:
        for key in arrays(GREY):
            archive.writestr(f"{key}.npy", b"no array")
    with pytest.raises(IlkError, match=r"mnist\.npz"):
        read("mnist", GREY, folder)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda data: b"", "is empty"),
        (lambda data: data[:-1], "cut short or damaged"),
        (lambda data: data + b"\0", "cut short or damaged"),
        (lambda data: data[:6], "cannot be read"),
        (lambda data: b"\0\0", "cannot be read"),
        (lambda data: b"\0\0\x0d" + data[3:], "begins with the bytes 00 00 0d 03"),
        (lambda data: b"\x08\0\0\x03" + data[4:], "begins with"),
        (lambda data: gzip.compress(data)[:-20], "cannot be read"),
        (lambda data: flipped(gzip.compress(data)), "cannot be read"),
        (lambda data: idx(np.zeros((TRAIN, 32, 32), np.uint8)), "shape 6 x 32 x 32, expected N x 28 x 28"),
        (lambda data: idx(np.zeros((TRAIN - 1, 28, 28), np.uint8)), "5 images, but .* 6 labels"),
        (lambda data: idx(np.zeros(TRAIN, np.uint8)), "shape 6, expected N x 28 x 28"),
    ],
)
def test_bad_idx_files(folder, damage, says):
    write_idx(folder, arrays(GREY))
    path = folder / "train-images-idx3-ubyte"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(IlkError, match=says) as caught:
        read("mnist", GREY, folder)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("data", "says"),
    [(b"", "is empty"), (bytes(3072), "expected a multiple of 3073"), (b"\x0a" + bytes(3072), "from 10 to 10")],
)
def test_bad_cifar_batches(folder, data, says):
    for batch in range(1, 6):
        (folder / f"data_batch_{batch}.bin").write_bytes(bytes(3073))
    (folder / "test_batch.bin").write_bytes(bytes(3073))
    (folder / "data_batch_3.bin").write_bytes(data)
    with pytest.raises(IlkError, match=says) as caught:
        read("cifar10", RGB, folder)
    assert "data_batch_3.bin" in str(caught.value)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda path: path.write_bytes(b""), "is empty"),
        (lambda path: path.write_bytes(b"not MATLAB " * 40), "cannot be read"),
        (lambda path: path.write_bytes(path.read_bytes()[:5000]), "cannot be read"),
        (lambda path: savemat(path, {"X": np.zeros((32, 32, 3, 2), np.uint8)}), "has no X and y"),
        (
            lambda path: savemat(path, {"X": np.zeros((32, 32, 3), np.uint8), "y": np.ones((1, 1), np.uint8)}),
            "expected 32 x 32 x 3 x N",
        ),
        (
            lambda path: savemat(path, {"X": np.zeros((32, 32, 3, 1), np.uint8), "y": np.full((1, 1), 11, np.uint8)}),
            "from 11 to 11",
        ),
    ],
)
def test_bad_svhn_files(folder, damage, says):
    write_svhn(folder, arrays(RGB))
    damage(folder / "test_32x32.mat")
    with pytest.raises(IlkError, match=says) as caught:
        read("svhn", RGB, folder)
    assert "test_32x32.mat" in str(caught.value)


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([], "is empty"),
        (["\n"], "cannot be read"),
        (["6 0 0"], "lines of 3 numbers, expected 257"),
        (["6 " + "x " * 256], "cannot be read"),
        (["6 " + "2 " * 256], "outside -1 to 1"),
        (["6 " + "nan " * 256], "outside -1 to 1"),
        (["6.5 " + "0 " * 256], "not whole numbers"),
        (["10 " + "0 " * 256], "from 10 to 10"),
    ],
)
def test_bad_usps_files(folder, lines, says):
    write_usps(folder, lines)
    with pytest.raises(IlkError, match=says) as caught:
        read("usps", USPS, folder)
    assert "zip.train" in str(caught.value)


# The hub


def test_the_hub_is_asked_only_when_allowed_installed_and_online(monkeypatch):
    monkeypatch.setattr(hub, "find_spec", lambda name: object())
    assert hub.refusal(download=False) == "no download was allowed"
    assert hub.refusal(download=True) is None
    monkeypatch.setenv("ILK_DOWNLOAD", "1")
    assert hub.refusal(download=False) is None
    monkeypatch.setattr(hub, "find_spec", lambda name: None)
    assert hub.refusal(download=True) == "the `datasets` library is not installed"
    for switch in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.setenv(switch, "1")
        assert hub.refusal(download=True) == f"{switch} is set"
        monkeypatch.delenv(switch)


def test_the_hub_comes_last(folder):
    assert sources.find("mnist", GREY, folder, download=True).origin == "Hugging Face hub: ylecun/mnist"
    np.savez(folder / "mnist.npz", **arrays(GREY))
    assert sources.find("mnist", GREY, folder, download=True).origin.endswith("mnist.npz")


def png(image: np.ndarray) -> dict[str, bytes | None]:
    from PIL import Image

    data = io.BytesIO()
    Image.fromarray(image).save(data, format="PNG")
    return {"bytes": data.getvalue(), "path": None}


@pytest.fixture
def library(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    pytest.importorskip("PIL")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "huggingface")
    return datasets


def write_parquet(library, folder: Path, copy: hub.HubCopy, made: dict[str, np.ndarray], *, typed: bool) -> hub.HubCopy:
    """Write the hub's layout: with the library's own metadata, or as bare {"bytes", "path"}."""
    (folder / copy.folder).mkdir()
    for part in ("train", "test"):
        columns = {copy.image: [png(image) for image in made[f"x_{part}"]], copy.label: made[f"y_{part}"].tolist()}
        rows = library.Dataset.from_dict(columns | {"other": [0] * len(made[f"y_{part}"])})
        rows = rows.cast_column(copy.image, library.Image()) if typed else rows
        rows.to_parquet(folder / copy.folder / f"{part}-00000-of-00001.parquet")
    (folder / copy.folder / "extra-00000-of-00001.parquet").write_bytes(b"must not be read")
    return replace(copy, repository=str(folder))


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize(("name", "expected"), [("mnist", GREY), ("cifar100", HUNDRED), ("svhn", RGB), ("usps", USPS)])
def test_from_the_hub(library, folder, name, expected, typed):
    made = arrays(expected)
    copy = write_parquet(library, folder, hub.HUB[name], made, typed=typed)
    assert_holds(hub.from_hub(copy, expected), made)


def test_bad_copies_of_the_hub(library, folder):
    copy = write_parquet(library, folder, hub.HUB["cifar10"], arrays(RGB), typed=True)
    with pytest.raises(IlkError, match="has no column digit"):
        hub.from_hub(replace(copy, label="digit"), RGB)
    with pytest.raises(IlkError, match="has an image of"):
        hub.from_hub(copy, GREY)
    with pytest.raises(IlkError, match=r"Expected: parquet files nowhere/train-\*"):
        hub.from_hub(replace(copy, folder="nowhere"), RGB)
