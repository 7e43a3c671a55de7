"""Parallel corpora as data: batches, vocabularies, files."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
import torch

from focalcal.errors import FileFormatError, InputError
from focalcal_lab.data import load_data
from focalcal_lab.translation.sentence_pairs import Pairs, TranslationInputs
from focalcal_lab.translation.toy_language import Language, draw_pairs
from focalcal_lab.translation.vocabulary import BOS, EOS, PAD, BytePairs, Words


@pytest.fixture(scope="module")
def data():
    return load_data("toy-translation", seed=1, num_train=60, num_val=20, num_test=20)


@pytest.fixture
def folder(tmp_path):
    """Parallel text files, one of them gzipped, one with the name that others give it."""
    pairs = draw_pairs(120, seed=0, language=Language(0), noise=0.0)
    for name, part in (("train", pairs[:80]), ("dev", pairs[80:100]), ("test", pairs[100:])):
        for side, language in enumerate(("en", "de")):
            text = "".join(pair[side] + "\n" for pair in part)
            (tmp_path / f"{name}.{language}").write_text(text, encoding="utf-8")
    content = (tmp_path / "train.de").read_bytes()
    (tmp_path / "train.de.gz").write_bytes(gzip.compress(content))
    (tmp_path / "train.de").unlink()
    return tmp_path


def test_a_batch_teaches_each_token_from_those_before_it(data):
    inputs, labels = data.train.__getitems__([3, 0, 7])
    labels = labels.view(3, -1)
    for row, pair in enumerate((3, 0, 7)):
        source, target = data.train.sources[pair].tolist(), data.train.targets[pair].tolist()
        length = len(target) + 1
        assert inputs.source[row, inputs.source_mask[row]].tolist() == [*source, EOS]
        assert (inputs.source[row, ~inputs.source_mask[row]] == PAD).all()
        assert labels[row, :length].tolist() == [*target, EOS]
        assert (labels[row, length:] == -100).all()
        assert inputs.decoder_inputs[row, :length].tolist() == [BOS, *target]
    assert labels.shape == inputs.decoder_inputs.shape


def test_the_loader_of_torch_takes_batches_as_they_are(data):
    loader = torch.utils.data.DataLoader(data.val, batch_size=8, collate_fn=lambda batch: batch)
    sizes = [len(inputs.source) for inputs, _ in loader]
    assert sizes == [8, 8, 4]


def test_inputs_move_as_one(data):
    inputs, _ = data.train.__getitems__([0])
    moved = inputs.to("meta", non_blocking=True)
    assert isinstance(moved, TranslationInputs)
    assert {part.device.type for part in (moved.source, moved.source_mask, moved.decoder_inputs)} == {"meta"}


def test_lightning_moves_inputs_with_their_own_method(data):
    pytest.importorskip("lightning")
    from lightning.fabric.utilities import move_data_to_device

    inputs, labels = move_data_to_device(data.train.__getitems__([0]), torch.device("meta"))
    assert inputs.source.device.type == labels.device.type == "meta"


def test_splits_are_apart_and_words_decode_to_the_text(data):
    assert data.num_classes == data.facts["vocabulary"] == 630
    texts = data.val.texts + data.test.texts
    assert len({source for source, _ in texts}) == 40
    trained = {tuple(data.train.sources[i]) for i in range(60)}
    assert not trained & {tuple(data.test.sources[i]) for i in range(20)}
    for i, (_, target) in enumerate(data.test.texts):
        assert data.facts["decode"]([*data.test.targets[i].tolist(), EOS, 9]) == target
    assert data.facts["longest"] == max(part.longest for part in (data.train, data.val, data.test))


def test_the_seed_draws_other_sentences_of_the_same_language():
    one, two = (load_data("toy-translation", seed=seed, num_train=5, num_val=2, num_test=2) for seed in (0, 1))
    assert one.test.texts != two.test.texts
    assert one.facts["decode"]([9, 10]) == two.facts["decode"]([9, 10])
    with pytest.raises(InputError, match="num_val"):
        load_data("toy-translation", num_val=0)


def test_by_length_visits_every_pair_once_and_pads_little(data):
    batches = list(data.train.by_length(16))
    assert sorted(row for batch in batches for row in batch) == list(range(60))
    padding = [1 - data.train.batch(rows)[0].source_mask.float().mean() for rows in batches]
    mixed = 1 - data.train.batch(range(60))[0].source_mask.float().mean()
    assert np.mean(padding) < mixed / 2


def test_groups_hold_all_pairs_within_their_tokens():
    data = load_data("toy-translation", num_train=200, num_val=5, num_test=5, tokens=100)
    groups = data.train.groups
    assert sorted(pair for group in groups for pair in group) == list(range(200))
    assert len(data.train) == len(groups) < 40
    for index, group in enumerate(groups):
        inputs, labels = data.train.__getitems__([index])
        assert len(inputs.source) == len(group)
        assert max(inputs.source.numel(), len(labels)) <= 100
    again = load_data("toy-translation", num_train=200, num_val=5, num_test=5, tokens=100)
    assert again.train.groups == groups
    _, labels = data.train.__getitems__([0, len(groups) - 1])
    assert (labels != -100).sum() == sum(len(data.train.targets[p]) + 1 for i in (0, -1) for p in groups[i])


def test_a_pair_longer_than_the_tokens_is_a_group_of_its_own():
    pairs = Pairs([np.array([4] * 9), np.array([4])], [np.array([4]), np.array([5])], tokens=4)
    assert sorted(map(sorted, pairs.groups)) == [[0], [1]]


def test_byte_pairs_are_the_same_each_time_and_give_any_text_back(tmp_path):
    texts = [text for pair in draw_pairs(300, seed=0, language=Language(0), noise=0.0) for text in pair]
    pairs, again = (BytePairs.learn(texts, size=400) for _ in range(2))
    pairs.write(tmp_path / "one.json")
    again.write(tmp_path / "two.json")
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()
    read = BytePairs.read(tmp_path / "one.json")
    assert read.size == 400
    for text in (texts[0], "Größe: 3 €, 日本語 <tag>", "two  spaces"):
        tokens = pairs.encode([text])[0].tolist()
        assert read.decode([*tokens, EOS, 5]) == text
        assert min(tokens) >= 4
    assert len(pairs.encode([texts[0]])[0]) < len(texts[0]) / 2
    assert EOS not in pairs.encode(["the <eos> token"])[0]


def test_a_file_that_is_no_vocabulary_is_refused(tmp_path):
    (tmp_path / "v.json").write_text("{}")
    with pytest.raises(FileFormatError, match="tokenizer"):
        BytePairs.read(tmp_path / "v.json")
    other = BytePairs.learn(["a"], size=260)._tokenizer.to_str().replace("<bos>", "<s>")
    (tmp_path / "v.json").write_text(other)
    with pytest.raises(FileFormatError, match="<bos>"):
        BytePairs.read(tmp_path / "v.json")
    with pytest.raises(InputError, match="at least 260"):
        BytePairs.learn(["a"], size=100)


def test_words_must_differ():
    with pytest.raises(InputError, match="1 repeated"):
        Words(["a", "a"])


def test_wmt14_from_files(folder):
    data = load_data("wmt14-en-de", folder, vocabulary_size=300)
    assert (len(data.train), len(data.val), len(data.test), data.num_classes) == (80, 20, 20, 300)
    source, target = data.test.texts[3]
    decode = data.facts["decode"]
    assert decode(data.test.sources[3].tolist()) == source
    assert decode(data.test.targets[3].tolist()) == target
    BytePairs.learn([text for pair in data.test.texts for text in pair], size=300).write(folder / "v.json")
    short = load_data("wmt14-en-de", folder, vocabulary_file="v.json", max_tokens=40)
    assert short.num_classes == 300  # read, not learnt anew with 32,000
    assert 0 < len(short.train) < 80
    assert len(short.test) == 20
    assert short.train.longest <= 41
    for name, said in (("none.json", "must be a file that exists"), ("../v.json", "must not have a slash")):
        with pytest.raises(InputError, match=f"vocabulary_file: {said}"):
            load_data("wmt14-en-de", folder, vocabulary_file=name)


def test_the_validation_text_teaches_the_vocabulary_nothing(folder):
    before = load_data("wmt14-en-de", folder, vocabulary_size=300).train.sources[0].tolist()
    for name in ("dev.en", "dev.de", "test.en", "test.de"):
        (folder / name).write_text("qqqq qqqq\n" * 50)
    assert load_data("wmt14-en-de", folder, vocabulary_size=300).train.sources[0].tolist() == before


def test_files_that_do_not_fit_are_refused(folder):
    with pytest.raises(InputError, match="leave some training pairs"):
        load_data("wmt14-en-de", folder, vocabulary_size=300, max_tokens=1)
    (folder / "test.en").write_text("one line\n")
    with pytest.raises(FileFormatError, match="en has 1, de has 20"):
        load_data("wmt14-en-de", folder, vocabulary_size=300)
    (folder / "test.en").unlink()
    with pytest.raises(InputError, match=r"must hold one of test\.en"):
        load_data("wmt14-en-de", folder, vocabulary_size=300)
    (folder / "train.de.gz").write_bytes(b"no gzip")
    with pytest.raises(FileFormatError, match=r"train\.de\.gz"):
        load_data("wmt14-en-de", folder, vocabulary_size=300)


def test_a_separator_inside_a_sentence_does_not_shift_the_lines(folder):
    lines = (folder / "test.en").read_text().splitlines()
    (folder / "test.en").write_bytes("\n".join([lines[0] + "\u2028x", *lines[1:]]).encode() + b"\n")
    data = load_data("wmt14-en-de", folder, vocabulary_size=300)
    assert data.test.texts[1][0] == lines[1]


def test_wmt14_from_hugging_face(monkeypatch):
    datasets = pytest.importorskip("datasets")
    pairs = draw_pairs(30, seed=0, language=Language(0), noise=0.0)
    rows = datasets.Dataset.from_dict({"translation": [{"de": target, "en": source} for source, target in pairs]})
    asked = []

    def load_dataset(*names):
        asked.append(names)
        return {"train": rows.select(range(20)), "validation": rows.select([20, 21]), "test": rows.select([22])}

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    data = load_data("wmt14-en-de", vocabulary_size=280)
    assert asked == [("wmt/wmt14", "de-en")]
    assert (len(data.train), list(data.val.texts), list(data.test.texts)) == (20, pairs[20:22], pairs[22:23])
    assert data.facts["decode"](data.train.targets[7].tolist()) == pairs[7][1]


def test_without_network_the_way_out_is_named(monkeypatch):
    datasets = pytest.importorskip("datasets")

    def load_dataset(*names):
        raise ConnectionError("no route")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(InputError, match=r"train\.en, train\.de and so on into a folder"):
        load_data("wmt14-en-de")
