"""Twenty programs as beginners' material and papers' repositories have them, written for weft and PyTorch alike.

Each is a function of the library, trains 200 steps in eager mode and returns its last loss. Data are drawn by NumPy, so
that both libraries see the same.
"""

import math

import numpy as np

STEPS = 200
PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__.replace("_", " ")] = function
    return function


def normal(T, *shape, seed=0):
    return T.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def integers(T, high, *shape, seed=0):
    return T.from_numpy(np.random.default_rng(seed).integers(0, high, shape))


def images(T):
    """Handwritten digits would need a download: patterns of ten classes, with noise."""
    labels = integers(T, 10, 512)
    return normal(T, 10, 64, seed=1)[labels] + 0.5 * normal(T, 512, 64, seed=2), labels


def train(model, optimizer, loss_of, after=lambda: None):
    """The usual loop, of which most programs are an instance."""
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(step)
        loss.backward()
        after()
        optimizer.step()
    return loss.item()


# --- fits -------------------------------------------------------------------------------------------------------------
@program
def polynomial_by_hand(T):
    x = T.linspace(-math.pi, math.pi, 2000)
    y, weights = T.sin(x), [0.1, 0.2, -0.1, 0.05]
    for _ in range(STEPS):
        a, b, c, d = weights
        prediction = a + b * x + c * x**2 + d * x**3
        loss = (prediction - y).pow(2).sum().item()
        slope = 2.0 * (prediction - y)
        gradients = [(slope * x**k).sum().item() for k in range(4)]
        weights = [w - 1e-6 * g for w, g in zip(weights, gradients)]
    return loss


@program
def polynomial_with_autograd(T):
    x = T.linspace(-math.pi, math.pi, 2000)
    y, weights = T.sin(x), [T.full((), w, requires_grad=True) for w in (0.1, 0.2, -0.1, 0.05)]
    for _ in range(STEPS):
        loss = (sum(w * x**k for k, w in enumerate(weights)) - y).pow(2).sum()
        loss.backward()
        with T.no_grad():
            for w in weights:
                w -= 1e-6 * w.grad
                w.grad = None
    return loss.item()


@program
def polynomial_of_modules(T):
    x = T.linspace(-math.pi, math.pi, 2000)
    y, powers = T.sin(x), x.unsqueeze(-1).pow(T.tensor([1, 2, 3]))
    model = T.nn.Sequential(T.nn.Linear(3, 1), T.nn.Flatten(0, 1))
    loss = T.nn.MSELoss(reduction="sum")
    return train(model, T.optim.RMSprop(model.parameters(), lr=1e-3), lambda _: loss(model(powers), y))


@program
def logistic_regression(T):
    x = normal(T, 300, 20)
    y = (x @ normal(T, 20, seed=1) > 0).float()
    w, b = T.zeros(20, requires_grad=True), T.zeros(1, requires_grad=True)
    loss = T.nn.functional.binary_cross_entropy_with_logits
    return train(None, T.optim.SGD([w, b], lr=0.5), lambda _: loss(x @ w + b, y) + 1e-3 * w.norm())


@program
def regression_net(T):
    x = T.linspace(-1, 1, 256).unsqueeze(1)
    y = T.sin(3 * x) + 0.1 * normal(T, 256, 1)
    model = T.nn.Sequential(T.nn.Linear(1, 64), T.nn.Tanh(), T.nn.Linear(64, 64), T.nn.Tanh(), T.nn.Linear(64, 1))
    return train(model, T.optim.Adam(model.parameters()), lambda _: T.nn.functional.mse_loss(model(x), y))


@program
def matrix_factorization(T):
    users, items = integers(T, 100, 1000), integers(T, 80, 1000, seed=1)
    ratings = normal(T, 1000, seed=2)
    left, right = T.nn.Embedding(100, 16), T.nn.Embedding(80, 16)
    optimizer = T.optim.Adam([*left.parameters(), *right.parameters()], lr=0.01)
    return train(None, optimizer, lambda _: ((left(users) * right(items)).sum(1) - ratings).pow(2).mean())


# --- classifiers ------------------------------------------------------------------------------------------------------
@program
def digits_with_a_loader(T):
    x, y = images(T)
    loader = T.utils.data.DataLoader(T.utils.data.TensorDataset(x, y), batch_size=64, shuffle=True)
    model = T.nn.Sequential(T.nn.Linear(64, 128), T.nn.ReLU(), T.nn.Dropout(0.2), T.nn.Linear(128, 10))
    optimizer, loss_of = T.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), T.nn.CrossEntropyLoss()
    for _ in range(STEPS // len(loader)):
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss = loss_of(model(inputs), labels)
            loss.backward()
            optimizer.step()
        with T.no_grad():
            (model(x).argmax(1) == y).float().mean().item()
    return loss.item()


@program
def convolutional_classifier(T):
    (x, y), nn = images(T), T.nn
    x = x.reshape(-1, 1, 8, 8)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip
    optimizer, batches = T.optim.Adam(model.parameters()), x.split(32)
    return train(model, optimizer, lambda k: nn.functional.cross_entropy(model(batches[k % 16]), y.split(32)[k % 16]))


@program
def residual_net_with_a_schedule(T):
    (x, y), nn = images(T), T.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.linear, self.dropout = nn.BatchNorm1d(64), nn.Linear(64, 64), nn.Dropout(0.1)

        def forward(self, x):
            return x + self.dropout(nn.functional.gelu(self.linear(self.norm(x))))

    model = nn.Sequential(Block(), Block(), Block(), nn.Linear(64, 10))
    optimizer = T.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = T.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)

    def after():
        T.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        schedule.step()

    return train(model, optimizer, lambda _: nn.functional.cross_entropy(model(x[:64]), y[:64]), after)


@program
def graph_convolution(T):
    edges = (normal(T, 100, 100) > 1.5).float()
    edges = edges + edges.t() + T.eye(100)
    adjacency = edges / edges.sum(1, keepdim=True)
    x, y = normal(T, 100, 32, seed=1), integers(T, 7, 100)
    first, second = T.nn.Linear(32, 16), T.nn.Linear(16, 7)
    optimizer = T.optim.Adam([*first.parameters(), *second.parameters()], lr=0.01, weight_decay=5e-4)

    def loss_of(_):
        hidden = T.relu(adjacency @ first(x))
        scores = adjacency @ second(T.nn.functional.dropout(hidden, 0.5))
        return T.nn.functional.nll_loss(T.log_softmax(scores, 1)[:70], y[:70])

    return train(None, optimizer, loss_of)


# --- generative models ------------------------------------------------------------------------------------------------
@program
def autoencoder(T):
    (x, _), nn = images(T), T.nn
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8), nn.ReLU(), nn.Linear(8, 64))
    return train(model, T.optim.Adam(model.parameters()), lambda k: nn.functional.mse_loss(model(x[:128]), x[:128]))


@program
def variational_autoencoder(T):
    x, F = T.sigmoid(images(T)[0][:128]), T.nn.functional
    encode, mean, log_variance = T.nn.Linear(64, 32), T.nn.Linear(32, 4), T.nn.Linear(32, 4)
    decode = T.nn.Sequential(T.nn.Linear(4, 32), T.nn.ReLU(), T.nn.Linear(32, 64), T.nn.Sigmoid())
    model = T.nn.ModuleList([encode, mean, log_variance, decode])

    def loss_of(_):
        hidden = F.relu(encode(x))
        mu, log_var = mean(hidden), log_variance(hidden)
        drawn = mu + T.randn_like(mu) * T.exp(0.5 * log_var)
        divergence = -0.5 * T.sum(1 + log_var - mu.pow(2) - log_var.exp())
        return F.binary_cross_entropy(decode(drawn), x, reduction="sum") + divergence

    return train(model, T.optim.Adam(model.parameters(), lr=1e-3), loss_of)


@program
def generative_adversarial_nets(T):
    nn, loss_of = T.nn, T.nn.BCEWithLogitsLoss()
    generator = nn.Sequential(nn.Linear(8, 32), nn.LeakyReLU(0.2), nn.Linear(32, 2))
    critic = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    optimizers = [T.optim.Adam(m.parameters(), lr=2e-4, betas=(0.5, 0.999)) for m in (generator, critic)]
    ones, zeros = T.ones(64, 1), T.zeros(64, 1)
    for step in range(STEPS):
        real, made = normal(T, 64, 2, seed=step) * 0.1 + 1.0, generator(T.randn(64, 8))
        critic.zero_grad()
        loss = loss_of(critic(real), ones) + loss_of(critic(made.detach()), zeros)
        loss.backward()
        optimizers[1].step()
        generator.zero_grad()
        loss_of(critic(made), ones).backward()
        optimizers[0].step()
    return loss.item()


# --- sequences --------------------------------------------------------------------------------------------------------
@program
def recurrent_names(T):
    """A cell written by hand, letter by letter."""
    letters, nn = T.nn.functional.one_hot(integers(T, 26, 7, 1), 26).float(), T.nn
    hidden_of, scores_of, loss_of = nn.Linear(26 + 32, 32), nn.Linear(32, 18), nn.NLLLoss()
    model, label = nn.ModuleList([hidden_of, scores_of]), T.tensor([3])

    def loss(_):
        hidden = T.zeros(1, 32)
        for letter in letters:
            hidden = T.tanh(hidden_of(T.cat((letter, hidden), 1)))
        return loss_of(T.log_softmax(scores_of(hidden), 1), label)

    return train(model, T.optim.SGD(model.parameters(), lr=0.005), loss)


@program
def sine_by_lstm(T):
    wave = T.sin(T.arange(0, 33) * 0.3).reshape(1, 33, 1).repeat(8, 1, 1)
    lstm, head = T.nn.LSTM(1, 32, batch_first=True), T.nn.Linear(32, 1)
    model = T.nn.ModuleList([lstm, head])
    loss_of = T.nn.functional.mse_loss
    optimizer = T.optim.Adam(model.parameters(), lr=0.01)
    return train(model, optimizer, lambda _: loss_of(head(lstm(wave[:, :-1])[0]), wave[:, 1:]))


@program
def reviews_by_gru(T):
    words, labels = integers(T, 500, 16, 20), integers(T, 2, 16)
    embedding, gru, head = T.nn.Embedding(500, 32), T.nn.GRU(32, 32, batch_first=True), T.nn.Linear(32, 2)
    model = T.nn.ModuleList([embedding, gru, head])
    loss_of = T.nn.functional.cross_entropy
    after = lambda: T.nn.utils.clip_grad_value_(model.parameters(), 0.5)  # noqa: E731
    optimizer = T.optim.Adam(model.parameters())
    return train(model, optimizer, lambda _: loss_of(head(gru(embedding(words))[1][-1]), labels), after)


@program
def transformer_encoder(T):
    words, labels, nn = integers(T, 100, 16, 12), integers(T, 4, 16), T.nn
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
    embedding, encoder, head = nn.Embedding(100, 32), nn.TransformerEncoder(layer, 2), nn.Linear(32, 4)
    model = nn.ModuleList([embedding, encoder, head])
    loss_of = nn.functional.cross_entropy
    optimizer = T.optim.AdamW(model.parameters(), lr=1e-3)
    return train(model, optimizer, lambda _: loss_of(head(encoder(embedding(words)).mean(1)), labels))


@program
def letters_by_attention(T):
    """Causal attention written out, as in small language models."""
    text, nn = integers(T, 40, 8, 17), T.nn
    embedding, places, mixed = nn.Embedding(40, 32), nn.Embedding(16, 32), nn.Linear(32, 96, bias=False)
    norm, head = nn.LayerNorm(32), nn.Linear(32, 40)
    model, mask = nn.ModuleList([embedding, places, mixed, norm, head]), T.tril(T.ones(16, 16)) == 0

    def loss_of(_):
        x = embedding(text[:, :-1]) + places(T.arange(16))
        q, k, v = mixed(norm(x)).split(32, dim=-1)
        scores = (q @ k.transpose(-2, -1) / math.sqrt(32)).masked_fill(mask, float("-inf"))
        x = x + T.softmax(scores, -1) @ v
        return nn.functional.cross_entropy(head(x).reshape(-1, 40), text[:, 1:].reshape(-1))

    return train(model, T.optim.AdamW(model.parameters(), lr=1e-3), loss_of)


# --- others -----------------------------------------------------------------------------------------------------------
@program
def policy_gradient(T):
    """Which of four arms pays, in a place that is seen."""
    policy = T.nn.Sequential(T.nn.Linear(4, 32), T.nn.ReLU(), T.nn.Linear(32, 4))
    optimizer = T.optim.Adam(policy.parameters(), lr=0.01)
    T.manual_seed(0)
    for step in range(STEPS):
        places = normal(T, 16, 4, seed=step)
        choice = T.distributions.Categorical(logits=policy(places))
        action = choice.sample()
        reward = (action == places.argmax(1)).float()
        loss = -(choice.log_prob(action) * (reward - reward.mean())).mean() - 0.01 * choice.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


@program
def heat_equation(T):
    """A net whose derivatives are to fulfil an equation."""
    net = T.nn.Sequential(T.nn.Linear(2, 32), T.nn.Tanh(), T.nn.Linear(32, 32), T.nn.Tanh(), T.nn.Linear(32, 1))
    points = T.sigmoid(normal(T, 64, 2)).requires_grad_()

    def loss_of(_):
        value = net(points)
        first = T.autograd.grad(value.sum(), points, create_graph=True)[0]
        second = T.autograd.grad(first[:, 0].sum(), points, create_graph=True)[0][:, 0]
        start = T.cat([points[:, :1], T.zeros(64, 1)], 1)
        return (first[:, 1] - 0.1 * second).pow(2).mean() + (net(start) - T.sin(math.pi * start[:, :1])).pow(2).mean()

    return train(net, T.optim.Adam(net.parameters()), loss_of)
