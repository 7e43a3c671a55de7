"""A small language model trained by Hugging Face's Trainer through LinearFocalLoss, then calibrated on streamed logits.

    python examples/language_model.py
    python examples/language_model.py --vocabulary 50000    # also memory and time of a step with that many classes

The model reads bytes of a text that a small grammar writes, so nothing is downloaded. Neither training nor calibration
holds the logits of more than one batch.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

import focalcal as fc
from focalcal.integrations.huggingface import CalibrationMetrics, compute_loss_func
from focalcal.metrics import streaming

BYTES = 256
LENGTH = 64  # bytes the model sees at once
GAMMA = 2.0

# One word of each list makes a sentence, the first ones more often: some bytes are certain and some are a guess.
GRAMMAR = [
    ["In the morning", "At noon", "Before the rain", "After the long winter", "One evening", "When the bells rang"],
    ["the captain", "a tired clerk", "my grandmother", "the younger sister", "a stranger", "the clockmaker"],
    ["found", "hid", "painted", "sold", "forgot", "measured", "carried", "repaired"],
    ["a green", "the broken", "an empty", "the heavy", "a silver", "the last"],
    ["lantern", "ladder", "suitcase", "violin", "map", "kettle", "letter", "compass"],
    ["behind the harbour.", "near the old mill.", "under the stairs.", "for the baker.", "without a word.", "again."],
]


def make_text(seed: int, sentences: int) -> str:
    """Sentences of the grammar."""
    draw = random.Random(seed)
    zipf = [[1 / place for place in range(1, len(words) + 1)] for words in GRAMMAR]
    chosen = ([draw.choices(*part)[0] for part in zip(GRAMMAR, zipf, strict=True)] for _ in range(sentences))
    return " ".join(" ".join(words) for words in chosen)


def make_blocks(text: str) -> list[dict[str, Tensor]]:
    """The text's bytes in blocks; the labels are the same bytes, which the loss shifts by one."""
    blocks = torch.tensor(list(text.encode())).split(LENGTH)[:-1]
    return [{"input_ids": block, "labels": block} for block in blocks]


def make_model(vocabulary: int = BYTES) -> LlamaForCausalLM:
    """A network of 82,000 parameters beside those of its vocabulary."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    return LlamaForCausalLM(LlamaConfig(vocab_size=vocabulary, max_position_embeddings=LENGTH, **sizes))


def train(model: LlamaForCausalLM, blocks: list[dict[str, Tensor]], val: list[dict[str, Tensor]], steps: int) -> None:
    """Focal loss by the hidden states: the logits of a batch are never held."""
    metrics = CalibrationMetrics(shift=True)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=steps,
            per_device_train_batch_size=16,
            learning_rate=3e-3,
            lr_scheduler_type="cosine",
            eval_strategy="steps",
            eval_steps=max(steps // 3, 1),
            save_strategy="no",
            dataloader_pin_memory=False,
            report_to="none",
            disable_tqdm=True,
        )
        Trainer(
            model,
            arguments,
            train_dataset=blocks,
            eval_dataset=val,
            compute_loss_func=compute_loss_func(fc.LinearFocalLoss(GAMMA, reduction="sum"), model=model),
            compute_metrics=metrics.compute_metrics,
            preprocess_logits_for_metrics=metrics.preprocess_logits_for_metrics,
        ).train()


@torch.no_grad()
def batches(model: LlamaForCausalLM, blocks: list[dict[str, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
    """Logits (N, K) and next bytes (N,) of a few blocks at a time, made when they are asked for."""
    model.eval()
    for part in torch.stack([block["input_ids"] for block in blocks]).split(16):
        tokens = part.to(model.device)
        logits = model(input_ids=tokens).logits
        yield logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()


def measure(stream: Iterator[tuple[Tensor, Tensor]], log_probs: Callable[[Tensor], Tensor]) -> fc.metrics.Evaluation:
    """Every measure of a stream of logits, through a calibrator or none."""
    everything = streaming.Everything(num_classes=BYTES, kind="log_probs")
    for logits, labels in stream:
        everything.update(log_probs(logits), labels)
    return everything.evaluation()


def main(steps: int = 300, vocabulary: int | None = None) -> tuple[fc.metrics.Evaluation, fc.metrics.Evaluation]:
    """Train, calibrate, and print what that changes on new text; both evaluations are returned."""
    blocks, val, test = (make_blocks(make_text(seed, count)) for seed, count in ((0, 900), (1, 200), (2, 200)))
    model = make_model()
    train(model, blocks, val, steps)
    calibrator = fc.TemperatureScaling().fit(lambda: batches(model, val))
    before = measure(batches(model, test), lambda logits: logits.log_softmax(1))
    after = measure(batches(model, test), calibrator)
    print(f"\n{before.n:,} bytes of new text, {before.accuracy:.1%} predicted right; focal loss, gamma {GAMMA:g}")
    for name, found in (("as trained", before), (f"temperature {calibrator.temperature_:.3f}", after)):
        print(f"  {name:20s} NLL {found.nll:.3f}  ECE {found.ece:.2%}  mean confidence {found.mean_confidence:.1%}")
    if vocabulary:
        compare(vocabulary)
    return before, after


# ------------------------------------------------------------------ memory and time of a step

TOKENS = (64, 64)
WAYS = {"FocalLoss, all logits": False, "LinearFocalLoss": True}


def compare(vocabulary: int) -> dict[str, tuple[float, float]]:
    """A training step both ways, each in a process of its own, because peak memory is a property of a process."""
    print(f"\nForward and backward pass of {TOKENS[0] * TOKENS[1]:,} tokens, vocabulary padded to {vocabulary:,}:")
    print("the best time of 3, and what they add to the peak memory of the process, gradients included")
    figures = {}
    for name, chunked in WAYS.items():
        command = [sys.executable, __file__, "--vocabulary", str(vocabulary), "--step", str(int(chunked))]
        seconds, growth = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(f"  {name:22s} {seconds:6.2f} s   {growth:7,.0f} MiB")
        figures[name] = seconds, growth
    return figures


def run_step(vocabulary: int, chunked: bool) -> tuple[float, float]:
    """Seconds of a step, and MiB that it adds to the peak."""
    model = make_model(vocabulary).train()
    linear = fc.LinearFocalLoss(GAMMA, reduction="sum")
    loss = compute_loss_func(linear, model=model) if chunked else compute_loss_func(f"fl-{GAMMA:g}")

    def step(tokens: Tensor) -> float:
        start = time.perf_counter()
        loss(model(input_ids=tokens), tokens).backward()
        model.zero_grad()
        return time.perf_counter() - start

    step(torch.randint(0, vocabulary, (1, 4)))  # wakes up the libraries
    before = peak_memory(reset=True)
    tokens = torch.randint(0, vocabulary, TOKENS)
    return min(step(tokens) for _ in range(3)), peak_memory() - before


def peak_memory(reset: bool = False) -> float:
    """The largest resident memory of this process since the last reset, in MiB (Linux)."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300, help="training steps")
    parser.add_argument("--vocabulary", type=int, help="measure a step with this many classes, too (Linux)")
    parser.add_argument("--step", type=int, choices=(0, 1), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step is None:
        main(given.steps, given.vocabulary)
    else:
        print(json.dumps(run_step(given.vocabulary, bool(given.step))))
