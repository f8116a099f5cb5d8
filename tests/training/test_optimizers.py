from copy import deepcopy
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphrerank.config.components import ComponentFactory
from graphrerank.training.optimizers import MuonAdamW, build_optimizer, component_entry, group_parameters


class Network(nn.Module):
    """Two layers with a norm in between, and a parameter without a layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.lin_in = nn.Linear(4, 3)
        self.norm = nn.LayerNorm(3)
        self.lin_out = nn.Linear(3, 1)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * self.lin_out(self.norm(self.lin_in(x)))


def named_groups(model: nn.Module, groups: list[dict[str, Any]]) -> list[tuple[set[str], float, float | None]]:
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [
        ({names[id(parameter)] for parameter in group["params"]}, group["weight_decay"], group.get("lr"))
        for group in groups
    ]


def test_matrices_alone_decay() -> None:
    model = Network()
    matrices, others = named_groups(model, group_parameters(model, weight_decay=0.1))
    assert matrices == ({"lin_in.weight", "lin_out.weight"}, 0.1, None)
    assert others == ({"lin_in.bias", "lin_out.bias", "norm.weight", "norm.bias", "scale"}, 0.0, None)


def test_the_longest_prefix_wins() -> None:
    model = Network()
    groups = named_groups(
        model,
        group_parameters(
            model,
            weight_decay=0.1,
            parameter_groups={"lin_in": 1e-4, "lin_in.bias": {"learning_rate": 0.0}, "scale": {"weight_decay": 1.0}},
        ),
    )
    assert groups[0][0] == {"lin_out.weight"}
    assert groups[2:] == [({"lin_in.weight"}, 0.1, 1e-4), ({"lin_in.bias"}, 0.0, 0.0), ({"scale"}, 0.0, None)]


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"lin_inn": 1e-3}, "prefixes of the model's parameter names, got 'lin_inn'. Did you mean 'lin_in'"),
        ({"lin": 1e-3}, r"got 'lin'"),
        ({"lin_in": -1.0}, "`parameter_groups.lin_in.learning_rate` must not be negative, got -1.0"),
        ({"lin_in": {"lr": 1.0}}, "`parameter_groups.lin_in` must be a learning rate, or numbers by the names"),
        ({"lin_in": "fast"}, "got learning_rate: 'fast'"),
        ({"lin_in": 1.0, "lin_in.weight": 1.0, "lin_in.bias": 1.0}, "`parameter_groups.lin_in` has no parameters"),
    ],
)
def test_invalid_groups_are_refused(groups: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        group_parameters(Network(), weight_decay=0.0, parameter_groups=groups)


def test_a_learning_rate_of_a_partial_replaces_that_of_the_settings() -> None:
    build = partial(build_optimizer, model=Network(), learning_rate=1e-3, weight_decay=0.1)
    groups = build(partial(torch.optim.SGD, lr=0.5, weight_decay=None)).param_groups
    assert [(group["lr"], group["weight_decay"]) for group in groups] == [(0.5, 0.1), (0.5, 0.0)]
    without_rate = build(lambda groups: torch.optim.SGD(groups, lr=0.25)).param_groups
    assert without_rate[0]["lr"] == 0.25


def trained(optimizer: torch.optim.Optimizer, model: nn.Module, num_steps: int) -> None:
    for step in range(num_steps):
        torch.manual_seed(step)
        x = torch.randn(16, 4)
        optimizer.zero_grad()
        (model(x).squeeze(1) - x[:, 0]).pow(2).mean().backward()
        optimizer.step()


def test_adamw_against_the_optimizer_of_earlier_versions() -> None:
    ours, before = Network(), Network()
    factory = ComponentFactory().build("optimizer", "adamw")
    trained(build_optimizer(factory, ours, learning_rate=1e-2, weight_decay=0.1), ours, 5)
    groups = [
        {"params": [p for p in before.parameters() if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in before.parameters() if p.dim() <= 1], "weight_decay": 0.0},
    ]
    trained(torch.optim.AdamW(groups, lr=1e-2), before, 5)
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), before.parameters(), strict=True))


@pytest.mark.parametrize(("name", "rate"), [("adamw", 1e-2), ("sgd", 0.1), ("adafactor", 1e-1), ("muon", 1e-2)])
def test_every_optimizer_of_conf_reduces_a_loss(name: str, rate: float) -> None:
    model, x = Network(), torch.randn(64, 4, generator=torch.Generator().manual_seed(1))
    before = float((model(x).squeeze(1) - x[:, 0]).pow(2).mean())
    trained(
        build_optimizer(ComponentFactory().build("optimizer", name), model, learning_rate=rate, weight_decay=0.0),
        model,
        60,
    )
    assert float((model(x).squeeze(1) - x[:, 0]).pow(2).mean()) < 0.7 * before


def test_muon_against_both_optimizers_of_torch() -> None:
    together, apart = Network(), Network()
    trained(build_optimizer(MuonAdamW, together, learning_rate=1e-2, weight_decay=0.1), together, 4)
    muon = torch.optim.Muon([apart.lin_in.weight], lr=1e-2, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    others = [p for p in apart.parameters() if p is not apart.lin_in.weight]
    adamw = torch.optim.AdamW([{"params": [p], "weight_decay": 0.1 if p.dim() > 1 else 0.0} for p in others], lr=1e-2)
    for step in range(4):
        torch.manual_seed(step)
        x = torch.randn(16, 4)
        muon.zero_grad()
        adamw.zero_grad()
        (apart(x).squeeze(1) - x[:, 0]).pow(2).mean().backward()
        muon.step()
        adamw.step()
    for name, weight in together.named_parameters():
        torch.testing.assert_close(weight, apart.get_parameter(name), msg=name)


def test_muon_with_a_schedule_continues_from_its_state() -> None:
    unbroken, resumed = Network(), Network()
    optimizer = MuonAdamW(unbroken.parameters(), lr=1e-2)
    trained(optimizer, unbroken, 2)
    resumed.load_state_dict(unbroken.state_dict())
    again = MuonAdamW(resumed.parameters(), lr=1.0)
    again.load_state_dict(deepcopy(optimizer.state_dict()))
    assert [group["lr"] for group in again.param_groups] == [1e-2, 1e-2]
    for each, model in ((optimizer, unbroken), (again, resumed)):
        for group in each.param_groups:  # what a schedule does
            group["lr"] = 1e-3
        trained(each, model, 2)
    assert all(torch.equal(a, b) for a, b in zip(unbroken.parameters(), resumed.parameters(), strict=True))


def test_an_entry_of_a_manifest_is_plain() -> None:
    entry = component_entry(partial(torch.optim.AdamW, betas=(0.9, 0.99), eps=torch.tensor(1.0)))
    assert entry == {"name": "torch.optim.adamw.AdamW", "arguments": {"betas": [0.9, 0.99], "eps": "tensor(1.)"}}
