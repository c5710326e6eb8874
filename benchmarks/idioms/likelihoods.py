"""Programs of statisticians: likelihoods in double precision, chains, models with hidden states."""

import itertools
import math

import numpy as np

from .registry import idiom, random_idiom


def f64(T, s, *shape):
    return T.tensor(s.rng.standard_normal(shape))


@idiom
def logit_mle_scipy_style(T, s):
    X, y = f64(T, s, 30, 4), T.tensor((s.rng.random(30) > 0.5).astype("float64"))

    @s.compile
    def nll(beta):
        eta = X @ beta
        return (T.nn.functional.softplus(eta) - y * eta).sum()

    beta = np.zeros(4)

    def fun(b):
        t = T.tensor(b, requires_grad=True)
        v = nll(t)
        v.backward()
        return v.item(), t.grad.numpy()

    def call():
        nonlocal beta
        v, g = fun(beta)
        beta = beta - 0.02 * g
        return T.tensor(v), T.tensor(beta)

    return call


@idiom
def negative_binomial_regression(T, s):
    x = f64(T, s, 25, 3)
    y = T.tensor(s.rng.integers(0, 9, 25).astype("float64"))
    beta = T.zeros(3, dtype=T.float64, requires_grad=True)
    log_alpha = T.zeros((), dtype=T.float64, requires_grad=True)
    opt = T.optim.Adam([beta, log_alpha], lr=0.05)

    def loglik(mu, r):
        p = r / (r + mu)
        return T.lgamma(y + r) - T.lgamma(r) - T.lgamma(y + 1) + r * T.log(p) + y * T.log1p(-p)

    @s.compile
    def iterate():
        opt.zero_grad()
        mu = T.exp(x @ beta)
        r = T.exp(-log_alpha)
        nll = -loglik(mu, r).mean()
        nll.backward()
        opt.step()
        return nll.detach()

    return lambda: (iterate(), beta, log_alpha)


@idiom
def poisson_newton(T, s):
    X = f64(T, s, 20, 3)
    y = T.tensor(s.rng.integers(0, 5, 20).astype("float64"))
    state = {"b": T.zeros(3, dtype=T.float64)}

    def nll(b):
        eta = X @ b
        return (eta.exp() - y * eta).sum()

    @s.compile
    def newton(b):
        H = T.autograd.functional.hessian(nll, b)
        g = T.func.grad(nll)(b)
        return b - 0.3 * T.linalg.solve(H, g)

    def call():
        state["b"] = newton(state["b"])
        return state["b"]

    return call


@idiom
def gaussian_mixture_em(T, s):
    x = s.numbers(40, 2)
    theta = {"mu": s.numbers(3, 2), "log_sigma": T.zeros(3), "log_pi": T.full((3,), -math.log(3.0))}

    @s.compile
    @T.no_grad()
    def em(mu, log_sigma, log_pi):
        d2 = ((x[:, None, :] - mu[None]) ** 2).sum(-1)
        logp = log_pi - 2 * log_sigma - 0.5 * d2 / (2 * log_sigma).exp() - math.log(2 * math.pi)
        norm = T.logsumexp(logp, dim=1, keepdim=True)
        r = (logp - norm).exp()
        nk = r.sum(0)
        mu = (r.t() @ x) / nk[:, None]
        d2 = ((x[:, None, :] - mu[None]) ** 2).sum(-1)
        var = (r * d2).sum(0) / (2 * nk)
        return {"mu": mu, "log_sigma": 0.5 * var.log(), "log_pi": (nk / x.shape[0]).log()}, norm.mean()

    def call():
        nonlocal theta
        theta, ll = em(**theta)
        return theta, ll

    return call


@idiom
def gp_marginal_likelihood(T, s):
    X = f64(T, s, 12, 2)
    y = f64(T, s, 12)

    class GP(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.raw = T.nn.ParameterDict(
                {
                    "length": T.nn.Parameter(T.zeros(2, dtype=T.float64)),
                    "scale": T.nn.Parameter(T.zeros((), dtype=T.float64)),
                    "noise": T.nn.Parameter(T.tensor(-1.0, dtype=T.float64)),
                }
            )

        @property
        def noise(self):
            return T.nn.functional.softplus(self.raw["noise"])

        def kernel(self, a, b):
            l = T.nn.functional.softplus(self.raw["length"])
            return T.nn.functional.softplus(self.raw["scale"]) * T.exp(-0.5 * T.cdist(a / l, b / l).pow(2))

        def forward(self, X, y):
            K = self.kernel(X, X) + (self.noise + 1e-6) * T.eye(len(X), dtype=X.dtype)
            L = T.linalg.cholesky(K)
            alpha = T.cholesky_solve(y[:, None], L).squeeze(-1)
            return 0.5 * y @ alpha + T.diagonal(L).log().sum() + 0.5 * len(y) * math.log(2 * math.pi)

    gp = GP()
    opt = T.optim.Adam(gp.parameters(), lr=0.1)

    @s.compile
    def fit_step():
        opt.zero_grad()
        loss = gp(X, y)
        loss.backward()
        opt.step()
        return loss

    return lambda: (fit_step(), list(gp.parameters()))


@idiom
def cox_partial_likelihood(T, s):
    x, t = s.numbers(24, 3), s.numbers(24)
    event = T.tensor((s.rng.random(24) > 0.3).astype("float32"))
    beta = T.nn.Parameter(T.zeros(3))

    @s.compile
    def cox(x, t, event):
        order = T.argsort(t, descending=True)
        eta = (x @ beta)[order]
        risk = T.logcumsumexp(eta, dim=0)
        return -((eta - risk) * event[order]).sum() / event.sum()

    def call():
        beta.grad = None
        loss = cox(x, t, event)
        loss.backward()
        with T.no_grad():
            beta.sub_(0.1 * beta.grad)
        return loss, beta

    return call


@idiom
def garch_likelihood(T, s):
    r = f64(T, s, 15) * 0.1
    p = T.tensor([-4.0, 0.0, 1.5], dtype=T.float64, requires_grad=True)

    @s.compile
    def garch(p):
        omega = p[0].exp()
        alpha = T.sigmoid(p[1]) * 0.3
        beta = T.sigmoid(p[2]) * 0.69
        h = r.var()
        ll = 0.0
        for t in range(len(r)):
            ll = ll - 0.5 * (T.log(h) + r[t] ** 2 / h)
            h = omega + alpha * r[t] ** 2 + beta * h
        return -ll

    def call():
        v = garch(p)
        (g,) = T.autograd.grad(v, p)
        with T.no_grad():
            p.add_(g, alpha=-0.01)
        return v, p

    return call


@idiom
def pinball_many_quantiles(T, s):
    taus = T.tensor([0.1, 0.5, 0.9])
    model = s.weights(T.nn.Sequential(T.nn.Linear(4, 16), T.nn.ELU(), T.nn.Linear(16, 3)))
    opt = T.optim.RMSprop(model.parameters(), lr=1e-2)
    x, y = s.numbers(32, 4), s.numbers(32, 1)

    def pinball(pred, target):
        e = target - pred
        return T.maximum(taus * e, (taus - 1) * e).sum(1).mean()

    @s.compile
    def train_step(x, y):
        q = model(x)
        loss = pinball(q, y) + 0.1 * T.relu(q[:, :-1] - q[:, 1:]).mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        return loss.item()

    return lambda: (T.tensor(train_step(x, y)), list(model.parameters()))


@random_idiom
def metropolis_hastings(T, s):
    chain = {"x": T.zeros(2), "accepted": 0}

    def logp(z):
        return -0.5 * (z[0] ** 2 + (z[1] - z[0] ** 2) ** 2)

    @s.compile
    def mh(x):
        prop = x + 0.5 * T.randn(2)
        if T.rand(()).log() < logp(prop) - logp(x):
            return prop, True
        return x, False

    def call():
        chain["x"], ok = mh(chain["x"])
        chain["accepted"] += ok
        return chain["x"], T.tensor(chain["accepted"])

    return call


@idiom
def hmc_by_hand(T, s):
    prec = T.diag(T.tensor([1.0, 4.0, 0.25]))
    momenta = itertools.cycle([s.numbers(3) for _ in range(5)])
    u = itertools.cycle([0.2, 0.9, 0.5, 0.99])

    def potential(q):
        return 0.5 * q @ prec @ q

    def grad_potential(q):
        q = q.detach().requires_grad_(True)
        return T.autograd.grad(potential(q), q)[0]

    @s.compile
    def leapfrog(q, p, eps=0.1, steps=5):
        p = p - 0.5 * eps * grad_potential(q)
        for i in range(steps):
            q = q + eps * p
            if i != steps - 1:
                p = p - eps * grad_potential(q)
        return q, -(p - 0.5 * eps * grad_potential(q))

    q = s.numbers(3)

    def call():
        nonlocal q
        p0 = next(momenta)
        q1, p1 = leapfrog(q, p0)
        dh = potential(q) + 0.5 * (p0 @ p0) - potential(q1) - 0.5 * (p1 @ p1)
        if next(u) < math.exp(min(0.0, dh.item())):
            q = q1
        return q

    return call


@idiom
def bootstrap_of_a_mean(T, s):
    x = f64(T, s, 50)
    picks = itertools.cycle([s.integers(50, 20, 50) for _ in range(3)])

    @s.compile
    def boot(idx):
        means = x[idx].mean(dim=1)
        return means.std(), T.quantile(means, T.tensor([0.025, 0.975], dtype=T.float64))

    return lambda: boot(next(picks))


@idiom
def ridge_path(T, s):
    X, y = f64(T, s, 30, 5), f64(T, s, 30)
    lambdas = np.logspace(-2, 1, 4)

    @s.compile
    def path(X, y):
        G, b = X.T @ X, X.T @ y
        coefs = []
        for lam in lambdas:
            coefs.append(T.linalg.solve(G + lam * T.eye(5, dtype=T.float64), b))
        return T.stack(coefs)

    return lambda: path(X, y)


@idiom
def eight_schools(T, s):
    D = T.distributions
    y = T.tensor([28.0, 8, -3, 7, -1, 1, 18, 12])
    sigma = T.tensor([15.0, 10, 16, 11, 9, 11, 10, 18])
    p = {"mu": T.zeros(()), "log_tau": T.zeros(()), "eta": T.zeros(8)}
    for v in p.values():
        v.requires_grad_()
    opt = T.optim.SGD(p.values(), lr=1e-3, momentum=0.9)

    def log_joint(mu, log_tau, eta):
        tau = log_tau.exp()
        lp = D.Normal(0.0, 5.0).log_prob(mu) + D.HalfCauchy(5.0).log_prob(tau) + log_tau
        lp = lp + D.Normal(0.0, 1.0).log_prob(eta).sum()
        return lp + D.Normal(mu + tau * eta, sigma).log_prob(y).sum()

    @s.compile
    def map_step():
        opt.zero_grad()
        loss = -log_joint(**p)
        loss.backward()
        opt.step()
        return loss

    return lambda: (map_step(), p)


@idiom
def kalman_likelihood(T, s):
    obs = f64(T, s, 8, 1)
    A = T.tensor([[1.0, 1.0], [0.0, 1.0]], dtype=T.float64)
    H = T.tensor([[1.0, 0.0]], dtype=T.float64)
    logq = T.zeros(2, dtype=T.float64, requires_grad=True)
    logr = T.zeros(1, dtype=T.float64, requires_grad=True)

    @s.compile
    def loglik():
        m, P = T.zeros(2, dtype=T.float64), T.eye(2, dtype=T.float64)
        Q, R = T.diag(logq.exp()), T.diag(logr.exp())
        total = T.zeros((), dtype=T.float64)
        for y in obs:
            m, P = A @ m, A @ P @ A.T + Q
            S = H @ P @ H.T + R
            K = P @ H.T @ T.inverse(S)
            v = y - H @ m
            total = total - 0.5 * (T.logdet(S) + v @ T.inverse(S) @ v)
            m, P = m + K @ v, P - K @ H @ P
        return total

    def call():
        logq.grad = logr.grad = None
        ll = loglik()
        (-ll).backward()
        with T.no_grad():
            for w in (logq, logr):
                w -= 0.02 * w.grad
        return ll, logq, logr

    return call


@idiom
def hmm_forward_algorithm(T, s):
    obs = s.rng.integers(0, 4, 10).tolist()
    trans, emit, init = (T.nn.Parameter(s.numbers(*shape)) for shape in ((3, 3), (3, 4), (3,)))
    opt = T.optim.Adagrad([trans, emit, init], lr=0.1)

    def forward(obs):
        lt, le = T.log_softmax(trans, 1), T.log_softmax(emit, 1)
        alpha = T.log_softmax(init, 0) + le[:, obs[0]]
        for o in obs[1:]:
            alpha = T.logsumexp(alpha.unsqueeze(1) + lt, 0) + le[:, o]
        return alpha.logsumexp(0)

    @s.compile
    def learn():
        nll = -forward(obs)
        opt.zero_grad()
        nll.backward()
        opt.step()
        return nll

    return lambda: (learn(), trans, emit)


@idiom
def viterbi_with_pointers(T, s):
    lt, le = s.numbers(4, 4), s.numbers(12, 4)

    @s.compile
    def viterbi(lt, le):
        score, back = le[0], []
        for e in le[1:]:
            best, arg = (score[:, None] + lt).max(dim=0)
            score = best + e
            back.append(arg)
        path = [score.argmax()]
        for b in reversed(back):
            path.insert(0, b[path[0]])
        return T.stack(path), score.max()

    return lambda: viterbi(lt, le)


@random_idiom
def reparametrised_elbo(T, s):
    D = T.distributions
    x = s.numbers(20)
    loc, log_scale = T.nn.Parameter(T.zeros(2)), T.nn.Parameter(T.zeros(2))
    opt = T.optim.Adam([{"params": [loc], "lr": 0.05}, {"params": [log_scale], "lr": 0.01}])

    @s.compile
    def svi(n_samples=3):
        q = D.Independent(D.Normal(loc, log_scale.exp()), 1)
        elbo = 0
        for _ in range(n_samples):
            z = q.rsample()
            lik = D.Normal(z[0], z[1].exp()).log_prob(x).sum()
            elbo = elbo + lik + D.Normal(0.0, 1.0).log_prob(z).sum() - q.log_prob(z)
        loss = -elbo / n_samples
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach()

    return lambda: (svi(), loc, log_scale)


@idiom
def irls(T, s):
    X, y = f64(T, s, 30, 3), T.tensor((s.rng.random(30) > 0.4).astype(float))

    @s.compile
    def irls(beta):
        mu = T.special.expit(X @ beta)
        w = mu * (1 - mu)
        XtW = X.mT * w
        return beta + T.linalg.solve(XtW @ X + 1e-3 * T.eye(3).double(), X.mT @ (y - mu))

    beta = T.zeros(3).double()

    def call():
        nonlocal beta
        beta = irls(beta)
        return beta

    return call


@idiom
def factor_analysis(T, s):
    S = np.cov(s.rng.standard_normal((6, 50)))
    S = T.from_numpy(S)
    W, logpsi = f64(T, s, 6, 2).requires_grad_(), T.zeros(6, dtype=T.double, requires_grad=True)

    @s.compile
    def value_and_grads():
        C = W @ W.T + T.diag_embed(logpsi.exp())
        sign, logabsdet = T.slogdet(C)
        obj = logabsdet + T.trace(T.linalg.solve(C, S))
        return obj, T.autograd.grad(obj, [W, logpsi])

    def call():
        obj, grads = value_and_grads()
        for w, g in zip([W, logpsi], grads):
            w.data -= 0.01 * g
        return obj, W, logpsi

    return call
