from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from focalcal.errors import InputError
from focalcal.losses.table import make_loss
from focalcal_lab.data import load_data
from focalcal_lab.data.sentiment_trees import Forest, parse_tree
from focalcal_lab.data.tokens import MaskedTokens
from focalcal_lab.models import make_model


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


def two_steps(network, inputs, labels, lr):
    """The losses before, after one and after two steps, with dropout off so that nothing is random."""
    network.eval()
    loss, optimizer = make_loss("flsd-53"), torch.optim.Adam(network.parameters(), lr=lr)
    found = []
    for _ in range(3):
        value = loss(network(inputs), labels)
        found.append(value.item())
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    return found


# ---------------------------------------------------------------- global-pooling CNN

TEXT_FACTS = {"vocabulary": 50, "vectors": None}


def documents(lengths, width):
    """Random documents of some lengths, padded at the left."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(1, 50, (len(lengths), width), generator=generator)
    return tokens.masked_fill(torch.arange(width) < width - torch.tensor(lengths)[:, None], 0)


def plain_gp_cnn(network, tokens):
    """The network as it is defined, every column of every row."""
    features = network.embedding(tokens).transpose(1, 2)
    first, second, third = network.convolutions
    features = F.max_pool1d(F.relu(first(features)), 5, network.stride)
    features = F.max_pool1d(F.relu(second(features)), 5, network.stride)
    pooled = F.relu(third(features)).max(dim=2).values
    return network.head(F.relu(network.hidden(pooled)))


@pytest.mark.parametrize("stride", [1, 5])
def test_leaving_out_padding_changes_no_logit_and_no_gradient(stride):
    torch.manual_seed(0)
    network = make_model("gp-cnn", 4, TEXT_FACTS, dimension=6, filters=7, hidden=5, stride=stride).double().eval()
    nn.init.normal_(network.convolutions[0].bias)  # so that windows of padding are not all zero
    nn.init.normal_(network.convolutions[2].bias)
    lengths = [0, 1, 3, 21, 22, 40, 77, 150, 199, 200, *range(5, 60, 2)]
    tokens = documents(lengths, 200)
    assert len({cut for _, cut in network._groups(tokens)[1]}) > 1
    logits, plain = network(tokens), plain_gp_cnn(network, tokens)
    torch.testing.assert_close(logits, plain, rtol=0, atol=1e-12)
    labels = torch.arange(len(lengths)) % 4
    grads = [torch.autograd.grad(F.cross_entropy(x, labels), list(network.parameters())) for x in (logits, plain)]
    for ours, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    alone = torch.cat([network(tokens[row : row + 1]) for row in range(len(lengths))])
    torch.testing.assert_close(logits, alone, rtol=0, atol=1e-12)


def test_gp_cnn_has_the_released_codes_parameters():
    network = make_model("gp-cnn", 20, {"vocabulary": 20_000, "vectors": torch.randn(20_000, 100)})
    assert (
        count(network) - count(network.embedding)
        == (100 * 5 * 128 + 128) + 2 * (128 * 5 * 128 + 128) + 128 * 129 + 20 * 129
    )
    assert network.receptive_field == 21
    assert make_model("gp-cnn", 20, TEXT_FACTS, stride=5).receptive_field == 149
    assert isinstance(network.head, nn.Linear)


@pytest.mark.parametrize(("vectors", "tune", "learned"), [(None, None, True), (True, None, False), (True, True, True)])
def test_vectors_of_a_file_stay_unless_they_are_to_be_tuned(vectors, tune, learned):
    matrix = torch.randn(50, 100) if vectors else None
    network = make_model("gp-cnn", 3, {"vocabulary": 50, "vectors": matrix}, tune=tune)
    assert network.embedding.weight.requires_grad is learned
    before = network.embedding.weight.detach().clone()
    assert matrix is None or torch.equal(before, matrix)
    optimizer = torch.optim.SGD([p for p in network.parameters() if p.requires_grad], lr=1.0)
    network(documents([30, 8], 30)).sum().backward()
    optimizer.step()
    assert torch.equal(before, network.embedding.weight) is not learned
    assert torch.equal(before[0], network.embedding.weight[0])


def test_gp_cnn_refuses_texts_that_are_too_narrow_and_facts_of_images():
    with pytest.raises(InputError, match="at least 21 columns; got 20"):
        make_model("gp-cnn", 3, TEXT_FACTS)(torch.zeros(2, 20, dtype=torch.long))
    with pytest.raises(InputError, match="facts: must say how large the vocabulary is"):
        make_model("gp-cnn", 3, {"channels": 3})


def test_gp_cnn_losses_of_two_steps():
    torch.manual_seed(0)
    network = make_model("gp-cnn", 4, TEXT_FACTS, dimension=6, filters=8, hidden=8).double()
    found = two_steps(network, documents([30, 8, 60, 1], 60), torch.tensor([0, 1, 2, 3]), 0.01)
    assert found == pytest.approx(GP_CNN_LOSSES, rel=1e-6)


# ---------------------------------------------------------------- Tree-LSTM

LINES = [
    "(3 (2 (2 a) (3 (1 b) (0 c))) (4 (4 d) (2 e)))",
    "(1 f)",
    "(0 (1 a) (0 (2 b) (1 (1 g) (2 (2 h) (2 a)))))",
    "(4 (2 c) (4 d))",
]
TREE_FACTS = {"vocabulary": 12, "vectors": None, "node_classes": 3, "root_classes": (0, 2)}


def forest(lines):
    trees = [parse_tree(line) for line in lines]
    return Forest(trees, [["?abcdefghij".find(word) + 1 if word else 0 for word in tree.words] for tree in trees])


def node_by_node(network, tree, words):
    """Every node's hidden state, in the tree's order: Eq. 9-14 of tai2015, one node at a time."""
    size = network.hidden
    inner = [number for number, word in enumerate(tree.words) if not word]
    found = {}

    def visit(number):
        if tree.words[number]:
            x = network.embedding(torch.tensor([words[number]]))[0]
            cell_weight, gate_weight = network.leaf.weight[:size], network.leaf.weight[size:]
            c = cell_weight @ x + network.leaf.bias[:size]
            h = torch.sigmoid(gate_weight @ x + network.leaf.bias[size:]) * torch.tanh(c)
        else:
            left = 1 + 2 * inner.index(number)
            (cl, hl), (cr, hr) = visit(left), visit(left + 1)

            def gate(k):
                rows = slice(k * size, (k + 1) * size)
                weight = network.compose.weight[rows]
                return weight[:, :size] @ hl + weight[:, size:] @ hr + network.compose.bias[rows]

            u, i, fl, fr = torch.tanh(gate(0)), torch.sigmoid(gate(1)), torch.sigmoid(gate(2)), torch.sigmoid(gate(3))
            c = i * u + fl * cl + fr * cr
            h = torch.sigmoid(gate(4)) * torch.tanh(c) if network.output_gate else torch.tanh(c)
        found[number] = h
        return c, h

    visit(0)
    return [found[number] for number in range(len(tree))]


@pytest.mark.parametrize("output_gate", [True, False])
def test_the_tree_lstm_agrees_with_one_node_at_a_time(output_gate):
    torch.manual_seed(0)
    options = {"hidden": 7, "dimension": 5, "output_gate": output_gate}
    network = make_model("tree-lstm", 2, TREE_FACTS, **options).double().eval()
    trees, data = [parse_tree(line) for line in LINES], forest(LINES)
    chosen = [2, 0, 1, 3, 0]
    words = [data.words.values[a:b].tolist() for a, b in zip(data.words.starts, data.words.starts[1:], strict=False)]
    states = [node_by_node(network, trees[tree], words[tree]) for tree in chosen]
    # The batch's order: by depth, then by tree, then by place in the tree.
    order = sorted(
        ((trees[tree].depths[node], row, node) for row, tree in enumerate(chosen) for node in range(len(trees[tree])))
    )
    slow = network.head(torch.stack([states[row][node] for _, row, node in order]))
    batch, labels = data.batch(chosen, all_nodes=True)
    fast = network(batch)
    assert labels.tolist() == [trees[chosen[row]].labels[node] for _, row, node in order]
    torch.testing.assert_close(fast, slow, rtol=0, atol=1e-12)
    weights = torch.randn(slow.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    grads = [torch.autograd.grad((x * weights).sum(), list(network.parameters())) for x in (fast, slow)]
    for ours, theirs in zip(*grads, strict=True):
        assert theirs.abs().max() > 0
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    roots, root_labels = data.batch(chosen, all_nodes=False)
    torch.testing.assert_close(network(roots), slow[: len(chosen), [0, 2]], rtol=0, atol=1e-12)
    assert root_labels.tolist() == [trees[tree].labels[0] for tree in chosen]


def test_the_tree_lstm_has_tais_parameters():
    """tai2015, Table 1: 316,800 without words and output; its code has a second bias for each of the 5 x 150 gates."""
    network = make_model("tree-lstm", 2, TREE_FACTS)
    assert count(network) - count(network.embedding) - count(network.head) == 316_800 - 5 * 150
    assert network.head.out_features == 3
    released = make_model("tree-lstm", 2, TREE_FACTS, output_gate=False)
    assert count(released.leaf) + count(released.compose) == 2 * 150 * 301 + 4 * 150 * 301


def test_without_facts_of_nodes_all_classes_are_those_of_the_roots():
    network = make_model("tree-lstm", 5, {"vocabulary": 12}, hidden=4, dimension=3)
    assert network(forest(LINES).batch([0, 1], all_nodes=False)[0]).shape == (2, 5)


def test_tree_lstm_losses_of_two_steps():
    torch.manual_seed(0)
    network = make_model("tree-lstm", 2, TREE_FACTS, hidden=6, dimension=5).double()
    batch, labels = forest(LINES).batch([0, 1, 2, 3], all_nodes=True)
    assert two_steps(network, batch, labels.clamp(max=2), 0.05) == pytest.approx(TREE_LSTM_LOSSES, rel=1e-6)


@pytest.mark.slow
def test_a_level_at_a_time_makes_one_product_a_level(real_data):
    """25 real trees have a thousand nodes, and as many levels as the deepest of them."""
    data = load_data("sst-binary", real_data)
    network = make_model("tree-lstm", 2, data.facts)
    trees = [parse_tree(line) for line in _first_lines(real_data, 25)]
    prepared = Forest(trees, [[3 if word else 0 for word in tree.words] for tree in trees])
    batch, labels = prepared.batch(range(25), all_nodes=True)
    products: list[int] = []
    network.compose.register_forward_hook(lambda layer, inputs, output: products.append(len(output)))
    network(batch)
    assert sum(products) == (len(labels) - 25) // 2  # every inner node of a binary tree, once
    assert len(products) == len(batch.levels) - 1 < 40
    assert len(labels) > 800


def _first_lines(folder, number):
    import gzip

    with gzip.open(folder / "sst_train.txt.gz", "rt", encoding="utf-8") as file:
        return [line for _, line in zip(range(number), file, strict=False)]


# ---------------------------------------------------------------- BERT

SMALL = {
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 16,
    "initializer_range": 0.3,
}
TOKENS = MaskedTokens(
    torch.tensor([[2, 5, 6, 3], [2, 8, 3, 0], [2, 3, 0, 0]]), torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 0]])
)


@pytest.mark.slow
def test_bert_base_has_the_published_size():
    pytest.importorskip("transformers")
    with torch.device("meta"):
        network = make_model("bert", 20, {}, pretrained=False)
    assert count(network) - count(network.head) == 109_482_240
    assert network.head.in_features == 768


def test_padding_does_not_change_berts_logits():
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    network = make_model("bert", 3, {"vocabulary": 13}, config=SMALL).double().eval()
    assert network.encoder.config.vocab_size == 13
    alone = network(MaskedTokens(TOKENS.input_ids[1:2, :3], TOKENS.attention_mask[1:2, :3]))
    torch.testing.assert_close(network(TOKENS)[1:2], alone, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_bert_is_loaded_from_a_folder_and_says_where_it_looked(tmp_path):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    saved = transformers.BertModel(transformers.BertConfig(vocab_size=13, **SMALL))
    saved.save_pretrained(tmp_path)
    network = make_model("bert", 3, {"vocabulary": 13}, checkpoint=str(tmp_path)).eval()
    theirs = dict(saved.named_parameters())
    assert all(torch.equal(theirs[name], parameter) for name, parameter in network.encoder.named_parameters())
    with pytest.raises(InputError, match=r"checkpoint: must be .* or a folder; got '\./no-such-folder'"):
        make_model("bert", 3, {}, checkpoint="./no-such-folder")


def test_bert_losses_of_two_steps():
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    network = make_model("bert", 3, {"vocabulary": 13}, config=SMALL).double()
    for _, parameter in sorted(network.named_parameters()):  # not as transformers draws them, which may change
        nn.init.normal_(parameter, std=0.3)
    assert two_steps(network, TOKENS, torch.tensor([0, 1, 2]), 0.01) == pytest.approx(BERT_LOSSES, rel=1e-6)


# Recorded with torch 2.13 on a CPU.
GP_CNN_LOSSES = [0.5964132871933615, 0.5923635139588629, 0.5883687024517352]
TREE_LSTM_LOSSES = [0.3588048686220305, 0.2959206971893963, 0.25945583721737625]
BERT_LOSSES = [0.3392562644046625, 0.3256107727864421, 0.3283025773310326]
