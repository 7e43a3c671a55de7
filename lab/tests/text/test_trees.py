from __future__ import annotations

import gzip

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from focalcal.errors import FileFormatError, InputError
from focalcal_lab.data import load_data, sst
from focalcal_lab.data.sentiment_trees import Forest, parse_tree, read_trees

# A tree as nested pairs: (label, word) or (label, left, right).
TREES = st.recursive(
    st.tuples(st.integers(0, 4), st.text("abcxyz'", min_size=1, max_size=3)),
    lambda inner: st.tuples(st.integers(0, 4), inner, inner),
    max_leaves=12,
)


def brackets(tree):
    if len(tree) == 2:
        return f"({tree[0]} {tree[1]})"
    return f"({tree[0]} {brackets(tree[1])} {brackets(tree[2])})"


def rebuilt(tree, words=None):
    """The nested pairs again, by the rule that says where children lie."""
    inner = [number for number, word in enumerate(tree.words) if not word]

    def node(number):
        if tree.words[number]:
            return (tree.labels[number], (words or tree.words)[number])
        left = 1 + 2 * inner.index(number)
        return (tree.labels[number], node(left), node(left + 1))

    return node(0)


@given(tree=TREES)
def test_a_tree_read_from_brackets_is_that_tree(tree):
    assert rebuilt(parse_tree(brackets(tree))) == tree


def test_chains_are_one_node_with_the_topmost_label():
    chained = parse_tree("(4 (3 (2 (0 a)) (1 (1 (2 b) (2 c)))))")
    assert rebuilt(chained) == (4, (2, "a"), (1, (2, "b"), (2, "c")))


def test_brackets_and_slashes_are_unescaped_and_a_no_break_space_stays():
    tree = parse_tree("(2 (2 -LRB-) (2 (2 8\u00a01\\/2) (2 \\*\\*)))")
    assert [word for word in tree.words if word] == ["(", "8\u00a01/2", "**"]


def test_a_tree_may_be_deeper_than_pythons_recursion():
    depth = 5_000
    tree = parse_tree("(1 (2 a) " * depth + "(3 b)" + ")" * depth)
    assert len(tree) == 2 * depth + 1
    assert tree.depths[-1] == depth


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(3 (2 a) (2 b)", "a bracket is not closed"),
        ("(3 (2 a) (2 b)))", "after the end of the tree"),
        ("(3 (2 a) (2 b)) (2 c)", "after the end of the tree"),
        ("(3 (2 a) (2 b) (2 c))", "more than two children"),
        ("(x a)", "must begin with a class number, not 'x'"),
        ("(", "must begin with a class number, not ''"),
        ("(3 )", "neither a word nor brackets"),
        ("(3 a b)", "'b' must be alone in its bracket"),
        ("(3 (2 a) b)", "'b' must be alone in its bracket"),
        ("(3 b (2 a))", "both a word and brackets"),
        ("word", "'word' is outside of every bracket"),
        (")", "is outside of every bracket"),
    ],
)
def test_a_wrong_tree_is_named_with_its_line(text, message):
    with pytest.raises(FileFormatError, match=f"train.txt, line 2: .*{message}"):
        read_trees(["(3 fine)", text], "train.txt")


@given(trees=st.lists(TREES, min_size=1, max_size=5), data=st.data())
def test_a_batch_holds_every_node_once_and_children_side_by_side(trees, data):
    parsed = [parse_tree(brackets(tree)) for tree in trees]
    words = [[0 if not word else 10 + number for number, word in enumerate(tree.words)] for tree in parsed]
    chosen = data.draw(st.lists(st.integers(0, len(trees) - 1), min_size=1, max_size=6))
    batch, labels = Forest(parsed, words).batch(chosen, all_nodes=True)
    assert len(batch) == len(chosen)
    assert batch.num_nodes == sum(len(parsed[tree]) for tree in chosen) == len(labels)
    assert labels[: len(chosen)].tolist() == [parsed[tree].labels[0] for tree in chosen]
    # From the bottom up, with lists instead of tensors: each root must become its tree again.
    leaves, order, rows = batch.words.tolist(), batch.order.tolist(), labels.tolist()
    below = []
    for num_inner, num_leaves in reversed(batch.levels):
        size = num_inner + num_leaves
        order, here = order[: len(order) - size], order[len(order) - size :]
        rows, label = rows[: len(rows) - size], rows[len(rows) - size :]
        leaves, level_leaves = leaves[: len(leaves) - num_leaves], leaves[len(leaves) - num_leaves :]
        states = [(below[2 * j], below[2 * j + 1]) for j in range(num_inner)] + [(leaf,) for leaf in level_leaves]
        below = [(label[row], *states[place]) for row, place in enumerate(here)]
    assert below == [rebuilt(parsed[tree], words[tree]) for tree in chosen]


def test_a_tree_batch_moves_to_a_device_as_lightning_moves_it():
    utilities = pytest.importorskip("lightning.fabric.utilities")
    forest = Forest([parse_tree("(1 (0 a) (1 b))")], [[0, 2, 3]])
    batch, labels = utilities.move_data_to_device(forest.batch([0], all_nodes=True), torch.device("meta"))
    assert batch.words.is_meta
    assert batch.order.is_meta
    assert batch.levels == ((1, 0), (0, 2))
    assert labels.is_meta


LINES = {
    "train": ["(3 (2 it) (4 works))", "(2 (2 it) (2 is))", "(0 (2 it) (1 (1 not) (2 works)))"],
    "dev": ["(4 (2 it) (3 shines))", "(2 so)"],
    "test": ["(1 (2 not) (2 seen))"],
}


def _write(folder, pattern):
    for split, lines in LINES.items():
        path = folder / pattern.format(split)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "\n".join(lines).encode() + b"\n\n"
        path.write_bytes(gzip.compress(text) if pattern.endswith(".gz") else text)


@pytest.mark.parametrize("pattern", ["{}.txt", "sst_{}.txt.gz", "trees/{}.txt", "{}.txt.gz"])
def test_the_files_are_found_by_their_usual_names(tmp_path, pattern):
    _write(tmp_path, pattern)
    data = load_data("sst-binary", tmp_path, min_count=1)
    assert [len(part) for part in (data.train, data.val, data.test)] == [2, 1, 1]
    assert (data.num_classes, data.facts["node_classes"], data.facts["root_classes"]) == (2, 3, (0, 2))
    batch, labels = data.train.__getitems__([0, 1])
    assert batch.all_nodes
    assert labels.tolist() == [2, 0, 1, 2, 1, 0, 0, 1]  # the roots, then their children, then the last two leaves
    batch, labels = data.val.__getitems__([0])
    assert not batch.all_nodes
    assert labels.tolist() == [1]
    # it, works, not: "is" is in a neutral sentence only, "shines" and "seen" in no training sentence.
    assert data.facts["vocabulary"] == 2 + 3
    assert batch.words.tolist() == [2, 1]


def test_rare_words_are_unknown_so_that_there_is_something_to_learn(tmp_path):
    _write(tmp_path, "{}.txt")
    data = load_data("sst-binary", tmp_path)
    assert data.facts["vocabulary"] == 2 + 2
    assert data.train.__getitems__([1])[0].words.tolist() == [2, 1, 3]


def test_vectors_bring_words_of_other_splits_into_the_vocabulary(tmp_path):
    _write(tmp_path, "{}.txt")
    (tmp_path / "glove.txt").write_text("it 1 2\nshines 3 4\n")
    data = load_data("sst-binary", tmp_path, vectors="glove.txt")
    assert data.facts["vectors"].shape == (2 + 3 + 1, 2)
    (word,) = data.val.__getitems__([0])[0].words[1:].tolist()
    assert data.facts["vectors"][word].tolist() == [3.0, 4.0]


def test_the_hub_is_asked_without_a_folder(monkeypatch):
    datasets = pytest.importorskip("datasets")
    names = {"train": "train", "dev": "validation", "test": "test"}

    def load_dataset(name, config, revision):
        assert (name, config) == ("stanfordnlp/sst", "ptb")
        return {names[split]: datasets.Dataset.from_dict({"ptb_tree": lines}) for split, lines in LINES.items()}

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    data = load_data("sst-binary")
    assert [len(part) for part in (data.train, data.val, data.test)] == [2, 1, 1]


@pytest.mark.parametrize(
    ("text", "message"), [("", "it has no trees"), ("(5 a)\n", "tree 1 has 5"), ("(3 a", "line 1")]
)
def test_a_wrong_file_is_refused(tmp_path, text, message):
    _write(tmp_path, "{}.txt")
    (tmp_path / "dev.txt").write_text(text)
    with pytest.raises(FileFormatError, match=message):
        load_data("sst-binary", tmp_path)


def test_a_missing_file_is_named(tmp_path):
    _write(tmp_path, "{}.txt")
    (tmp_path / "test.txt").unlink()
    with pytest.raises(InputError, match=r"must hold the file test\.txt"):
        load_data("sst-binary", tmp_path)


@pytest.mark.slow
def test_the_real_treebank_has_the_published_sizes(real_data):
    data = load_data("sst-binary", real_data)
    assert [len(part) for part in (data.train, data.val, data.test)] == [6_920, 872, 1_821]
    roots = data.train.forest.root_labels
    assert np.bincount(roots, minlength=3).tolist() == [3_310, 0, 3_610]
    labels = torch.cat([data.test.__getitems__(range(i, min(i + 500, 1_821)))[1] for i in range(0, 1_821, 500)])
    assert torch.bincount(labels).tolist() == [912, 909]
    assert sst.SENTIMENT.tolist() == [0, 0, 1, 2, 2]
