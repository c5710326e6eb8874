"""Models that are trained with other models: autoencoders, adversaries, teachers, averages. Not a test."""

import copy

from training_programs import N_STEPS, program


@program
def autoencoder_with_tied_weights(T, s):
    F = T.nn.functional
    x = s.numbers(32, 8).tanh()
    weight, code_bias, bias = s.parameter(3, 8, scale=0.3), s.parameter(3, scale=0.1), s.parameter(8, scale=0.1)
    params = [weight, code_bias, bias]
    optimizer = T.optim.Adam(params, lr=0.02)
    schedule = T.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.99)

    @s.compile
    def step(x):
        code = F.linear(x, weight, code_bias).sigmoid()
        loss = F.mse_loss(F.linear(code, weight.t(), bias).tanh(), x)
        optimizer.zero_grad()
        loss.backward()
        T.nn.utils.clip_grad_norm_(iter(params), 0.1)
        optimizer.step()
        return loss

    for _ in range(N_STEPS):
        yield step(x)
        schedule.step()


@program
def language_model_with_tied_weights(T, s):
    nn = T.nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(11, 6)
            self.hidden = nn.Linear(12, 6)
            self.head = nn.Linear(6, 11, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, words):
            return self.head(self.hidden(self.embedding(words).flatten(1)).relu())

    text = s.integers(11, 60)
    model = s.weights(Model())
    optimizer = T.optim.AdamW(model.parameters(), lr=0.02)

    @s.compile
    def step(words, following):
        loss = nn.functional.cross_entropy(model(words), following)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    assert len(list(model.parameters())) == 3
    for k in range(N_STEPS):
        at = T.tensor([(k * 7 + j * 5) % 58 for j in range(10)])
        yield step(T.stack([text[at], text[at + 1]], dim=1), text[at + 2])


@program
def adversaries(T, s):
    nn = T.nn
    real = s.numbers(40, 2) * 0.5 + 1
    generator = s.weights(nn.Sequential(nn.Linear(3, 16), nn.LeakyReLU(0.2), nn.Linear(16, 2)))
    critic = s.weights(nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1)))
    criterion = nn.BCEWithLogitsLoss()
    of_generator = T.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
    of_critic = T.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.5, 0.999))

    @s.compile
    def critic_step(real, noise):
        of_critic.zero_grad()
        right = criterion(critic(real), T.ones(len(real), 1))
        loss = right + criterion(critic(generator(noise).detach()), T.zeros(len(real), 1))
        loss.backward()
        of_critic.step()
        return loss

    @s.compile
    def generator_step(noise):
        of_generator.zero_grad()
        loss = criterion(critic(generator(noise)), T.ones(len(noise), 1))
        loss.backward()
        of_generator.step()
        return loss

    for k in range(N_STEPS):
        noise = s.numbers(8, 3)
        yield critic_step(real[k % 5 * 8 : k % 5 * 8 + 8], noise) + generator_step(noise)


@program
def variational_autoencoder(T, s):
    nn, F = T.nn, T.nn.functional
    x = s.numbers(24, 6).sigmoid()
    encoder, mean, deviation = s.weights(nn.Linear(6, 12)), s.weights(nn.Linear(12, 2)), s.weights(nn.Linear(12, 2))
    decoder = s.weights(nn.Sequential(nn.Linear(2, 12), nn.ReLU(), nn.Linear(12, 6), nn.Sigmoid()))
    parts = nn.ModuleList([encoder, mean, deviation, decoder])
    optimizer = T.optim.RMSprop(parts.parameters(), lr=3e-3)

    @s.compile
    def step(x, noise):
        hidden = F.relu(encoder(x))
        mu, log_variance = mean(hidden), deviation(hidden)
        z = mu + noise * T.exp(0.5 * log_variance)
        likelihood = F.binary_cross_entropy(decoder(z), x, reduction="sum")
        divergence = -0.5 * T.sum(1 + log_variance - mu.pow(2) - log_variance.exp())
        loss = (likelihood + divergence) / len(x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(N_STEPS):
        yield step(x, s.numbers(24, 2))


@program
def teacher_and_student(T, s):
    nn, F = T.nn, T.nn.functional
    x = s.numbers(32, 5)
    teacher = s.weights(nn.Sequential(nn.Linear(5, 20), nn.ReLU(), nn.Linear(20, 4))).eval()
    student = s.weights(nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 4)))
    for p in teacher.parameters():
        p.requires_grad_(False)
    optimizer = T.optim.SGD(student.parameters(), lr=0.1, momentum=0.9)

    @s.compile
    def step(x):
        with T.no_grad():
            wanted = F.softmax(teacher(x) / 2, dim=-1)
        given = F.log_softmax(student(x) / 2, dim=-1)
        loss = F.kl_div(given, wanted, reduction="batchmean") * 4
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for k in range(N_STEPS):
        yield step(x[k % 2 :: 2])


@program
def mean_teacher(T, s):
    """A teacher that is the moving average of its student, buffers included."""
    nn = T.nn
    x, y = s.numbers(32, 4), s.numbers(32, 1)
    student = s.weights(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1)))
    teacher = copy.deepcopy(student)
    optimizer = T.optim.Adam(student.parameters(), lr=0.01)
    s.trained += [*teacher.parameters(), *teacher.buffers()]

    @s.compile
    def step(x, y, noise):
        with T.no_grad():
            wanted = teacher(x)
        loss = nn.functional.mse_loss(student(x + noise), y) + nn.functional.mse_loss(student(x), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for slow, fast in zip(teacher.parameters(), student.parameters()):
            slow.data.mul_(0.9).add_(fast.data, alpha=0.1)
        return loss

    for _ in range(N_STEPS):
        yield step(x, y, s.numbers(32, 4, scale=0.1))


@program
def averaged_weights(T, s):
    """Stochastic weight averaging by hand, on state_dicts."""
    nn = T.nn
    x, y = s.numbers(30, 3), s.numbers(30, 2)
    model = s.weights(nn.Sequential(nn.Linear(3, 7), nn.Hardtanh(), nn.Linear(7, 2)))
    averaged = copy.deepcopy(model)
    optimizer = T.optim.SGD(model.parameters(), lr=0.2)

    @s.compile
    def step(x, y):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for k in range(N_STEPS):
        loss = step(x[k % 3 :: 3], y[k % 3 :: 3])
        if k >= 30:
            n = k - 30
            state = {
                key: (averaged.state_dict()[key] * n + value) / (n + 1) for key, value in model.state_dict().items()
            }
            averaged.load_state_dict(state)
            with T.no_grad():
                loss = nn.functional.mse_loss(averaged(x), y)
        yield loss


@program
def triplets(T, s):
    nn, F = T.nn, T.nn.functional
    anchor, near, far = s.numbers(24, 5), s.numbers(24, 5), s.numbers(24, 5)
    model = s.weights(nn.Sequential(nn.Linear(5, 10), nn.PReLU(), nn.Linear(10, 3)))
    optimizer = T.optim.Adagrad(model.parameters(), lr=0.05, lr_decay=0.01)

    @s.compile
    def step(anchor, near, far):
        a, n, f = (F.normalize(model(x), dim=1) for x in (anchor, near, far))
        margin = (a - n).pow(2).sum(1) - (a - f).pow(2).sum(1) + 0.5
        loss = F.relu(margin).mean() + 0.1 * (1 - F.cosine_similarity(a, n)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(N_STEPS):
        yield step(anchor, anchor + 0.1 * near, far)


@program
def mixture_of_densities(T, s):
    nn = T.nn
    x = s.numbers(40, 1)
    y = x.sin() + s.numbers(40, 1, scale=0.1)
    body, heads = s.weights(nn.Linear(1, 12)), s.weights(nn.ModuleList(nn.Linear(12, 3) for _ in range(3)))
    optimizer = T.optim.Adam([{"params": body.parameters()}, {"params": heads.parameters(), "lr": 2e-3}], lr=5e-3)

    @s.compile
    def step(x, y):
        hidden = T.tanh(body(x))
        weight, mean, size = (head(hidden) for head in heads)
        density = -0.5 * ((y - mean) / size.exp()) ** 2 - size
        loss = -T.logsumexp(T.log_softmax(weight, dim=1) + density, dim=1).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_((p for group in optimizer.param_groups for p in group["params"]), 5.0)
        optimizer.step()
        return loss

    for _ in range(N_STEPS):
        yield step(x, y)


@program
def policy_gradient(T, s):
    """REINFORCE with a baseline in a corridor; what is played is decided by the policy and fixed random numbers."""
    nn = T.nn
    policy = s.weights(nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2)))
    value = s.weights(nn.Linear(5, 1))
    optimizer = T.optim.Adam([*policy.parameters(), *value.parameters()], lr=0.01)
    places = T.eye(5)

    def play():
        at, visited, actions, rewards = 2, [], [], []
        for draw in s.rng.random(8):
            with T.no_grad():
                right = T.softmax(policy(places[at : at + 1]), dim=-1)[0, 1].item()
            visited.append(at)
            actions.append(int(draw < right))
            at = min(max(at + 2 * actions[-1] - 1, 0), 4)
            rewards.append(float(at == 4) - 0.1)
        returns = [sum(r * 0.9**j for j, r in enumerate(rewards[k:])) for k in range(8)]
        return places[T.tensor(visited)], T.tensor(actions), T.tensor(returns)

    @s.compile
    def learn(seen, actions, returns):
        log_probs = T.log_softmax(policy(seen), dim=-1).gather(1, actions.unsqueeze(1)).squeeze(1)
        expected = value(seen).squeeze(1)
        advantage = returns - expected.detach()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
        loss = -(log_probs * advantage).mean() + 0.5 * nn.functional.mse_loss(expected, returns)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
        optimizer.step()
        return loss

    for _ in range(N_STEPS):
        yield learn(*play())


@program
def recurrent_cells(T, s):
    """Truncated backpropagation through time: the state goes on from step to step, without its history."""
    nn = T.nn
    series = (T.arange(0, 200) * 0.3).sin().reshape(-1, 1) + s.numbers(200, 1, scale=0.01)
    cell, out = s.weights(nn.Linear(9, 32)), s.weights(nn.Linear(8, 1))
    optimizer = T.optim.Adam(nn.ModuleList([cell, out]).parameters(), lr=0.02)

    @s.compile
    def step(inputs, wanted, h, c):
        loss = 0.0
        for x, y in zip(inputs, wanted):
            i, f, g, o = cell(T.cat([x.reshape(1, 1), h], dim=1)).chunk(4, dim=1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            loss = loss + (out(h) - y).square().sum()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_([*cell.parameters(), *out.parameters()], 1.0)
        optimizer.step()
        return loss / len(inputs), h.detach(), c.detach()

    h = c = T.zeros(1, 8)
    for k in range(N_STEPS):
        start = k % 30 * 6
        loss, h, c = step(series[start : start + 6], series[start + 1 : start + 7], h, c)
        yield loss


@program
def attention(T, s):
    nn, F = T.nn, T.nn.functional

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.place = nn.Embedding(7, 8), nn.Parameter(T.zeros(5, 8))
            self.mixed, self.norm, self.head = nn.Linear(8, 24), nn.LayerNorm(8), nn.Linear(8, 7)
            self.register_buffer("mask", T.ones(5, 5).triu(1).bool())

        def forward(self, words):
            x = self.embedding(words) + self.place
            q, k, v = self.mixed(self.norm(x)).split(8, dim=-1)
            scores = (q @ k.transpose(-2, -1) / 8**0.5).masked_fill(self.mask, float("-inf"))
            return self.head(x + F.softmax(scores, dim=-1) @ v)

    words = s.integers(7, 16, 6)
    model = s.weights(Model())
    optimizer = T.optim.AdamW(model.parameters(), lr=0.01)
    schedule = T.optim.lr_scheduler.CosineAnnealingLR(optimizer, N_STEPS, eta_min=1e-3)

    @s.compile
    def step(words):
        loss = F.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    for _ in range(N_STEPS):
        yield step(words)
        schedule.step()
