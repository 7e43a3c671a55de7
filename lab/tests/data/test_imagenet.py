from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from PIL import Image
from torch.utils.data import DataLoader

from focalcal.errors import FileFormatError, InputError
from focalcal_lab.data import DataSplits, TensorRows, load_data
from focalcal_lab.data.image_files import CenterView, ImageDataset, RandomView, random_box
from lab.tests.data.formats import hub_splits, sample

WNIDS = ("n01443537", "n01629819", "n01641577")


def _picture(seed: int, width: int, height: int) -> Image.Image:
    """A smooth picture, so that JPEG keeps it nearly as it is."""
    generator = np.random.default_rng(seed)
    small = generator.integers(0, 256, (4, 4, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


def _tiny(folder: Path, per_class: int = 10) -> Path:
    """Tiny-ImageNet's layout with three classes."""
    for number, wnid in enumerate(WNIDS):
        place = folder / "train" / wnid / "images"
        place.mkdir(parents=True)
        (folder / "train" / wnid / f"{wnid}_boxes.txt").write_text("box\n")
        for each in range(per_class):
            _picture(100 * number + each, 64, 64).save(place / f"{wnid}_{each}.JPEG", quality=95)
    (folder / "val" / "images").mkdir(parents=True)
    lines = []
    for each in range(6):
        _picture(1000 + each, 64, 64).convert("L" if each == 0 else "RGB").save(folder / f"val/images/val_{each}.JPEG")
        lines.append(f"val_{each}.JPEG\t{WNIDS[(each * 2) % 3]}\t0\t0\t62\t62")
    (folder / "val" / "val_annotations.txt").write_text("\n".join(reversed(lines)) + "\n")
    (folder / "words.txt").write_text(f"{WNIDS[0]}\tgoldfish, Carassius auratus\nn99999999\tunknown\n")
    return folder


def _all(part: Any) -> tuple[torch.Tensor, torch.Tensor]:
    inputs, labels = part.__getitems__(range(len(part)))
    return inputs, labels


def test_tiny_imagenet_keeps_a_tenth_of_each_class_and_tests_on_the_validation_folder(tmp_path: Path) -> None:
    _tiny(tmp_path / "tiny-imagenet-200")
    data = load_data("tiny-imagenet", tmp_path, seed=3, num_classes=3)
    assert (len(data.train), len(data.val), len(data.test)) == (27, 3, 6)
    assert data.val.labels.bincount().tolist() == [1, 1, 1]
    assert data.train.labels.bincount().tolist() == [9, 9, 9]
    assert data.test.labels.tolist() == [0, 2, 1, 0, 2, 1]
    assert data.class_names == ("goldfish", *WNIDS[1:])
    assert dict(data.facts) == {"channels": 3, "size": 64}
    assert isinstance(data.train, TensorRows)
    with Image.open(tmp_path / "tiny-imagenet-200/val/images/val_3.JPEG") as image:
        np.testing.assert_array_equal(data.test.inputs[3], np.asarray(image).transpose(2, 0, 1))
    grey = data.test.inputs[0]
    assert torch.equal(grey[0], grey[1])
    assert "27/3/6" in data.about
    assert "seed 3" in data.about


def test_decoding_when_needed_gives_what_decoding_at_once_gives(tmp_path: Path) -> None:
    folder = _tiny(tmp_path)
    once = load_data("tiny-imagenet", folder, num_classes=3, in_memory=True)
    lazy = load_data("tiny-imagenet", folder, num_classes=3, in_memory=False)
    assert isinstance(lazy.train, ImageDataset)
    for first, second in ((once.train, lazy.train), (once.val, lazy.val), (once.test, lazy.test)):
        for one, two in zip(_all(first), _all(second), strict=True):
            assert torch.equal(one, two)
    image, label = lazy.train[4]
    assert torch.equal(image, once.train.inputs[4])
    assert int(label) == int(once.train.labels[4])


def test_what_does_not_fit_in_memory_stays_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = _tiny(tmp_path)
    pages = {"SC_PHYS_PAGES": 100, "SC_PAGE_SIZE": 4096}  # 400 kB: 27 images of 12 kB are too many, six are not
    monkeypatch.setattr("os.sysconf", lambda name: pages[name])
    data = load_data("tiny-imagenet", folder, num_classes=3)
    assert isinstance(data.train, ImageDataset)
    assert isinstance(data.test, TensorRows)


def test_a_damaged_jpeg_is_named(tmp_path: Path) -> None:
    folder = _tiny(tmp_path)
    bad = folder / "train" / WNIDS[1] / "images" / f"{WNIDS[1]}_2.JPEG"
    bad.write_bytes(bad.read_bytes()[:200])
    with pytest.raises(FileFormatError, match=f"{WNIDS[1]}_2.JPEG: is not a readable image"):
        load_data("tiny-imagenet", folder, num_classes=3)


def test_wrong_annotations_are_named(tmp_path: Path) -> None:
    folder = _tiny(tmp_path)
    with pytest.raises(InputError, match="must have 200 class folders; got 3"):
        load_data("tiny-imagenet", folder)
    labels = folder / "val" / "val_annotations.txt"
    good = labels.read_text()
    labels.write_text(good.replace("val_0.JPEG", "val_9.JPEG"))
    with pytest.raises(FileFormatError, match=r"val_annotations\.txt: has no line for val_0\.JPEG"):
        load_data("tiny-imagenet", folder, num_classes=3)
    labels.write_text(good + "val_7.JPEG\tn00000000\n")
    with pytest.raises(FileFormatError, match=r"val_annotations\.txt, line 7: must name a class of .*; got n00000000"):
        load_data("tiny-imagenet", folder, num_classes=3)


# ImageNet ------------------------------------------------------------------------------------------------------------


def _imagenet(folder: Path, *, flat: bool = False) -> Path:
    for number, wnid in enumerate(WNIDS):
        for split, count in (("train", 4), ("val", 4)):
            place = folder / split if flat and split == "val" else folder / split / wnid
            place.mkdir(parents=True, exist_ok=True)
            for each in range(count):
                size = (300 + 20 * each, 200) if each % 2 else (150, 220 + each)
                name = f"ILSVRC2012_val_{number}{each}" if split == "val" else f"{wnid}_{each}"
                _picture(hash((split, number, each)) % 1000, *size).save(place / f"{name}.JPEG")
    return folder


def _loaded(folder: Path, **options: Any) -> DataSplits:
    return load_data("imagenet", folder, image_size=32, resize=40, **options)


def test_imagenet_s_validation_images_are_split_in_halves(tmp_path: Path) -> None:
    data = _loaded(_imagenet(tmp_path), seed=2)
    assert (len(data.train), len(data.val), len(data.test)) == (12, 6, 6)
    names = {data.val.encoded.name(row) for row in range(6)} | {data.test.encoded.name(row) for row in range(6)}
    assert len(names) == 12
    assert all("/val/" in name for name in names)
    inputs, labels = _all(data.test)
    assert inputs.shape == (6, 3, 32, 32)
    assert inputs.dtype == torch.uint8
    assert labels.tolist() == [WNIDS.index(Path(data.test.encoded.name(row)).parent.name) for row in range(6)]
    order = np.random.default_rng(2).permutation(12)
    assert data.val.encoded.name(0) == sorted(str(path) for path in tmp_path.glob("val/*/*"))[min(order[:6])]
    assert data.augment is None
    assert "12/6/6" in data.about
    few = _loaded(tmp_path, seed=2, num_train=5, num_val=2, num_test=3)
    assert (len(few.train), len(few.val), len(few.test)) == (5, 2, 3)


@pytest.mark.parametrize("kind", ["csv", "wnid", "number"])
def test_labels_may_lie_in_a_file(kind: str, tmp_path: Path) -> None:
    folder = _imagenet(tmp_path / "ILSVRC" / "Data" / "CLS-LOC", flat=True)
    stems = [f"ILSVRC2012_val_{number}{each}" for number in range(3) for each in range(4)]
    if kind == "csv":
        lines = ["ImageId,PredictionString", *(f"{stem},{WNIDS[int(stem[15])]} 85 1 499 272" for stem in stems)]
        (tmp_path / "LOC_val_solution.csv").write_text("\n".join(lines))
    elif kind == "wnid":
        (folder / "val" / "val_annotations.txt").write_text("\n".join(f"{s}.JPEG {WNIDS[int(s[15])]}" for s in stems))
    else:
        (folder / "val.txt").write_text("\n".join(f"{stem}.JPEG {stem[15]}" for stem in stems))
    data = _loaded(tmp_path)
    for part in (data.val, data.test):
        assert part.labels.tolist() == [int(Path(part.encoded.name(row)).stem[15]) for row in range(len(part))]


def test_a_flat_validation_folder_without_labels_says_what_is_missing(tmp_path: Path) -> None:
    folder = _imagenet(tmp_path, flat=True)
    (folder / "ILSVRC2012_validation_ground_truth.txt").write_text("1\n" * 12)
    with pytest.raises(InputError, match="has no class folders, so it needs a file of labels"):
        _loaded(folder)
    with pytest.raises(InputError, match="folder: must have ImageNet; found none"):
        _loaded(folder / "train")


def test_random_crops_depend_on_seed_epoch_and_index_only(tmp_path: Path) -> None:
    data = _loaded(_imagenet(tmp_path), seed=1)
    train = data.train

    def epoch(number: int, workers: int, order: Sequence[int] = range(12)) -> torch.Tensor:
        train.set_epoch(number)
        batches = [order[start : start + 4] for start in range(0, 12, 4)]
        loader: Any = DataLoader(train, batch_sampler=batches, num_workers=workers, collate_fn=lambda batch: batch)
        inputs = torch.cat([batch[0] for batch in loader])
        return inputs[torch.as_tensor(order).argsort()]

    first = epoch(0, 0)
    torch.manual_seed(99)
    assert torch.equal(epoch(0, 2), first)
    assert torch.equal(epoch(0, 0, list(reversed(range(12)))), first)
    second = epoch(1, 0)
    assert all(not torch.equal(one, two) for one, two in zip(first, second, strict=True))
    again = _loaded(tmp_path, seed=1).train
    again.set_epoch(1)
    assert torch.equal(again.__getitems__(range(12))[0], second)
    other = _loaded(tmp_path, seed=8).train
    assert not torch.equal(other.__getitems__(range(12))[0], first)


def test_workers_that_live_on_see_the_new_epoch(tmp_path: Path) -> None:
    train = _loaded(_imagenet(tmp_path)).train
    loader: Any = DataLoader(
        train, batch_sampler=[[0, 1, 2]], num_workers=1, persistent_workers=True, collate_fn=lambda batch: batch
    )
    for number in (0, 3):
        train.set_epoch(number)
        seen = next(iter(loader))[0]
        assert torch.equal(seen, train.__getitems__([0, 1, 2])[0])


def test_without_augmentation_training_sees_the_middle(tmp_path: Path) -> None:
    data = _loaded(_imagenet(tmp_path), augment=False)
    assert data.train.view == CenterView(32, 40)


@given(st.integers(1, 500), st.integers(1, 500), st.integers(0, 100))
def test_a_random_box_lies_within_the_image_and_has_the_stated_shape(width: int, height: int, seed: int) -> None:
    left, top, right, bottom = random_box(width, height, np.random.default_rng(seed))
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height
    wide, tall = right - left, bottom - top
    # Sides are rounded to whole pixels, so the limits 3:4 and 4:3 hold for sides half a pixel off.
    assert (wide - 0.5) / (tall + 0.5) <= 4 / 3
    assert (wide + 0.5) / (tall - 0.5) >= 3 / 4


def test_random_boxes_spread_over_areas_and_places() -> None:
    generator = np.random.default_rng(0)
    boxes = np.array([random_box(500, 400, generator) for _ in range(4000)])
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]) / (500 * 400)
    assert 0.075 < areas.min() < 0.1
    assert areas.max() > 0.9
    middle = (boxes[:, 0] + boxes[:, 2]).mean() / 2, (boxes[:, 1] + boxes[:, 3]).mean() / 2
    assert middle == pytest.approx((250, 200), abs=5)
    small = areas[areas < 0.5]  # all of these fit whatever their shape, so they are uniform
    assert small.mean() == pytest.approx(0.29, abs=0.01)


def test_a_random_view_is_the_box_scaled_and_sometimes_mirrored() -> None:
    picture = _picture(5, 120, 90)
    mirrored = 0
    for index in range(40):
        generator = np.random.default_rng([7, 2, index])
        box = random_box(120, 90, generator)
        expected = np.asarray(picture.resize((16, 16), Image.Resampling.BILINEAR, box=box))
        flip = generator.random() < 0.5
        mirrored += flip
        result = RandomView(16, seed=7)(picture, 2, index).transpose(1, 2, 0)
        np.testing.assert_array_equal(result, expected[:, ::-1] if flip else expected)
    assert 8 < mirrored < 32


def test_the_middle_is_cut_after_the_shorter_side_was_scaled() -> None:
    picture = Image.fromarray(np.tile(np.arange(200, dtype=np.uint8), (100, 1)))  # brightness is the column
    result = CenterView(size=40, resize=50, channels=1)(picture)
    assert result.shape == (1, 40, 40)
    # 200 x 100 becomes 100 x 50; columns 30 to 69 remain, which were at 60.5, 62.5 ... 138.5.
    np.testing.assert_allclose(result[0, 20], np.arange(40) * 2 + 60.5, atol=1.01)


def test_sixteen_bits_are_scaled_not_cut() -> None:
    picture = Image.fromarray(np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8))
    result = CenterView(8, 8, channels=1)(picture)
    np.testing.assert_array_equal(result.ravel(), (np.linspace(0, 65535, 64).astype(int) >> 8))


def test_imagenet_is_read_from_a_saved_set(tmp_path: Path) -> None:
    import datasets

    splits = hub_splits(sample(num_classes=3, per_class=4, test_per_class=4), image="image", names=WNIDS)
    datasets.DatasetDict({"train": splits["train"], "validation": splits["test"]}).save_to_disk(str(tmp_path / "saved"))
    data = load_data("imagenet", tmp_path / "saved", image_size=16, resize=20)
    assert (len(data.train), len(data.val), len(data.test)) == (12, 6, 6)
    assert data.class_names == WNIDS
    assert _all(data.train)[0].shape == (12, 3, 16, 16)
    splits.save_to_disk(str(tmp_path / "other"))
    with pytest.raises(InputError, match="needs the splits train and validation; other has train, test"):
        load_data("imagenet", tmp_path / "other")


def test_sizes_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"image_size: must lie in 1\.\.resize=40; got 64"):
        load_data("imagenet", _imagenet(tmp_path), image_size=64, resize=40)
