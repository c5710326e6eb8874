"""Two mixtures of experts, one that masks what an expert gets and one that gathers and adds it, after each other."""

import json
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

WIDTH, EXPERTS, TOP = 8, 4, 2


def expert():
    return nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, WIDTH))


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.route = nn.Linear(WIDTH, EXPERTS)
        self.experts = nn.ModuleList(expert() for _ in range(EXPERTS))

    def forward(self, x):
        scores, chosen = self.route(x).topk(TOP, dim=-1)
        sparse = torch.full((*x.shape[:-1], EXPERTS), float("-inf")).scatter(-1, chosen, scores)
        gates, result = F.softmax(sparse, dim=-1), torch.zeros_like(x)
        rows, weights = x.view(-1, x.size(-1)), gates.view(-1, EXPERTS)
        for k, layer in enumerate(self.experts):
            mask = (chosen == k).any(dim=-1)
            flat = mask.view(-1)
            if flat.any():
                result[mask] += layer(rows[flat]) * weights[flat, k].unsqueeze(1)
        return result, gates


class Gathered(nn.Module):
    def __init__(self):
        super().__init__()
        self.route = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = nn.ModuleList(expert() for _ in range(EXPERTS))

    def forward(self, x):
        rows = x.reshape(-1, WIDTH)
        weights, chosen = F.softmax(self.route(rows), dim=1).topk(TOP, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        result, masks = torch.zeros_like(rows), F.one_hot(chosen, num_classes=EXPERTS).permute(2, 1, 0)
        for k in range(EXPERTS):
            place, taken = torch.where(masks[k])
            result.index_add_(0, taken, self.experts[k](rows[taken]) * weights[taken, place, None])
        return result.reshape(x.shape)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(10, WIDTH), nn.Linear(WIDTH, 10)
        self.masked, self.gathered = Masked(), Gathered()

    def forward(self, tokens):
        x = self.embedding(tokens)
        added, gates = self.masked(x)
        x = x + added
        return self.head(x + self.gathered(x)), gates


def main():
    generator = np.random.default_rng(0)
    net = Net()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.from_numpy(generator.normal(0, 0.4, tuple(parameter.shape)).astype(np.float32)))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)

    def step(tokens, expected):
        logits, gates = net(tokens)
        load = gates.sum((0, 1))
        loss = F.cross_entropy(logits.flatten(0, 1), expected.flatten()) + 0.01 * load.var() / load.mean() ** 2
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        return loss

    run, losses = torch.compile(step) if "--compile" in sys.argv else step, []
    for _ in range(12):
        tokens = torch.from_numpy(generator.integers(0, 10, (3, 5)))
        losses.append(run(tokens, (tokens * 3 + 1) % 10).item())
    print(json.dumps({"losses": losses}))


main()
