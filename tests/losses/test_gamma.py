from __future__ import annotations

import numpy as np
import pytest
import torch

import focalcal as fc


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("flsd-53", {0.0: 5, 0.1999: 5, 0.2: 3, 0.5: 3, 1.0: 3}),
        ("FLSD-532", {0.0: 5, 0.1999: 5, 0.2: 3, 0.4999: 3, 0.5: 2, 1.0: 2}),
    ],
)
def test_sample_dependent_policies_follow_the_paper(name, expected):
    policy = fc.FocalLoss(name).gamma
    for p in (torch.tensor(list(expected), dtype=torch.float64), np.array(list(expected))):
        assert policy(p).tolist() == list(expected.values())


@pytest.mark.parametrize(("name", "last"), [("flsc-531", 1), ("flsc-532", 2)])
def test_scheduled_policies_follow_the_papers_epochs(name, last):
    loss = fc.FocalLoss(name)
    logits, labels = torch.tensor([[1.0, 0.0]]), torch.tensor([0])
    for epoch, gamma in [(0, 5), (99, 5), (100, 3), (249, 3), (250, last), (349, last)]:
        loss.set_epoch(epoch)
        assert torch.equal(loss(logits, labels), fc.focal_loss(logits, labels, gamma=float(gamma)))


@pytest.mark.parametrize("total", [7, 35, 70, 350, 700])
def test_a_schedule_stretches_to_any_length_of_training(total):
    schedule = fc.ScheduledGamma([5, 3, 1])
    gammas = []
    for epoch in range(total):
        schedule.set_epoch(epoch, total_epochs=total)
        gammas.append(schedule.gamma)
    assert [gammas.count(g) for g in (5, 3, 1)] == [total * 2 // 7, total * 3 // 7, total * 2 // 7]
    assert gammas == sorted(gammas, reverse=True)


def test_lambert_policy_makes_the_gradient_equal_at_its_last_threshold():
    policy = fc.StepGamma.lambert([0.2, 0.25])
    gammas = policy(torch.tensor([0.19, 0.2, 0.6], dtype=torch.float64)).tolist()
    assert gammas == [fc.gamma_star(0.2), fc.gamma_star(0.25), fc.gamma_star(0.25)]
    assert float(fc.gradient_ratio(0.25, gammas[-1])) == pytest.approx(1, abs=1e-12)


def test_the_choice_of_gamma_carries_no_gradient():
    logits = torch.tensor([[0.3, 0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([1])
    fc.FocalLoss("flsd-53")(logits, labels).backward()
    x = logits.detach().clone().requires_grad_()
    fc.focal_loss(x, labels, gamma=3.0).backward()
    assert torch.equal(logits.grad, x.grad)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: fc.StepGamma([0.5, 0.2], [1, 2, 3]), "thresholds: must rise strictly between 0 and 1"),
        (lambda: fc.StepGamma([0.2], [5]), "gammas: must be one more than thresholds; got 1 and 1"),
        (lambda: fc.StepGamma([1.0], [5, 3]), "thresholds: must rise"),
        (lambda: fc.StepGamma.lambert([0.6]), "p0: must lie strictly between 0 and 0.5"),
        (lambda: fc.ScheduledGamma([5, 3]), "gammas: must be one more than milestones; got 2 and 2"),
        (lambda: fc.ScheduledGamma([5, 3, 1], [250, 100]), "milestones: must rise"),
        (lambda: fc.ScheduledGamma([5, 3, 1], [100, 100]), "milestones: must rise"),
        (lambda: fc.ScheduledGamma([5, 3, 1]).set_epoch(-1), "epoch: must not be negative"),
        (lambda: fc.ScheduledGamma([5, 3, 1]).set_epoch(1, total_epochs=0), "total_epochs: must be positive"),
    ],
)
def test_bad_input_is_refused(call, match):
    with pytest.raises(fc.InputError, match=match):
        call()
