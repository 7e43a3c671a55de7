"""The Transformer: the literature's size, a start that the seed fixes, no look ahead, losses on record."""

from __future__ import annotations

import pytest
import torch

from focalcal.errors import InputError
from focalcal.losses.table import make_loss
from focalcal_lab.data import load_data
from focalcal_lab.models import make_model

FACTS = {"pad": 0, "bos": 1, "eos": 2, "longest": 30}
SMALL = {"layers": 2, "width": 16, "heads": 2, "inner": 32}


@pytest.fixture(scope="module")
def data():
    return load_data("toy-translation", num_train=40, num_val=8, num_test=8)


def make(data, seed=0, **options):
    torch.manual_seed(seed)
    return make_model("transformer", data.num_classes, data.facts, **{**SMALL, **options})


def weights_of(size, classes):
    with torch.device("meta"):
        network = make_model("transformer", classes, FACTS, size=size)
    return sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)


@pytest.mark.parametrize(("size", "published"), [("base", 65e6), ("big", 213e6)])
def test_as_many_weights_as_vaswani_prints(size, published):
    # Table 3 of vaswani2017, with about 37,000 tokens for English to German.
    found = weights_of(size, 37_000)
    assert abs(found - published) < 0.03 * published


def test_the_weights_of_the_base_size_are_counted_by_hand():
    attention, norm = 4 * (512 * 512 + 512), 2 * 512
    inner = 512 * 2048 + 2048 + 2048 * 512 + 512
    encoder, decoder = 6 * (attention + inner + 2 * norm), 6 * (2 * attention + inner + 3 * norm)
    assert weights_of("base", 37_000) == 37_000 * 512 + encoder + decoder


def test_the_head_is_the_last_layer_and_the_embedding(data):
    network = make(data)
    network.eval()
    seen = []
    network.head.register_forward_hook(lambda module, inputs, output: seen.append((inputs[0], output)))
    inputs, labels = data.train.__getitems__([0, 1])
    logits = network(inputs)
    assert logits.shape == (len(labels), 630)
    (features, output), weight = seen[0], network.model.get_input_embeddings().weight
    assert torch.equal(output.flatten(0, 1), logits)
    torch.testing.assert_close(logits, features.flatten(0, 1) @ weight.T)
    assert network.head.weight is weight


def test_the_seed_fixes_the_start(data):
    one, same, other = make(data), make(data), make(data, seed=1)
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), same.state_dict().values(), strict=True))
    assert not torch.equal(one.head.weight, other.head.weight)
    assert abs(float(one.head.weight.detach().std()) - 16**-0.5) < 0.02


def test_no_token_sees_those_behind_it_nor_padding(data):
    network = make(data).eval()
    long, short = (f(range(40), key=lambda i: len(data.train.sources[i])) for f in (max, min))
    inputs, _ = data.train.__getitems__([short, long])
    alone, own = data.train.__getitems__([short])
    together = network(inputs).view(2, -1, 630)
    torch.testing.assert_close(together[0, : len(own)], network(alone), atol=1e-5, rtol=1e-4)
    inputs.decoder_inputs[1, 3] = 9
    changed = network(inputs).view(2, -1, 630)
    torch.testing.assert_close(changed[1, :3], together[1, :3])
    assert not torch.allclose(changed[1, 3], together[1, 3], atol=1e-3)
    inputs.source[1, 0] = 9
    assert not torch.allclose(network(inputs).view(2, -1, 630)[1, 0], together[1, 0], atol=1e-4)


# Recorded with torch 2.13 and transformers 5.22, in float64 without dropout.
RECORDED = {
    "ce": (6.726340292, 6.272827101),
    "ls-0.1": (6.748472476, 6.339874268),
    "fl-1": (6.714666287, 6.2571513),
}


@pytest.mark.parametrize("name", RECORDED)
def test_two_steps_have_the_losses_on_record(data, name):
    network = make(data, dropout=0.0).double()
    loss, optimizer = make_loss(name), torch.optim.Adam(network.parameters(), lr=1e-3, betas=(0.9, 0.98))
    found = []
    for rows in (range(8), range(8, 16)):
        inputs, labels = data.train.__getitems__(rows)
        optimizer.zero_grad()
        value = loss(network(inputs), labels)
        value.backward()
        optimizer.step()
        found.append(value.item())
    assert found == pytest.approx(RECORDED[name], abs=1e-6)


def test_padding_teaches_nothing(data):
    network = make(data, dropout=0.0).double()
    inputs, labels = data.train.__getitems__(range(6))
    make_loss("ce")(network(inputs), labels).backward()
    together = network.head.weight.grad.clone()
    network.zero_grad()
    kept = labels != -100
    (torch.nn.functional.cross_entropy(network(inputs)[kept], labels[kept])).backward()
    torch.testing.assert_close(together, network.head.weight.grad)


@pytest.mark.parametrize(
    ("facts", "options", "message"),
    [
        (FACTS, {"size": "huge"}, "size: must be one of base, big, tiny"),
        (FACTS, {"width": 30, "heads": 4}, "multiple of heads"),
        ({"pad": 0}, {}, "no bos, eos"),
    ],
)
def test_what_cannot_be_built_is_refused(facts, options, message):
    with pytest.raises(InputError, match=message):
        make_model("transformer", 20, facts, **options)
