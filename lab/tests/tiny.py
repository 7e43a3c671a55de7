"""Every public data set in a form that it is published in, with a few samples each; and a recipe that runs at once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.io import savemat

from focalcal_lab.translation.toy_language import Language, draw_pairs

from .data.formats import mnist_files, sample, write_files

# Three epochs of ten batches, in a fraction of a second.
QUICK = """
recipe:
  name: quick
  about: A small network on three Gaussian classes.
  data: {name: gaussian-mixture, options: {num_classes: 3, features: 2, train_size: 100, val_size: 60, test_size: 60}}
  model: {name: mlp, options: {hidden: [4]}}
  methods:
    ce: {loss: ce}
    mmce: {loss: mmce}
    fl-2: {loss: fl-2}
    flsc-531: {loss: flsc-531}
    adafocal: {loss: adafocal, options: {num_bins: 5}}
    adafocal-1: {loss: adafocal, options: {num_bins: 5}, every: 1}
  training: {epochs: 3, batch_size: 10, optimizer: {name: adam, lr: 0.01}, milestones: [2]}
  measurement:
    num_bins: 5
    calibrators:
      - {phase: post, method: temperature, criterion: nll}
      - {phase: ets, method: ensemble-temperature}
      - {phase: psi, method: focal, options: {gamma: trained}}
"""
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "a", "of", "space", "car", "god", "game"]


def write_data(name: str, folder: Path) -> Path | None:
    """Write a small version of a data set; None if it needs no files."""
    writers = {
        "cifar10": cifar10,
        "cifar10-s": cifar10,
        "cifar10-c": cifar10_c,
        "cifar100": cifar100,
        "mnist": mnist,
        "svhn": svhn,
        "tiny-imagenet": tiny_imagenet,
        "imagenet": imagenet,
        "20newsgroups": newsgroups,
        "20newsgroups-bert": newsgroups,
        "sst-binary": sst,
        "wmt14-en-de": parallel_text,
        "own": own,
    }
    if name not in writers:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    writers[name](folder)
    return folder


def pictures(number: int, size: int = 32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (number, size, size, 3), dtype=np.uint8)


def arrays(path: Path, classes: int, each: int) -> None:
    labels = np.tile(np.arange(classes), each)
    images = pictures(len(labels))
    np.savez(path, train_images=images, train_labels=labels, test_images=images, test_labels=labels)


def cifar10(folder: Path) -> None:
    arrays(folder / "cifar10.npz", 10, 20)


def cifar100(folder: Path) -> None:
    arrays(folder / "cifar100.npz", 100, 10)


def cifar10_c(folder: Path) -> None:
    np.save(folder / "gaussian_noise.npy", np.tile(pictures(20), (5, 1, 1, 1)))
    np.save(folder / "labels.npy", np.tile(np.arange(10), 10))


def mnist(folder: Path) -> None:
    write_files(folder, mnist_files(sample(shape=(28, 28))))


def svhn(folder: Path) -> None:
    for split in ("train", "test"):
        labels = np.tile(np.arange(1, 11), 10)[:, None]
        savemat(folder / f"{split}_32x32.mat", {"X": pictures(len(labels)).transpose(1, 2, 3, 0), "y": labels})


def jpeg(path: Path, size: int, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pictures(1, size, seed)[0]).save(path)


def tiny_imagenet(folder: Path) -> None:
    names = [f"n{number:08d}" for number in range(3)]
    (folder / "wnids.txt").write_text("\n".join(names) + "\n")
    lines = []
    for number, name in enumerate(names):
        for place in range(60):
            jpeg(folder / f"train/{name}/images/{name}_{place}.JPEG", 64, place)
        jpeg(folder / f"val/images/val_{number}.JPEG", 64, number)
        lines.append(f"val_{number}.JPEG\t{name}\t0\t0\t63\t63")
    (folder / "val/val_annotations.txt").write_text("\n".join(lines) + "\n")


def imagenet(folder: Path) -> None:
    for split in ("train", "val"):
        for number in range(3):
            for place in range(4):
                jpeg(folder / f"{split}/n{number:08d}/{place}.JPEG", 240, place)


def newsgroups(folder: Path) -> None:
    vectors(folder / "glove.6B.100d.txt", 100)
    with open(folder / "20newsgroups.jsonl", "w", encoding="utf-8") as file:
        for split, each in (("train", 50), ("test", 2)):
            for label in range(20):
                for number in range(each):
                    body = f"the space of word{label} and a car, a game, god {number}\n" * 3
                    row = {
                        "split": split,
                        "label": label,
                        "group": f"group.{label:02d}",
                        "id": f"{split}{label}-{number}",
                    }
                    file.write(json.dumps({**row, "text": f"From: someone\nSubject: {number}\n\n{body}"}) + "\n")


def vectors(path: Path, dimension: int) -> None:
    numbers = " ".join(["0.1"] * dimension)
    path.write_text("".join(f"{word} {numbers}\n" for word in ("the", "good", "bad", "car")))


def sst(folder: Path) -> None:
    trees = ["(3 (2 It) (4 (2 's) (4 good)))", "(1 (2 (2 So) (1 bad)) (2 .))", "(4 (4 Great) (3 (2 fun) (2 !)))"] * 8
    vectors(folder / "glove.840B.300d.txt", 300)
    for split in ("train", "dev", "test"):
        (folder / f"{split}.txt").write_text("\n".join(trees) + "\n")


def parallel_text(folder: Path) -> None:
    for seed, (split, count) in enumerate((("train", 120), ("val", 20), ("test", 20))):
        pairs = draw_pairs(count, seed=seed, language=Language(0), noise=0.0)
        for side, language in enumerate(("en", "de")):
            (folder / f"{split}.{language}").write_text("\n".join(pair[side] for pair in pairs) + "\n")


def own(folder: Path, each: int = 30, size: int = 24) -> None:
    """Classes that can be told apart, also when mirrored: a bright stripe above, in the middle or below."""
    generator = np.random.default_rng(0)
    for number, name in enumerate(("above", "below", "middle")):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for place in range(each):
            image = generator.integers(0, 120, (size, size, 3), dtype=np.uint8)
            start = (0, 2 * size // 3, size // 3)[number]
            image[start : start + size // 3] += 100
            Image.fromarray(image).save(folder / name / f"{place:03d}.png")


def tokenizer(folder: Path) -> Path:
    """A WordPiece tokenizer of twelve pieces, as a hub would give it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    return folder
