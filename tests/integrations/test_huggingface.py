"""The Hugging Face integration against transformers itself: its models, and its Trainer where accelerate is there."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from torch import nn
from torch.testing import assert_close
from transformers.modeling_outputs import (
    CausalLMOutputWithPast,
    MaskedLMOutput,
    Seq2SeqLMOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)

import focalcal as fc
from focalcal.integrations.huggingface import CalibrationMetrics, LossUpdateCallback, compute_loss_func
from focalcal.losses.table import make_loss

pytestmark = pytest.mark.slow

CLASSES = 11


def batch(*shape, ignored=0.3, dtype=torch.float64):
    """Logits (*shape, CLASSES) that want a gradient, and labels, some of them ignored."""
    generator = torch.Generator().manual_seed(3)
    logits = 3 * torch.randn(*shape, CLASSES, generator=generator, dtype=dtype)
    labels = torch.randint(0, CLASSES, shape, generator=generator)
    labels[torch.rand(shape, generator=generator) < ignored] = -100
    return logits.requires_grad_(), labels


def grad(loss, logits):
    return torch.autograd.grad(loss, logits)[0]


# ------------------------------------------------------------------ the loss


@pytest.mark.parametrize("name", ["ce", "fl-3", "flsd-53", "ls-0.05", "brier"])
def test_a_batch_of_rows_has_the_mean_loss_of_the_named_one(name):
    logits, labels = batch(40)
    ours = compute_loss_func(name)(SequenceClassifierOutput(logits=logits), labels)
    theirs = make_loss(name)(logits, labels)
    assert_close(ours, theirs, rtol=1e-12, atol=0)
    assert_close(grad(ours, logits), grad(theirs, logits), rtol=1e-10, atol=1e-14)


def test_causal_language_models_are_scored_at_the_next_token():
    logits, labels = batch(4, 9)
    ours = compute_loss_func("fl-2")(CausalLMOutputWithPast(logits=logits), labels, num_items_in_batch=50)
    rows, targets = logits[:, :-1].reshape(-1, CLASSES), labels[:, 1:].reshape(-1)
    theirs = fc.focal_loss(rows, targets, gamma=2.0, reduction="sum") / 50
    assert_close(ours, theirs, rtol=1e-12, atol=0)
    assert_close(grad(ours, logits), grad(theirs, logits), rtol=1e-10, atol=1e-14)


def test_cross_entropy_is_the_loss_that_transformers_computes_itself():
    model = tiny_gpt2()
    tokens, labels = token_batch()
    theirs = model(input_ids=tokens, labels=labels, num_items_in_batch=torch.tensor(30)).loss
    assert_close(compute_loss_func("ce")(model(input_ids=tokens), labels, num_items_in_batch=30), theirs)


@pytest.mark.parametrize("kind", [TokenClassifierOutput, MaskedLMOutput, Seq2SeqLMOutput])
def test_labels_beside_their_logits_are_not_shifted(kind):
    logits, labels = batch(4, 9)
    ours = compute_loss_func("fl-2")(kind(logits=logits), labels)
    assert_close(ours, fc.focal_loss(logits.movedim(-1, 1), labels, gamma=2.0))


def test_the_caller_can_say_what_is_shifted():
    logits, labels = batch(4, 9)
    shifted = compute_loss_func("fl-2")(CausalLMOutputWithPast(logits=logits), labels)
    assert compute_loss_func("fl-2", shift=True)((logits,), labels) == shifted
    beside = compute_loss_func("fl-2", shift=False)(CausalLMOutputWithPast(logits=logits), labels)
    assert_close(beside, fc.focal_loss(logits.movedim(-1, 1), labels, gamma=2.0))
    assert beside != shifted


@pytest.mark.parametrize("name", ["fl-3", "brier"])
def test_steps_of_gradient_accumulation_add_up_to_one_large_batch(name):
    logits, labels = batch(6, 9)
    labels[:2, 3:] = -100  # so that the parts have different numbers of items
    items, func = (labels[:, 1:] != -100).sum(), compute_loss_func(name)
    whole = func(CausalLMOutputWithPast(logits=logits), labels, num_items_in_batch=items)
    parts = [
        func(CausalLMOutputWithPast(logits=logits[part]), labels[part], num_items_in_batch=items)
        for part in (slice(0, 2), slice(2, 6))
    ]
    assert_close(sum(parts), whole, rtol=1e-12, atol=0)
    assert_close(grad(sum(parts), logits), grad(whole, logits), rtol=1e-10, atol=1e-15)


def test_data_parallel_counts_come_once_per_device_and_losses_are_averaged_over_them():
    """As trainer.py has it for 2 devices: the count is repeated, the loss multiplied by 2 if items were not halved."""
    logits, labels = batch(20, ignored=0)
    outputs, items = SequenceClassifierOutput(logits=logits), torch.tensor(20)
    expected = fc.focal_loss(logits, labels, gamma=3.0)
    averaged = compute_loss_func()(outputs, labels, num_items_in_batch=items.unsqueeze(0).expand(2, -1))
    assert_close((averaged * 2).mean(), expected)
    halved = compute_loss_func()(outputs, labels, num_items_in_batch=(items // 2).unsqueeze(0).expand(2, -1))
    assert_close(halved.mean(), expected)


def test_a_batch_without_any_label_costs_nothing():
    logits, labels = batch(2, 5)
    outputs = CausalLMOutputWithPast(logits=logits)
    loss = compute_loss_func()(outputs, torch.full_like(labels, -100), num_items_in_batch=torch.tensor(0))
    assert loss == 0
    assert (grad(loss, logits) == 0).all()


def test_mmce_is_that_of_the_batch_and_of_several_their_mean_by_rows():
    logits, labels = batch(40, ignored=0)
    func = compute_loss_func("mmce", lam=2.0)
    assert_close(func({"logits": logits}, labels), fc.MMCELoss(lam=2.0)(logits, labels))
    parts = (slice(0, 10), slice(10, 40))
    ours = sum(func({"logits": logits[part]}, labels[part], num_items_in_batch=40) for part in parts)
    first, second = (fc.MMCELoss(lam=2.0)(logits[part], labels[part]) for part in parts)
    assert_close(ours, (first * 10 + second * 30) / 40)


def test_a_loss_of_ones_own_is_called_as_it_is():
    logits, labels = batch(20)
    ours = compute_loss_func(nn.CrossEntropyLoss(reduction="sum"))({"logits": logits}, labels)
    assert_close(ours, nn.functional.cross_entropy(logits, labels))
    loss = fc.AdaFocalLoss(reduction="sum")
    assert compute_loss_func(loss).loss is loss


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"loss": fc.FocalLoss(3.0)}, r'loss: must have reduction="sum".*divided by the items'),
        ({"loss": fc.MMCELoss()}, r"MMCELoss: batch_scale=True"),
        ({"loss": fc.MMCELoss(base=fc.FocalLoss(1.0), batch_scale=True)}, 'loss: must have reduction="sum"'),
        ({"loss": fc.FocalLoss(3.0, reduction="sum", ignore_index=0)}, "ignore_index: must be -100"),
        ({"loss": fc.FocalLoss(3.0, reduction="sum"), "gamma": 2.0}, "options: are for a loss given by its name"),
        ({"loss": "adafocal"}, "loss: must not need validation data or the epoch.*LossUpdateCallback"),
        ({"loss": "flsc-531"}, "loss: must not need validation data or the epoch.*LossUpdateCallback"),
        ({"loss": "focal"}, "loss: must be one of ce, brier"),
        ({"loss": fc.LinearFocalLoss(1.0, reduction="sum")}, "model: must be given for LinearFocalLoss"),
        ({"loss": fc.LinearFocalLoss(1.0)}, 'loss: must have reduction="sum"'),
        ({"loss": "fl-3", "model": nn.Linear(2, 2)}, "model: is for LinearFocalLoss only"),
    ],
)
def test_what_would_be_wrong_in_training_is_refused_before(arguments, match):
    with pytest.raises(fc.InputError, match=match):
        compute_loss_func(**arguments)


@pytest.mark.parametrize(
    ("outputs", "labels", "shift", "match"),
    [
        (torch.zeros(2, 5, 3), torch.zeros(2, 5).long(), None, "shift: must be given for logits"),
        (torch.zeros(2, 3), torch.zeros(2).long(), True, "shift: is for logits"),
        (torch.zeros(2, 3), None, None, "labels: must be a tensor of class numbers; got NoneType.*collator"),
        (torch.zeros(2, 3), torch.zeros(2, 3), None, "labels: must be a tensor of class numbers; got torch.float32"),
        (torch.zeros(2, 5, 3), torch.zeros(2, 4).long(), False, r"labels: must have shape \(2, 5\)"),
        (torch.zeros(2, 3, 4, 4), torch.zeros(2, 4, 4).long(), None, r"logits: must have shape \(N, K\)"),
        ({"hidden": torch.zeros(2, 3)}, torch.zeros(2).long(), None, "outputs: must have logits; got hidden"),
        ((), torch.zeros(2).long(), None, "outputs: must be a tensor of logits"),
    ],
)
def test_outputs_that_cannot_be_meant_are_refused(outputs, labels, shift, match):
    with pytest.raises(fc.InputError, match=match):
        compute_loss_func("fl-3", shift=shift)(outputs, labels)


def test_nothing_here_imports_transformers():
    code = "import sys, focalcal.integrations.huggingface; sys.exit('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ------------------------------------------------------------------ large vocabularies

SMALL = {"vocab_size": 97, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
NO_SPECIAL_TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
DECODER = {**SMALL, "intermediate_size": 32, "num_key_value_heads": 1, **NO_SPECIAL_TOKENS}
MODELS = {
    "gpt2": lambda: tiny_gpt2(),
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**DECODER)),
    # A projection between the hidden states and the output layer.
    "opt": lambda: transformers.OPTForCausalLM(
        transformers.OPTConfig(**SMALL, ffn_dim=32, word_embed_proj_dim=8, dropout=0.0, **NO_SPECIAL_TOKENS)
    ),
    # A bias in the output layer.
    "phi": lambda: transformers.PhiForCausalLM(
        transformers.PhiConfig(**SMALL, intermediate_size=32, resid_pdrop=0.0, **NO_SPECIAL_TOKENS)
    ),
}
REFUSED = {
    "softcap": lambda: transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**DECODER, head_dim=8)),
    "scale": lambda: transformers.CohereForCausalLM(transformers.CohereConfig(**DECODER)),
    "encoder-decoder": lambda: transformers.T5ForConditionalGeneration(
        transformers.T5Config(vocab_size=97, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2)
    ),
    "classifier": lambda: transformers.BertForSequenceClassification(
        transformers.BertConfig(**SMALL, intermediate_size=32)
    ),
    "no transformer": lambda: nn.Linear(2, 2),
}


def tiny_gpt2(**options):
    torch.manual_seed(0)
    sizes = {"vocab_size": 97, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32, **NO_SPECIAL_TOKENS}
    dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **dropout | options))
    model.loss_type = "ForCausalLM"  # else Trainer counts the first token of a row, because of the class's name
    return model


def token_batch(rows=3, length=9):
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(3, 97, (rows, length), generator=generator)
    labels = tokens.clone()
    labels[0, :4] = -100
    return tokens, labels


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def linear_loss(model, gamma=2.0):
    return compute_loss_func(fc.LinearFocalLoss(gamma, reduction="sum"), model=model)


@pytest.mark.parametrize("name", MODELS)
def test_through_the_output_layer_loss_and_gradients_are_those_of_the_logits(name):
    model = MODELS[name]().train()
    tokens, labels = token_batch()
    whole = compute_loss_func("fl-2")(model(input_ids=tokens), labels, num_items_in_batch=25)
    expected = gradients(model, whole)
    chunked = linear_loss(model)(model(input_ids=tokens), labels, num_items_in_batch=25)
    assert_close(chunked, whole)
    for each, gradient in gradients(model, chunked).items():
        assert_close(gradient, expected[each], rtol=1e-4, atol=1e-6)


def test_in_training_the_output_layer_sees_one_position_and_otherwise_all():
    model = tiny_gpt2()
    loss, (tokens, labels) = linear_loss(model), token_batch()
    seen = []
    model.lm_head.register_forward_pre_hook(lambda _, args: seen.append(tuple(args[0].shape)))
    model.train()
    trained = loss(model(input_ids=tokens), labels)
    model(input_ids=tokens, labels=labels)  # asks for the model's own loss
    model.eval()
    outputs = model(input_ids=tokens)
    assert outputs.hidden_states is None
    assert_close(loss(outputs, labels), trained)
    assert seen == [(3, 1, 16), (3, 9, 16), (3, 9, 16)]
    loss.remove()
    model.train()
    assert model(input_ids=tokens).logits.shape == (3, 9, 97)


def test_making_the_loss_leaves_the_model_as_it_was():
    model = tiny_gpt2(resid_pdrop=0.5).train()
    model.transformer.h[0].eval()
    modes, state = [part.training for part in model.modules()], torch.get_rng_state()
    linear_loss(model)
    assert [part.training for part in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)
    assert not model.lm_head._forward_pre_hooks


def test_a_schedule_reaches_the_loss_of_evaluation_too():
    model = tiny_gpt2().eval()
    tokens, labels = token_batch()
    loss = linear_loss(model, "flsc-531")
    loss.loss.set_epoch(300)
    assert_close(loss(model(input_ids=tokens), labels), compute_loss_func("fl-1")(model(input_ids=tokens), labels))


def test_generate_and_save_pretrained_work_as_ever(tmp_path):
    model = tiny_gpt2().eval()
    tokens, _ = token_batch(rows=1)
    options = {"max_new_tokens": 4, "do_sample": False}
    expected = model.generate(tokens, **options)
    linear_loss(model)
    assert torch.equal(model.generate(tokens, **options), expected)
    model.save_pretrained(tmp_path)
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert type(again) is transformers.GPT2LMHeadModel
    assert torch.equal(again.generate(tokens, **options), expected)


@pytest.mark.parametrize("name", REFUSED)
def test_models_whose_logits_are_more_than_a_linear_layer_are_refused(name):
    model = REFUSED[name]()
    with pytest.raises(fc.InputError, match=r"model: must .*compute_loss_func\(\"fl-1\"\)"):
        linear_loss(model)


def test_a_layer_that_only_begins_as_a_linear_one_is_refused():
    class Adapted(nn.Linear):
        """An adapter that changes nothing until it is trained, as LoRA's."""

    model = tiny_gpt2(tie_word_embeddings=False)
    model.lm_head = Adapted(16, 97, bias=False)
    with pytest.raises(fc.InputError, match=r"plain nn.Linear; got GPT2LMHeadModel with Adapted"):
        linear_loss(model)


def test_another_model_than_the_trained_one_is_noticed():
    tokens, labels = token_batch()
    loss = linear_loss(tiny_gpt2().train())
    with pytest.raises(fc.InputError, match="model: must give its hidden states"):
        loss(tiny_gpt2().train()(input_ids=tokens), labels)


# ------------------------------------------------------------------ the measures

NAMES = ("accuracy", "nll", "brier", "ece", "ada_ece", "smooth_ece")


def expected_metrics(logits, labels):
    evaluation = fc.evaluate(logits, labels, ignore_index=-100)
    return {name: getattr(evaluation, name) for name in NAMES}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_measures_are_those_of_evaluate_on_all_logits(dtype):
    logits, labels = batch(300, dtype=torch.float64)
    logits = logits.detach().to(dtype)
    metrics = CalibrationMetrics()
    rows = metrics.preprocess_logits_for_metrics(logits, labels)
    assert rows.shape == (300, 6)
    found = metrics.compute_metrics(SimpleNamespace(predictions=rows.numpy()))
    assert found == pytest.approx(expected_metrics(logits, labels), rel=1e-12)


@pytest.mark.parametrize("shift", [True, False])
@pytest.mark.parametrize("way", ["together", "list", "batch by batch"])
def test_sequences_of_different_lengths_are_measured_in_any_way_that_trainer_has(shift, way):
    metrics, kept, rows, targets = CalibrationMetrics(shift=shift), [], [], []
    for count, length in ((4, 9), (3, 12), (2, 5)):
        logits, labels = batch(count, length, dtype=torch.float32)
        # With outputs beside the logits, Trainer gives a tuple.
        kept.append(metrics.preprocess_logits_for_metrics((logits.detach(), None), labels))
        rows.append((logits[:, :-1] if shift else logits).reshape(-1, CLASSES).detach())
        targets.append((labels[:, 1:] if shift else labels).reshape(-1))
    if way == "batch by batch":
        assert metrics.compute_metrics(SimpleNamespace(predictions=kept[0]), compute_result=False) == {}
        metrics.compute_metrics(SimpleNamespace(predictions=kept[1]), compute_result=False)
        given = kept[2]
    elif way == "list":
        given = [part.numpy() for part in kept]
    else:
        given = padded(kept)
    expected = expected_metrics(torch.cat(rows), torch.cat(targets))
    assert metrics.compute_metrics(SimpleNamespace(predictions=given)) == pytest.approx(expected, rel=1e-12)
    again = metrics.compute_metrics(SimpleNamespace(predictions=padded(kept)))  # nothing is left of the first time
    assert again == pytest.approx(expected, rel=1e-12)


def padded(parts):
    longest = max(part.shape[1] for part in parts)
    return np.concatenate(
        [np.pad(part, ((0, 0), (0, longest - part.shape[1]), (0, 0)), constant_values=-100) for part in parts]
    )


def test_measures_of_ones_own():
    logits, labels = batch(50, ignored=0, dtype=torch.float32)
    metrics = CalibrationMetrics({"ece 5": lambda rows: fc.metrics.ece(rows, num_bins=5)})
    rows = metrics.preprocess_logits_for_metrics(logits, labels)
    found = metrics.compute_metrics(SimpleNamespace(predictions=rows.numpy()))
    assert found == {"ece 5": float(fc.metrics.ece(logits, labels, num_bins=5))}


def test_a_few_rows_are_measured_too():
    logits, labels = batch(3, ignored=0, dtype=torch.float32)
    metrics = CalibrationMetrics()
    rows = metrics.preprocess_logits_for_metrics(logits, labels)
    assert metrics.compute_metrics(SimpleNamespace(predictions=rows.numpy())).keys() == set(NAMES)


def test_without_labels_the_logits_stay():
    logits, _ = batch(3)
    assert CalibrationMetrics().preprocess_logits_for_metrics(logits, None) is logits


def test_measures_are_refused_without_their_preprocessing_labels_or_shift():
    logits, labels = batch(2, 9)
    with pytest.raises(fc.InputError, match="shift: must be given"):
        CalibrationMetrics().preprocess_logits_for_metrics(logits, labels)
    with pytest.raises(fc.InputError, match=r"predictions: must be preprocessed.*preprocess_logits_for_metrics"):
        CalibrationMetrics().compute_metrics(SimpleNamespace(predictions=logits[..., :6].detach().numpy()))
    metrics = CalibrationMetrics(shift=True)
    rows = metrics.preprocess_logits_for_metrics(logits, torch.full_like(labels, -100))
    with pytest.raises(fc.InputError, match="labels: must have one that is not -100"):
        metrics.compute_metrics(SimpleNamespace(predictions=rows.numpy()))


# ------------------------------------------------------------------ in Trainer


def sentences(count=24):
    """Token rows of different lengths, padded by the collator."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(3, 12, (count,), generator=generator).tolist()
    return [{"input_ids": torch.randint(3, 97, (length,), generator=generator)} for length in lengths]


def collate(rows):
    tokens = nn.utils.rnn.pad_sequence([row["input_ids"] for row in rows], batch_first=True)
    lengths = torch.tensor([len(row["input_ids"]) for row in rows])
    mask = torch.arange(tokens.shape[1]) < lengths.unsqueeze(1)
    return {"input_ids": tokens, "attention_mask": mask.long(), "labels": tokens.masked_fill(~mask, -100)}


def trainer(model, folder, *, loss, metrics=None, rows=None, callbacks=(), **options):
    pytest.importorskip("accelerate", reason="Trainer needs accelerate")
    options = {"per_device_train_batch_size": 8, "num_train_epochs": 1, "learning_rate": 1e-2, **options}
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), use_cpu=True, report_to="none", disable_tqdm=True, save_strategy="no", **options
    )
    rows = sentences() if rows is None else rows
    return transformers.Trainer(
        model,
        arguments,
        train_dataset=rows,
        eval_dataset=rows,
        data_collator=collate if "labels" not in rows[0] else None,
        compute_loss_func=loss,
        compute_metrics=None if metrics is None else metrics.compute_metrics,
        preprocess_logits_for_metrics=None if metrics is None else metrics.preprocess_logits_for_metrics,
        callbacks=list(callbacks),
    )


def trained(folder, make_loss_of, **options):
    """The weights after 3 steps, and the mean of the losses that Trainer logged."""
    model = tiny_gpt2()
    run = trainer(model, folder, loss=make_loss_of(model), optim="sgd", learning_rate=0.5, **options).train()
    assert run.global_step == 3
    return dict(model.named_parameters()), run.training_loss


@pytest.mark.parametrize("way", ["logits", "hidden states"])
def test_gradient_accumulation_trains_as_one_large_batch(way, tmp_path):
    def of(model):
        return linear_loss(model) if way == "hidden states" else compute_loss_func("fl-2")

    whole, loss = trained(tmp_path, of)
    steps, accumulated = trained(tmp_path, of, per_device_train_batch_size=2, gradient_accumulation_steps=4)
    assert accumulated == pytest.approx(loss, rel=1e-5)
    for name, weight in steps.items():
        assert_close(weight, whole[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{"gradient_checkpointing": True}, {"bf16": True}])
def test_training_through_the_output_layer_is_training_on_logits(options, tmp_path):
    whole, loss = trained(tmp_path, lambda _: compute_loss_func("fl-2"), **options)
    chunked, same = trained(tmp_path, linear_loss, **options)
    close = {"rtol": 0.05, "atol": 5e-3} if options.get("bf16") else {"rtol": 1e-4, "atol": 1e-5}
    assert same == pytest.approx(loss, rel=close["rtol"])
    untrained = dict(tiny_gpt2().named_parameters())
    for name, weight in chunked.items():
        assert_close(weight, whole[name], **close)
    assert max((chunked[name] - untrained[name]).abs().max() for name in chunked) > 0.05


@pytest.mark.parametrize("batch_eval_metrics", [False, True])
def test_the_evaluation_of_trainer_reports_what_evaluate_does(batch_eval_metrics, tmp_path):
    model, metrics = tiny_gpt2(initializer_range=0.5), CalibrationMetrics(shift=True)
    run = trainer(
        model,
        tmp_path,
        loss=linear_loss(model),
        metrics=metrics,
        batch_eval_metrics=batch_eval_metrics,
        per_device_eval_batch_size=6,
    )
    found = run.evaluate()
    whole = collate(sentences())
    with torch.no_grad():
        logits = model(input_ids=whole["input_ids"], attention_mask=whole["attention_mask"]).logits
    expected = expected_metrics(logits[:, :-1].movedim(-1, 1), whole["labels"][:, 1:])
    assert {name: found[f"eval_{name}"] for name in NAMES} == pytest.approx(expected, rel=1e-4)
    parts = [collate(sentences()[start : start + 6]) for start in range(0, 24, 6)]
    losses = [compute_loss_func("fl-2")(model(input_ids=part["input_ids"]), part["labels"]).detach() for part in parts]
    assert found["eval_loss"] == pytest.approx(float(sum(losses)) / 4, rel=1e-5)


def test_a_checkpoint_of_training_through_the_output_layer_is_a_plain_model(tmp_path):
    model = tiny_gpt2()
    run = trainer(model, tmp_path, loss=linear_loss(model))
    run.train()
    run.save_model(tmp_path / "model")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    for name, weight in model.named_parameters():
        assert torch.equal(again.get_parameter(name), weight)


@pytest.mark.parametrize("task", ["sequences", "tokens"])
def test_classifiers_learn_and_are_measured(task, tmp_path):
    config = transformers.BertConfig(**SMALL, intermediate_size=32, num_labels=2)
    kind = {"sequences": "BertForSequenceClassification", "tokens": "BertForTokenClassification"}[task]
    torch.manual_seed(0)
    model = getattr(transformers, kind)(config)
    tokens = torch.randint(3, 97, (64, 6), generator=torch.Generator().manual_seed(1))
    labels = (tokens > 50).long() if task == "tokens" else (tokens[:, 0] > 50).long()
    rows = [{"input_ids": row, "labels": label} for row, label in zip(tokens, labels, strict=True)]
    metrics = CalibrationMetrics(model=model)
    run = trainer(model, tmp_path, loss=compute_loss_func("flsd-53"), metrics=metrics, rows=rows, num_train_epochs=12)
    before = run.evaluate()
    run.train()
    after = run.evaluate()
    with torch.no_grad():
        logits = model(input_ids=tokens).logits
    logits = logits.movedim(-1, 1) if task == "tokens" else logits
    assert {name: after[f"eval_{name}"] for name in NAMES} == pytest.approx(expected_metrics(logits, labels), rel=1e-4)
    assert after["eval_nll"] < before["eval_nll"] - 0.1


# ------------------------------------------------------------------ the shift, alike for loss and metrics


def small(kind):
    return getattr(transformers, kind)(transformers.BertConfig(**SMALL, intermediate_size=32, num_labels=CLASSES))


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: small("BertForTokenClassification"), TokenClassifierOutput),
        (lambda: small("BertForMaskedLM"), MaskedLMOutput),
        (lambda: tiny_gpt2(), CausalLMOutputWithPast),
    ],
    ids=["tokens", "masked", "causal"],
)
def test_the_metrics_infer_the_shift_that_the_loss_does(make, kind):
    logits, labels = batch(4, 9, dtype=torch.float32)
    metrics = CalibrationMetrics(model=make())
    rows = metrics.preprocess_logits_for_metrics(logits.detach(), labels)
    found = metrics.compute_metrics(SimpleNamespace(predictions=rows.numpy()))
    loss = compute_loss_func("ce")(kind(logits=logits), labels)
    assert found["nll"] == pytest.approx(loss.item(), rel=1e-5)
    outputs = kind(logits=logits.detach())  # where the whole outputs are given, they say it themselves
    assert torch.equal(CalibrationMetrics().preprocess_logits_for_metrics(outputs, labels), rows)


def test_a_model_that_does_not_say_what_it_returns_leaves_it_to_the_caller():
    logits, labels = batch(2, 5)
    with pytest.raises(fc.InputError, match="shift: must be given"):
        CalibrationMetrics(model=nn.Linear(2, 2)).preprocess_logits_for_metrics(logits, labels)


# ------------------------------------------------------------------ updates of AdaFocal


def token_rows(count=48):
    tokens = torch.randint(3, 97, (count, 6), generator=torch.Generator().manual_seed(1))
    labels = (tokens > 50).long()
    labels[:, -1] = -100
    return tokens, labels, [{"input_ids": row, "labels": label} for row, label in zip(tokens, labels, strict=True)]


@pytest.mark.parametrize("own", [False, True], ids=["evaluation", "loader"])
def test_the_callback_updates_adafocal_once_per_epoch(own, tmp_path):
    tokens, labels, rows = token_rows()
    torch.manual_seed(0)
    model = transformers.BertForTokenClassification(
        transformers.BertConfig(**SMALL, intermediate_size=32, num_labels=2, hidden_dropout_prob=0.0)
    )
    loss = fc.AdaFocalLoss(reduction="sum", num_bins=5, warn_after=1)  # which the callback makes needless
    loader = [{"input_ids": tokens[:30], "labels": labels[:30]}] if own else None
    callback = LossUpdateCallback(compute_loss_func(loss), loader)
    options = {"num_train_epochs": 2, "eval_strategy": "no" if own else "epoch"}
    run = trainer(model, tmp_path, loss=compute_loss_func(loss), rows=rows, callbacks=[callback], **options)
    run.train()
    history = loss.history
    assert history["gamma"].shape == (2, 5)
    expected = 30 * 5 if own else 48 * 5  # positions with a label
    assert history["count"].sum(1).tolist() == [expected] * 2
    with torch.no_grad():
        confidence = model.eval()(input_ids=tokens[: 30 if own else 48]).logits.softmax(-1).amax(-1)[:, :-1]
    seen = (history["confidence"][-1] * history["count"][-1]).sum() / expected
    assert float(seen) == pytest.approx(float(confidence.mean()), rel=1e-4)


def test_the_callback_tells_scheduled_gammas_the_epoch(tmp_path):
    _, _, rows = token_rows(16)
    loss = fc.FocalLoss("flsc-531", reduction="sum")
    gammas = []

    class Seen(transformers.TrainerCallback):
        def on_step_begin(self, args, state, control, **given):
            gammas.append(loss.gamma.gamma)

    callbacks = [LossUpdateCallback(loss), Seen()]
    run = trainer(
        small("BertForTokenClassification"),
        tmp_path,
        loss=compute_loss_func(loss),
        rows=rows,
        callbacks=callbacks,
        num_train_epochs=7,
        per_device_train_batch_size=16,
    )
    run.train()
    assert gammas == [5.0, 5.0, 3.0, 3.0, 3.0, 1.0, 1.0]


def test_the_callback_refuses_what_it_cannot_steer():
    with pytest.raises(fc.InputError, match="loss: must be AdaFocal, CalFocal or a loss with a scheduled gamma"):
        LossUpdateCallback(fc.FocalLoss(3.0))
    with pytest.raises(fc.InputError, match=r"loader: must be given where Trainer does not evaluate.*eval_strategy"):
        LossUpdateCallback(fc.AdaFocalLoss()).on_train_begin(SimpleNamespace(eval_strategy="no"), None, None)
    with pytest.raises(AttributeError, match="no attribute 'anything'"):
        LossUpdateCallback(fc.AdaFocalLoss()).anything  # noqa: B018
