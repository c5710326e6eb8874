"""Programs of people who have never seen the library, and take it for PyTorch."""

import copy
import itertools

from .registry import idiom


def in_turn(s, count, *shape):
    return itertools.cycle([s.numbers(*shape) for _ in range(count)])


def labels_in_turn(s, count, high, *shape):
    return itertools.cycle([s.integers(high, *shape) for _ in range(count)])


def counted(call):
    """A call of the function with how often it was called."""
    count = itertools.count(1)
    return lambda: call(next(count))


def layers(T, s, *widths):
    made = []
    for one, other in itertools.pairwise(widths):
        made += [T.nn.Linear(one, other), T.nn.ReLU()]
    return s.weights(T.nn.Sequential(*made[:-1]))


@idiom
def layer_frozen_now_and_then(T, s):
    net, x, y = layers(T, s, 3, 4, 2), in_turn(s, 4, 5, 3), labels_in_turn(s, 3, 2, 5)
    optimizer = T.optim.SGD(net.parameters(), lr=0.05)

    @s.compile
    def step(x, y):
        loss = T.nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    def call(k):
        net[0].requires_grad_(k // 3 % 2 == 0)
        step(next(x), next(y))
        return list(net.parameters())

    return counted(call)


@idiom
def weights_logged_now_and_then(T, s):
    net, x, y, log = layers(T, s, 4, 8, 1), in_turn(s, 4, 8, 4), in_turn(s, 3, 8, 1), []
    optimizer = T.optim.SGD(net.parameters(), lr=0.05)

    @s.compile
    def step(k, x, y):
        optimizer.zero_grad()
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        if k % 5 == 0:
            log[:] = [loss.item(), sum(p.grad.norm() ** 2 for p in net.parameters()).sqrt().item()]
            log.append(net[0].weight.abs().max().item())
        return loss.detach()

    return counted(lambda k: [step(k, next(x), next(y)), T.tensor(log), *net.parameters()])


@idiom
def epoch_of_shuffled_batches(T, s):
    x, y, net = s.numbers(32, 4), s.numbers(32, 1), layers(T, s, 4, 6, 1)
    optimizer = T.optim.SGD(net.parameters(), lr=0.01)
    orders = itertools.cycle([T.tensor(s.order(32)) for _ in range(3)])

    def batches(order, n):
        for i in range(0, 32, n):
            yield x[order[i : i + n]], y[order[i : i + n]]

    @s.compile
    def epoch(order):
        total = 0.0
        for rows, wanted in batches(order, 12):
            loss = ((net(rows) - wanted) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(rows)
        return T.tensor(total / 32)

    return lambda: [epoch(next(orders)), *net.parameters()]


@idiom
def rows_chosen_by_a_mask(T, s):
    x, u = in_turn(s, 4, 64), itertools.cycle([s.numbers(64).sigmoid() for _ in range(5)])

    @s.compile
    def accepted(x, u):
        kept = x[u < T.exp(-(x**2) / 4)]
        return kept.mean(), T.tensor(len(kept))

    return lambda: accepted(next(x), next(u))


@idiom
def cache_filled_by_position(T, s):
    to_all, x = s.weights(T.nn.Linear(8, 24)), in_turn(s, 5, 2, 1, 8)
    keys, values = T.zeros(2, 16, 8), T.zeros(2, 16, 8)

    @s.compile
    @T.no_grad()
    def token(x, k):
        q, key, value = to_all(x).chunk(3, -1)
        keys[:, k : k + 1] = key
        values[:, k : k + 1] = value
        weights = (q @ keys[:, : k + 1].transpose(1, 2) / 8**0.5).softmax(-1)
        return weights @ values[:, : k + 1]

    return counted(lambda k: [token(next(x), k % 16), keys])


@idiom
def cache_filled_by_index(T, s):
    to_all, x = s.weights(T.nn.Linear(8, 24)), in_turn(s, 5, 2, 1, 8)
    keys, values, places, place = T.zeros(2, 16, 8), T.zeros(2, 16, 8), T.arange(16), T.zeros(1, dtype=T.int64)

    @s.compile
    def token(x):
        with T.no_grad():
            q, key, value = to_all(x).chunk(3, -1)
            keys.index_copy_(1, place, key)
            values.index_copy_(1, place, value)
            scores = (q @ keys.transpose(1, 2)).masked_fill(places > place, float("-inf"))
            place.add_(1).remainder_(16)
            return scores.softmax(-1) @ values

    return lambda: [token(next(x)), place]


@idiom
def search_with_beams(T, s):
    w, words, start = s.numbers(6, 6, scale=0.7), s.numbers(9, 6), in_turn(s, 5, 6)

    @s.compile
    def search(state, n_kept=3):
        states, found, scores = state[None], T.zeros(1, 0, dtype=T.int64), T.zeros(1)
        for _ in range(4):
            all_scores = (scores[:, None] + T.log_softmax(states @ words.T, -1)).view(-1)
            scores, best = all_scores.topk(n_kept)
            beam, word = best // 9, best % 9
            found = T.cat([found[beam], word[:, None]], 1)
            states = T.tanh(states[beam] @ w + words[word])
        return found, scores

    return lambda: search(next(start))


@idiom
def ratio_of_policies_clipped(T, s):
    policy, value = layers(T, s, 4, 16, 3), layers(T, s, 4, 16, 1)
    groups = [{"params": policy.parameters()}, {"params": value.parameters(), "lr": 3e-3}]
    optimizer = T.optim.Adam(groups, lr=3e-4, eps=1e-5)
    seen, taken, gains, returns = (
        in_turn(s, 4, 16, 4),
        labels_in_turn(s, 3, 3, 16),
        in_turn(s, 3, 16),
        in_turn(s, 3, 16),
    )

    @s.compile
    def update(seen, taken, before, gains, returns, clip=0.2):
        chosen = T.distributions.Categorical(logits=policy(seen))
        ratio = (chosen.log_prob(taken) - before).exp()
        gains = (gains - gains.mean()) / (gains.std() + 1e-8)
        loss = -T.min(ratio * gains, ratio.clamp(1 - clip, 1 + clip) * gains).mean()
        loss = loss + 0.5 * ((value(seen).flatten() - returns) ** 2).mean() - 0.01 * chosen.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        T.nn.utils.clip_grad_norm_((p for group in optimizer.param_groups for p in group["params"]), 0.5)
        optimizer.step()
        return T.tensor([loss.item(), ((ratio - 1).abs() > clip).float().mean().item()])

    def call():
        x, a = next(seen), next(taken)
        with T.no_grad():
            before = T.log_softmax(policy(x), -1).gather(1, a[:, None])[:, 0]
        return [update(x, a, before, next(gains), next(returns)), *policy.parameters()]

    return call


@idiom
def coupling_layers(T, s):
    nets, x = [layers(T, s, 2, 16, 4) for _ in range(3)], in_turn(s, 6, 16, 4)
    optimizer = T.optim.Adam(itertools.chain(*(net.parameters() for net in nets)), lr=1e-3)

    @s.compile
    def step(x):
        log_volume = 0
        for k, net in enumerate(nets):
            a, b = x.chunk(2, 1) if k % 2 else x.chunk(2, 1)[::-1]
            scale, shift = net(a).chunk(2, dim=1)
            scale = T.tanh(scale)
            x, log_volume = T.cat([a, b * scale.exp() + shift], dim=1), log_volume + scale.sum(1)
        loss = (0.5 * (x**2).sum(1) - log_volume).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return lambda: [step(next(x)), *nets[0].parameters()]


@idiom
def messages_along_edges(T, s):
    source, target, x, y = s.integers(10, 30), s.integers(10, 30), in_turn(s, 4, 10, 4), labels_in_turn(s, 3, 3, 10)
    first, second = s.weights(T.nn.Linear(4, 8)), s.weights(T.nn.Linear(8, 3))
    optimizer = T.optim.Adam([*first.parameters(), *second.parameters()], lr=0.01)
    degrees = T.zeros(10).index_add_(0, target, T.ones(30)).clamp(min=1)

    def gathered(h):
        return T.zeros(10, h.size(1)).index_add_(0, target, h[source]) / degrees.unsqueeze(1)

    @s.compile
    def step(x, y):
        optimizer.zero_grad()
        scores = T.log_softmax(gathered(second(T.relu(gathered(first(x))))), dim=-1)
        loss = T.nn.functional.nll_loss(scores, y)
        loss.backward()
        optimizer.step()
        return loss.detach(), (scores.argmax(1) == y).sum()

    return lambda: [*step(next(x), next(y)), first.weight]


@idiom
def gradients_through_inner_steps(T, s):
    net = s.weights(T.nn.Sequential(T.nn.Linear(1, 8), T.nn.Tanh(), T.nn.Linear(8, 1)))
    x, y, optimizer = in_turn(s, 4, 5, 1), in_turn(s, 3, 5, 1), T.optim.Adam(net.parameters(), lr=1e-2)

    def loss_of(weights, x, y):
        return ((T.func.functional_call(net, weights, (x,)) - y) ** 2).mean()

    @s.compile
    def outer(tasks):
        optimizer.zero_grad()
        total = 0.0
        for x, y, other_x, other_y in tasks:
            quick = dict(net.named_parameters())
            for _ in range(2):
                slopes = T.autograd.grad(loss_of(quick, x, y), quick.values(), create_graph=True)
                quick = {name: p - 0.05 * slope for (name, p), slope in zip(quick.items(), slopes)}
            total = total + loss_of(quick, other_x, other_y)
        total.backward()
        optimizer.step()
        return total.detach()

    return lambda: [outer([(next(x), next(y), next(x), next(y)) for _ in range(2)]), *net.parameters()]


@idiom
def layer_that_is_a_fixed_point(T, s):
    inner, outer = s.weights(T.nn.Linear(6, 6)), s.weights(T.nn.Linear(3, 6))
    with T.no_grad():
        inner.weight.mul_(0.3)
    optimizer = T.optim.SGD([*inner.parameters(), *outer.parameters()], lr=0.05)
    x, y = in_turn(s, 5, 4, 3), in_turn(s, 3, 4, 6)

    @s.compile
    def step(x, y):
        with T.no_grad():
            z = T.zeros(4, 6)
            for _ in range(30):
                z, before = T.tanh(inner(z) + outer(x)), z
                if (z - before).abs().max() < 1e-4:
                    break
        z.requires_grad_()
        f = T.tanh(inner(z) + outer(x))
        v = g = 2 * (f.detach() - y) / y.numel()
        for _ in range(5):
            v = g + T.autograd.grad(f, z, v, retain_graph=True)[0]
        optimizer.zero_grad()
        f.backward(v)
        optimizer.step()
        return ((f.detach() - y) ** 2).mean()

    return lambda: [step(next(x), next(y)), inner.weight, outer.bias]


@idiom
def averaged_every_few_steps(T, s):
    net, x, y = layers(T, s, 4, 8, 1), in_turn(s, 4, 8, 4), in_turn(s, 3, 8, 1)
    average, optimizer = copy.deepcopy(net), T.optim.SGD(net.parameters(), lr=0.05)

    @s.compile
    def step(k, x, y):
        optimizer.zero_grad()
        loss = T.nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        if k % 4 == 0:
            with T.no_grad():
                for mean, p in zip(average.parameters(), net.parameters()):
                    mean.add_((p - mean) / (k // 4 + 1))
        return loss.detach()

    return counted(lambda k: [step(k, next(x), next(y)), *average.parameters()])


@idiom
def chain_of_labels(T, s):
    between, start = s.parameter(4, 4), s.parameter(4)
    scores, labels, optimizer = in_turn(s, 5, 7, 4), labels_in_turn(s, 3, 4, 7), T.optim.SGD([between, start], lr=0.01)

    @s.compile
    def loss_of(scores, labels):
        paths, path = start + scores[0], start[labels[0]] + scores[0, labels[0]]
        for t in range(1, 7):
            paths = T.logsumexp(paths.unsqueeze(1) + between, dim=0) + scores[t]
            path = path + between[labels[t - 1], labels[t]] + scores[t, labels[t]]
        return T.logsumexp(paths, 0) - path

    def call():
        loss = loss_of(next(scores), next(labels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return [loss, between, start]

    return call


@idiom
def alignment_of_two_series(T, s):
    a, b = in_turn(s, 3, 5), in_turn(s, 4, 4)

    @s.compile
    def distance(a, b, softness=0.5):
        apart, cost = (a[:, None] - b[None]) ** 2, T.full((6, 5), 1e4)
        cost[0, 0] = 0
        for i in range(1, 6):
            for j in range(1, 5):
                ways = T.stack([cost[i - 1, j], cost[i, j - 1], cost[i - 1, j - 1]])
                cost[i, j] = apart[i - 1, j - 1] - softness * T.logsumexp(ways / -softness, 0)
        return cost[-1, -1]

    return lambda: distance(next(a), next(b))


@idiom
def critic_frozen_in_the_step(T, s):
    maker, critic = s.weights(T.nn.Linear(3, 4)), s.weights(T.nn.Linear(4, 1))
    opt, z = T.optim.Adam(maker.parameters(), lr=0.01), in_turn(s, 4, 8, 3)

    @s.compile
    def step(z):
        critic.requires_grad_(False)
        opt.zero_grad()
        loss = T.nn.functional.softplus(-critic(maker(z))).mean()
        loss.backward()
        opt.step()
        critic.requires_grad_(True)
        return loss.detach()

    return lambda: (step(next(z)), list(maker.parameters()))
