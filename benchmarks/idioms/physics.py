"""Programs of physicists: integrators, energies and their forces, grids, solvers."""

import itertools
import math
from collections import namedtuple
from dataclasses import dataclass, field

import numpy as np

from .registry import idiom, random_idiom


@idiom
def bodies_that_attract(T, s):
    @dataclass
    class Bodies:
        x: object
        v: object
        m: object = field(default_factory=lambda: T.ones(5))

    b = Bodies(s.numbers(5, 3), T.zeros(5, 3))

    def acc(x, m, eps=0.1):
        d = x.unsqueeze(0) - x.unsqueeze(1)
        r2 = (d**2).sum(-1) + eps**2
        return (m[None, :, None] * d / r2[..., None] ** 1.5).sum(1)

    @s.compile
    def verlet(b, dt):
        half = b.v + 0.5 * dt * acc(b.x, b.m)
        x = b.x + dt * half
        v = half + 0.5 * dt * acc(x, b.m)
        return Bodies(x, v, b.m)

    def call():
        nonlocal b
        b = verlet(b, 0.01)
        return b.x, b.v

    return call


@idiom
def lorenz_runge_kutta(T, s):
    sigma, rho, beta = 10.0, 28.0, 8 / 3

    def lorenz(t, u):
        x, y, z = u
        return T.stack([sigma * (y - x), x * (rho - z) - y, x * y - beta * z])

    def rk4(f, t, u, dt):
        k1 = f(t, u)
        k2 = f(t + dt / 2, u + dt / 2 * k1)
        k3 = f(t + dt / 2, u + dt / 2 * k2)
        k4 = f(t + dt, u + dt * k3)
        return u + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    step = s.compile(lambda t, u: rk4(lorenz, t, u, 0.01))
    state = {"t": 0.0, "u": T.tensor([1.0, 1.0, 1.0], dtype=T.float64)}

    def call():
        state["u"] = step(state["t"], state["u"])
        state["t"] += 0.01
        return state["u"]

    return call


@idiom
def hamiltonian_network(T, s):
    class HNN(T.nn.Module):
        def __init__(self, hidden=16):
            super().__init__()
            self.net = T.nn.Sequential(T.nn.Linear(2, hidden), T.nn.Tanh(), T.nn.Linear(hidden, 1, bias=False))
            self.register_buffer("J", T.tensor([[0.0, 1.0], [-1.0, 0.0]]))

        def forward(self, z):
            return self.net(z)

        def time_derivative(self, z):
            H = self(z).sum()
            (dH,) = T.autograd.grad(H, z, create_graph=True)
            return dH @ self.J.T

    hnn = s.weights(HNN())
    opt = T.optim.Adam(hnn.parameters(), lr=1e-2, weight_decay=1e-4)
    z, dz = s.numbers(16, 2).requires_grad_(True), s.numbers(16, 2)

    @s.compile
    def train_step(z, dz):
        loss = (hnn.time_derivative(z) - dz).pow(2).mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss

    return lambda: (train_step(z, dz), list(hnn.parameters()))


@random_idiom
def ising_checkerboard(T, s):
    spins = T.where(s.numbers(8, 8) > 0, 1.0, -1.0)
    i, j = np.indices((8, 8))
    masks = [T.tensor((i + j) % 2 == k) for k in (0, 1)]

    @s.compile
    def sweep(spins, beta):
        for mask in masks:
            nb = spins.roll(1, 0) + spins.roll(-1, 0) + spins.roll(1, 1) + spins.roll(-1, 1)
            flip = (T.rand(8, 8) < T.exp(-2 * beta * spins * nb)) & mask
            spins = T.where(flip, -spins, spins)
        return spins

    def call():
        nonlocal spins
        spins = sweep(spins, 0.44)
        return spins, spins.mean()

    return call


@idiom
def heat_equation_in_place(T, s):
    u = s.numbers(16, 16)
    k = 0.1

    @s.compile
    def advance(u, steps):
        for _ in range(steps):
            lap = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1]
            u[1:-1, 1:-1] += k * lap
            u[0] = 0
            u[:, -1] = 1.0
        return u

    return lambda: advance(u, 3)


@idiom
def wave_equation_by_convolution(T, s):
    kernel = T.tensor([[0.0, 1, 0], [1, -4, 1], [0, 1, 0]])[None, None]
    now, before = s.numbers(1, 1, 12, 12), T.zeros(1, 1, 12, 12)

    @s.compile
    def wave(now, before, c2dt2=0.1):
        return 2 * now - before + c2dt2 * T.nn.functional.conv2d(now, kernel, padding=1), now

    def call():
        nonlocal now, before
        now, before = wave(now, before)
        return now

    return call


@idiom
def lagrangian_pendulum(T, s):
    def lagrangian(q, v):
        t1, t2 = q[0], q[1]
        kin = 0.5 * (2 * v[0] ** 2 + v[1] ** 2 + 2 * v[0] * v[1] * T.cos(t1 - t2))
        return kin + 9.8 * (2 * T.cos(t1) + T.cos(t2))

    @s.compile
    def accelerate(q, v):
        M = T.func.hessian(lagrangian, argnums=1)(q, v)
        dLdq = T.func.grad(lagrangian, argnums=0)(q, v)
        C = T.func.jacrev(T.func.grad(lagrangian, argnums=1), argnums=0)(q, v)
        return T.linalg.solve(M, dLdq - C @ v)

    q, v = T.tensor([1.0, 0.5], dtype=T.float64), T.zeros(2, dtype=T.float64)

    def call():
        nonlocal q, v
        v = v + 0.01 * accelerate(q, v)
        q = q + 0.01 * v
        return q, v

    return call


@idiom
def burgers_residual(T, s):
    nn = T.nn
    net = s.weights(nn.Sequential(nn.Linear(2, 12), nn.Tanh(), nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 1)))
    opt = T.optim.Adam(net.parameters(), 1e-3)
    batches = itertools.cycle([(s.numbers(20, 1), s.numbers(20, 1)) for _ in range(3)])
    nu = 0.01 / math.pi

    def d(y, x):
        return T.autograd.grad(y, x, grad_outputs=T.ones_like(y), create_graph=True)[0]

    @s.compile
    def closure(x, t):
        x, t = x.clone().requires_grad_(True), t.clone().requires_grad_(True)
        u = net(T.cat([x, t], dim=1))
        u_x, u_t = d(u, x), d(u, t)
        f = u_t + u * u_x - nu * d(u_x, x)
        loss = T.mean(f**2)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    return lambda: (T.tensor(closure(*next(batches))), list(net.parameters()))


@idiom
def lennard_jones_verlet(T, s):
    class MD:
        def __init__(self, pos, dt=1e-3):
            self.pos, self.vel, self.dt = pos, T.zeros_like(pos), dt
            n = len(pos)
            self.i, self.j = T.triu_indices(n, n, offset=1)
            self.force = self.forces()[1]

        def energy(self, pos):
            r2 = ((pos[self.i] - pos[self.j]) ** 2).sum(-1)
            inv6 = (1 / r2) ** 3
            return 4 * (inv6**2 - inv6).sum()

        def forces(self):
            pos = self.pos.detach().requires_grad_()
            e = self.energy(pos)
            e.backward()
            return e.detach(), -pos.grad

        @s.compile
        def step(self):
            self.vel = self.vel + 0.5 * self.dt * self.force
            self.pos = self.pos + self.dt * self.vel
            e, self.force = self.forces()
            self.vel = self.vel + 0.5 * self.dt * self.force
            return e

    grid = T.tensor(list(itertools.product(range(2), repeat=3))).float() * 1.2
    md = MD(grid + 0.01 * s.numbers(8, 3))

    def call():
        e = md.step()
        return e, md.pos, md.vel

    return call


@idiom
def spin_precession(T, s):
    spins = T.nn.functional.normalize(s.numbers(10, 3), dim=1)
    B = T.tensor([0.0, 0.0, 1.0])

    @s.compile
    def llg(spins, dt=0.05, damping=0.1):
        precess = T.linalg.cross(spins, B.expand_as(spins), dim=1)
        relax = T.linalg.cross(spins, precess, dim=1)
        spins = spins - dt * (precess + damping * relax)
        return spins / spins.norm(dim=1, keepdim=True)

    def call():
        nonlocal spins
        spins = llg(spins)
        return spins

    return call


@idiom
def states_from_a_generator(T, s):
    w = 2.0

    @s.compile
    def kick(q, p, dt):
        p = p - dt * w * w * q
        return q + dt * p, p

    def trajectory(q, p, dt=0.01):
        while True:
            q, p = kick(q, p, dt)
            yield q, p

    orbit = trajectory(s.numbers(6), s.numbers(6))
    return lambda: next(orbit)


@idiom
def sinkhorn(T, s):
    C = T.cdist(s.numbers(6, 2), s.numbers(8, 2))
    a, b = T.full((6,), 1 / 6), T.full((8,), 1 / 8)

    @s.compile
    def sinkhorn(C, eps=0.5, iters=6):
        f, g = T.zeros_like(a), T.zeros_like(b)
        for _ in range(iters):
            f = eps * (a.log() - T.logsumexp((g[None] - C) / eps, dim=1))
            g = eps * (b.log() - T.logsumexp((f[:, None] - C) / eps, dim=0))
        P = T.exp((f[:, None] + g[None] - C) / eps)
        return (P * C).sum(), P

    return lambda: sinkhorn(C)


Fit = namedtuple("Fit", "theta damping cost")


@idiom
def levenberg_marquardt(T, s):
    t = T.linspace(0, 1, 12, dtype=T.float64)
    y = 2 * T.exp(-1.5 * t) + 0.1

    def residual(theta):
        return theta[0] * T.exp(-theta[1] * t) + theta[2] - y

    @s.compile
    def propose(theta, damping):
        J = T.func.jacfwd(residual)(theta)
        r = residual(theta)
        step = T.linalg.solve(J.T @ J + damping * T.eye(3, dtype=T.float64), J.T @ r)
        new = theta - step
        return new, (residual(new) ** 2).sum()

    fit = Fit(T.ones(3, dtype=T.float64), 1.0, float("inf"))

    def call():
        nonlocal fit
        new, cost = propose(fit.theta, fit.damping)
        if cost < fit.cost:
            fit = Fit(new, max(fit.damping * 0.5, 1e-6), cost.item())
        else:
            fit = fit._replace(damping=fit.damping * 2)
        return fit.theta

    return call


@idiom
def conjugate_gradients(T, s):
    A = s.numbers(8, 8)
    A, b = A @ A.T + T.eye(8), s.numbers(8)

    @s.compile
    def cg(A, b, iters=5):
        x = T.zeros_like(b)
        r = b - A @ x
        p = r.clone()
        rs = r.dot(r)
        for _ in range(iters):
            Ap = A.mv(p)
            alpha = rs / p.dot(Ap)
            x += alpha * p
            r -= alpha * Ap
            new = r.dot(r)
            p = r + (new / rs) * p
            rs = new
        return x, rs.sqrt()

    return lambda: cg(A, b)


@idiom
def lasso_by_ista(T, s):
    X, y = s.numbers(30, 8), s.numbers(30)
    w = T.zeros(8, requires_grad=True)
    lr, lam = 0.01, 0.1

    @s.compile
    def ista():
        loss = 0.5 * ((X @ w - y) ** 2).mean()
        loss.backward()
        with T.no_grad():
            w.add_(-lr * w.grad)
            w.copy_(w.sign() * (w.abs() - lr * lam).clamp(min=0))
            w.grad.zero_()
        return loss + lam * w.abs().sum()

    return lambda: (ista(), w)
