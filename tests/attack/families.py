"""Statements of rarer kinds, as in fragments.py. There are besides: kernel (2, 3, 2) and image (2, 1, 2, 2), leaves;
index, three integers; out and cache, state; running, a mean and a variance; lstm and attend, layers; nested, a compiled
function; Cube, Pair and Straight, functions with derivatives of the user; scheduler, of the optimizer; bag, a list of
tensors, and named, a dict of them, which are replaced, added, taken away and tied to one another between calls.
"""

SCANS = (
    "{t} = ({x} * w).sort(-1)[0]", "{t} = ({x} * w).sort(0, descending=True).values", "{t} = ({x} * w).cumsum(-1)",
    "{t} = ({x} * w).topk(2, -1).values.sum(-1, keepdim=True)", "{t} = ({x} * w).cumsum(0)", "{t} = {x}.flip(0)",
    "{t} = ({x} * w).cummax(-1).values", "{t} = ({x} * w).cummin(0)[0]", "{t} = ({x} * w).cumprod(-1)",
    "{t} = ({x} * w).argsort(-1) * v", "{t} = ({x} * w).gather(1, ({y} * w).argmax(1, keepdim=True))",
    "{t} = ({x} * w).logsumexp(-1, keepdim=True)", "{t} = ({x} * w).max(0).values",
    "{t} = ({x} * w).median(-1).values[0]", "{t} = ({x} * w).logcumsumexp(0)", "{t} = ({x} * w).diff(dim=0)[1]",
    "{t} = weft.stack([{x} * w, {y} * w]).amax(0)", "{t} = ({x} * w).roll(1, 0)",
    "{t} = ({x} * w).kthvalue(2).values.mean()", "{t} = ({x} * w).norm(dim=0)", "{t} = ({x} * w).std(0)",
    "{t} = ({x} * w).var(-1, keepdim=True)", "{t} = ({x} * w).prod(0)",
    "_, {t} = ({x} * w).topk(2, 0)\n{t} = {t}.sum() * v",
    "{t} = weft.einsum('ij,kj->ik', {x} * w, {y} * w).mean(0).sum()", "{t} = ({x} * w).triu()",
    "{t} = weft.minimum({x}, {y})", "{t} = ({x} * w).clamp(-0.5, 0.5)", "{t} = {x}.abs().sqrt()",
    "{t} = ({x} * w).unfold(1, 2, 1).sum(-1).sum()", "{t} = ({x} * w).repeat(2, 1)[1:4]", "{t} = ({x} * w).tril(-1)",
)  # fmt: skip
LAYERS = (
    "{t} = F.conv1d(({x} * w)[None], kernel)[0].mean()", "{t} = F.conv1d(({x} * w)[None], kernel, padding=1)[0, :, 1:]",
    "{t} = F.conv2d(({x} * w)[None, None], image)[0].sum(0)[0, 1]", "{t} = F.max_pool2d(({x} * w)[None], 2)[0, 0, 0]",
    "{t} = F.conv2d(({x} * w)[None, None], image, padding=1).relu()[0, 0, 1:]", "{t} = F.gelu({x})",
    "{t} = F.silu({x})", "{t} = F.avg_pool1d(({x} * w)[None], 2)[0].sum()",
    "{t} = F.adaptive_avg_pool2d(({x} * w)[None], (3, 4))[0]", "{t} = F.max_pool1d(({x} * w)[None], 3, 1, 1)[0]",
    "{t} = F.layer_norm({x} * w, (4,))", "{t} = F.softplus({x})",
    "{t} = F.batch_norm({x} * w, *running, training=True)", "{t} = F.batch_norm({x} * w, *running)",
    "{t} = lstm(({x} * w)[None])[0][0]",
    "{t}, (s, _) = lstm(({x} * w)[None])\n{t}, s = {t}[0], s[0].detach().expand(3, 4)",
    "{t} = F.scaled_dot_product_attention({x} * w, {y} * w, w)", "{t} = attend(*[({x} * w)[None]] * 3)[0][0]",
    "{t} = F.scaled_dot_product_attention(({x} * w)[None], w[None], w[None], is_causal=True)[0]",
    "{t} = F.embedding(index, w) * {x}", "{t} = F.pad({x} * w, (1, 1))[:, 1:5]", "{t} = F.normalize({x} * w, dim=-1)",
    "{t} = F.cross_entropy({x} * w, index)", "{t} = F.one_hot(index, 4) * {x}", "{t} = F.log_softmax({x} * w, 0)",
    "{t} = F.nll_loss(({x} * w).log_softmax(1), index)", "{t} = F.huber_loss({x} * w, {y} * w)", "{t} = F.elu({x})",
    "{t} = F.binary_cross_entropy_with_logits({x} * w, (s > 0) * 1.0)", "{t} = F.glu({x} * w, 1).sum()",
    "{t} = F.group_norm(({x} * w)[None], 3)[0]", "{t} = F.cosine_similarity({x} * w, {y} * w).mean()",
    "{t} = F.interpolate(({x} * w)[None], scale_factor=2.0)[0, :, ::2]",
    "{t} = F.conv_transpose1d(({x} * w)[None], kernel.transpose(0, 1))[0].sum()", "{t} = F.leaky_relu({x}, 0.2)",
)  # fmt: skip
MASKS = (
    "{t} = {x} * w\n{t}[{t} > 0.5] = 0.5", "{t} = ({x} * w).masked_fill({y} * w > 0, -1.0)", "s[s > 0.5] = 0.0",
    "{t} = {x} * w\n{t}.masked_fill_({t} < 0, 0.0)", "{t} = ({x} * w)[({x} * w) > 0].sum()", "s[index] += 1.0",
    "{t} = ({x} * w).masked_select({x} * w > 0).sum()", "{t} = ({x} * w)[index]", "{t} = ({x} * w)[index, index]",
    "{t} = weft.zeros(3, 4).index_add(0, index, {x} * w)", "s.index_copy_(0, index, ({x} * w).detach())",
    "{t} = weft.zeros(3, 4).scatter(1, index[:, None], ({x} * w))", "s.index_fill_(0, index[:1], 0.5)",
    "s.scatter_add_(1, index[:, None], ({x} * w).detach()[:, :1])",
    "{t} = {x} * w\n{t}[index[0]] = {t}[index[1]] * 2.0", "{t} = {x} * w\n{t}[:, 1] = v[0]",
    "{t} = {x} * w\n{t}[1:, ::2] *= 0.5", "{t} = weft.where({x} * w > {y} * w, v, 0.0)",
    "{t} = {x} * w\n{t}.fill_diagonal_(0.0)", "{t} = ({x} * w).index_select(1, index)[:, :1]", "w.data[s > 1.0] = 0.0",
    "{t} = {x} * w\n{t}[[0, 2]] = v", "s.data[0] += 1.0", "{t} = {x} * w\n{t}.data.clamp_(-1.0, 1.0)",
    "with weft.no_grad():\n    w[w > 1.0] = 1.0", "{t} = weft.nonzero({x} * w > 0).sum() * v",
    "{t} = {x} * w\n{t}.data = {t}.data * 0.5", "{t} = {x} * w\n{t}[{t}.detach().argmax(0)[0] % 3] = 0.0",
)  # fmt: skip
HIGHER = (
    "{t} = Cube.apply({x})", "{t} = Cube.apply({x} * w)", "{t}, _ = Pair.apply({x}, w)", "_, {t} = Pair.apply({x}, w)",
    "{t} = Straight.apply({x} * w)", "{t} = nested({x}, {y})", "{t} = nested({x}, w)", "{t} = nested({x} * w, v)",
    "{t} = {x} * w\n{t}.register_hook(lambda g: g * 0.5)", "{t} = {x} * w\n{t}.retain_grad()\nbox.hooked = {t}",
    "{t} = {x} * w\n{t}.register_hook(lambda g: seen.append(g.sum().item()))",
    "{t} = checkpoint(inner, {x}, use_reentrant=False)", "{t} = {x} * w\n{t}.register_hook(lambda g: kept.append(g))",
    "{t} = weft.func.grad(lambda q: (q * w).sin().sum())({x}.double().to(w.dtype))",
    "g = weft.autograd.grad(({x} * w).sin().sum(), w, create_graph=True)[0]\n"
    "{t} = weft.autograd.grad((g * v).sum(), w, create_graph=True)[0]",
    "g = weft.autograd.grad(({x} * w).exp().sum(), w, create_graph=True)[0]\ng.square().sum().backward(inputs=[w])",
    "q = {x}.detach().requires_grad_()\n"
    "{t} = weft.autograd.grad(((q * w).tanh().sum(-1)).sum(), q, create_graph=True)[0].square()",
    "q = ({x} * w).square().sum()\nq.backward(retain_graph=True)\nq.backward()",
    "with weft.enable_grad():\n    {t} = {x} * w",
    "q = ({x} * w).tanh()\nq.sum().backward(retain_graph=True)\n(q * 0.5).sum().backward(inputs=[w])",
    "scheduler.step()", "nn.utils.clip_grad_norm_([w, v], 0.1)",
    "seen.append(nn.utils.clip_grad_norm_([w, v], 0.1).item())", "{t} = copy.deepcopy(model)({x} * w)",
    "if w.grad is not None:\n    nn.utils.clip_grad_value_([w, v], 0.1)",
    "{t} = weft.autograd.functional.vjp(inner, {x}.detach(), v.detach() * {x}.detach())[1]",
    "q = {x} * w\nkept.append(weft.autograd.grad(q.sum(), [w], retain_graph=True)[0])\n{t} = q.square()",
    "with weft.set_grad_enabled(calls[0] % 2 == 0):\n    {t} = {x} * w",
    "with weft.no_grad():\n    {t} = nested({x}, {y})", "{t} = weft.func.vmap(lambda row: row.sum() * row)({x} * w)",
    "{t} = weft.utils.checkpoint.checkpoint(model, {x} * w, use_reentrant=False)",
    "array[...] = 0.5\n{t} = n * {x}\narray += 1.0", "array[calls[0] % 3] += 1.0\n{t} = (n * w).sum() * {x}",
    "{t} = sum(q * w for q in ({x}, {y}))",
)  # fmt: skip
# What is in a list or a dict outside, however many that are.
CLOSURES = (
    "{t} = {x} * bag[0]", "{t} = {x} + bag[-1]", "{t} = {x} * named['a']", "{t} = {x} * named['b'] + bag[1]",
    "{t} = {x}\nfor q in bag:\n    {t} = {t} * q", "{t} = {x}\nfor k in sorted(named):\n    {t} = {t} + named[k]",
    "{t} = sum(q.sum() for q in named.values()) * {x}", "{t} = {x} * len(bag)", "{t} = {x} * named.get('c', 0.5)",
    "{t} = weft.stack([q * w for q in bag]).sum(0) * {x}", "bag[0] = {x}.detach()", "bag.append(bag.pop(0))",
    "named['a'] = named['a'] * 0.5", "named['b'].data.mul_(0.9)", "bag[0].add_({x}.detach())", "bag[1:] = [{x}]",
    "named.update(c={x}.detach())", "{t} = named.pop('c', s) * {x}", "with weft.no_grad():\n    bag[0].lerp_(w, 0.5)",
    "(bag[0] * w).sum().backward()", "for q in named.values():\n    q.grad = None", "kept[:2] = [*bag][:2]",
    "{t} = F.linear({x} * w, model[2].weight) if len(model) > 2 else {x}", "{t} = model[0]({x} * w) + model(w)[0]",
    "{t} = weft.func.functional_call(model, named_weights(), ({x} * w,))", "{t} = {x} * bag[calls[0] % len(bag)]",
)  # fmt: skip
# What changes of them between calls; and weights that become one, and two again.
CHANGES_OF_CLOSURES = (
    "bag[0] = randn(3, 4)", "bag[0] = w", "bag.reverse()", "bag.append(v)", "bag.pop()", "bag[1] = bag[0]",
    "bag[0] = bag[0].detach()[...]", "bag[0].mul_(0.5)", "bag[-1].requires_grad_(True)", "bag[0] = bag[0].double()",
    "bag = [*bag]", "bag[0] = base[1:4]", "named['a'] = v", "named['a'] = bag[0]", "named['c'] = randn(4)",
    "named['b'] = named['b'].detach().requires_grad_()", "named = dict(reversed(named.items()))",
    "named['a'].data = randn(3, 4)", "model[2].weight = model[0].weight", "model[2].bias = model[0].bias",
    "model[2].weight = nn.Parameter(model[2].weight.detach().clone())", "model[0] = model[2]", "other[0] = model[0]",
    "kept.append(in_threads(nested, a.detach(), u.detach()))", "kept.append(in_threads(nested, w, v))",
    "handles = [p.register_hook(lambda g: g * 0.5) for p in model.parameters()]",
    "[handle.remove() for handle in handles]", "named.pop('c', None)",
    "named_weights = lambda: {k: p * 0.5 for k, p in model.named_parameters()}",
    "optimizer.load_state_dict(saved)", "saved = copy.deepcopy(optimizer.state_dict())",
    "a.data = base.data[:3]", "b = a[0]", "u = b", "model.load_state_dict(other.state_dict(), assign=True)",
)  # fmt: skip
# Parts of whole programs: loops of a recurrence, weights given by name, messages along edges, results written into
# tensors that exist, a cache that fills, batches in a loop, what is done every few calls, integers divided.
PARTS = (
    "{t} = weft.zeros(3, 4)\nfor k in range(3):\n    {t} = ({t} + {x} * w).tanh()",
    "h, c = s.detach(), s.detach()\nfor k in range(2):\n"
    "    c = c * ({x} * w).sigmoid()\n    h = c.tanh() * v\n{t} = h + c",
    "h = s.detach().clone()\nfor row in ({x} * w).expand(3, 4).unbind(0):\n    h = (h * v + row).sin()\n{t} = h",
    "{t} = weft.func.functional_call(model, dict(model.named_parameters()), ({x} * w,))",
    "quick = {{k: p - 0.1 * p.detach() for k, p in model.named_parameters()}}\n"
    "{t} = weft.func.functional_call(model, quick, (({x} * w),))",
    "quick = dict(model.named_parameters())\nfor _ in range(2):\n"
    "    loss = weft.func.functional_call(model, quick, ({x} * w,)).square().mean()\n"
    "    slopes = weft.autograd.grad(loss, list(quick.values()), create_graph=True, allow_unused=True)\n"
    "    quick = {{k: p if g is None else p - 0.1 * g for (k, p), g in zip(quick.items(), slopes)}}\n{t} = loss",
    "{t} = weft.zeros(3, 4).index_add(0, index, ({x} * w).expand(3, 4)[index.flip(0)])",
    "{t} = weft.zeros(3, 4)\n{t}.index_add_(0, index, ({x} * w).expand(3, 4))",
    "s.index_add_(0, index, s[index] * 0.5)",
    "{t} = weft.zeros(3, 4).scatter_add(0, index[:, None].expand(3, 4), ({x} * w).expand(3, 4)) / 2.0",
    "weft.add({x}.detach(), 1.0, out=out)\n{t} = out * w", "weft.tanh(out, out=out)", "weft.mul(s, 0.5, out=s)",
    "weft.matmul(s, s.t(), out=weft.empty(3, 3))\nweft.sub(out, s, alpha=2.0, out=out)\n{t} = out.sum()",
    "cache = weft.cat([cache, ({x} * w).detach().expand(3, 4)[:1]])[-6:]\n{t} = cache.sum(0) * w",
    "at = calls[0] % 3\ns[at : at + 1] = ({x} * w).detach().expand(3, 4)[:1]\n{t} = (s[: at + 1] * v).sum()",
    "s.index_copy_(0, index[:1], ({x} * w).detach().expand(3, 4)[:1])\n{t} = s[index] * w",
    "for rows in index.split(2):\n    loss = model(({x} * w).expand(3, 4)[rows]).square().mean()\n"
    "    optimizer.zero_grad()\n    loss.backward()\n    optimizer.step()\n    seen.append(loss.item())",
    "for rows in ({x} * w).detach().expand(3, 4).unbind(0):\n    loss = model(rows[None].expand(2, 4)).tanh().sum()\n"
    "    model.zero_grad()\n    loss.backward()\n    with weft.no_grad():\n"
    "        for p in model.parameters():\n            p -= 0.01 * p.grad\n    seen.append(loss.item())",
    "if calls[0] % 3 == 0:\n    seen.append([p.abs().max().item() for p in model.parameters()])",
    "if calls[0] % 4 == 0:\n    seen.append((w.norm().item(), {x}.sum().item()))",
    "seen.append(w.square().sum().item())",
    "if calls[0] % 3 == 0:\n    for p, q in zip(other.parameters(), model.parameters()):\n"
    "        p.data.mul_(0.9).add_(q.data, alpha=0.1)",
    "for p, q in zip(other.parameters(), model.parameters()):\n    p.data = p.data * 0.9 + q.data * 0.1",
    "{t} = (index // 2 + index % 2) * ({x} * w).sum()",
    "{t} = ({x} * w)[(index + calls[0]) % 3 if {x}.ndim > 1 else ...]",
    "{t} = ((index + 1) // (index * 0 + 1 + calls[0] % 2)).sum() * v",
    "{t} = ({x} * w).expand(3, 4)[s.sum(1) > 0].sum()",
    "model[0].requires_grad_(calls[0] // 3 % 2 == 0)", "kept[:] = kept[-2:]",
    "for p in model.parameters():\n    if p.grad is not None:\n        p.grad.data.clamp_(-0.1, 0.1)",
    "try:\n    {t} = weft.linalg.cholesky(({x} * w).expand(3, 4) @ ({x} * w).expand(3, 4).t() - calls[0] % 2)\n"
    "except RuntimeError:\n    {t} = ({x} * w).sum()",
)  # fmt: skip
# Parts of tensors at places that change from call to call.
PLACES = (
    "{t} = w[calls[0] % 3] * {x}", "{t} = base[calls[0] % 6] * w", "{t} = ({x} * w).t()[calls[0] % 4]",
    "{t} = ({x} * w).expand(3, 4)[calls[0] % 3, calls[0] % 4] * v", "{t} = v[calls[0] % 4] * {x}",
    "{t} = v[-1 - calls[0] % 4] + s[calls[0] % 3]", "{t} = base[calls[0] % 4 : calls[0] % 4 + 3] * w",
    "{t} = s[calls[0] % 3]", "{t} = base[:, calls[0] % 4].sum() * w", "{t} = s[calls[0] % 3]\n{t}.mul_(0.5)",
    "s[calls[0] % 3] += u", "s[calls[0] % 3] = ({x} * w).detach().expand(3, 4)[(calls[0] + 1) % 3]",
    "base[calls[0] % 6, calls[0] % 4] *= 0.5", "kept[:1] = [base[calls[0] % 6]]", "kept[:1] = [w[calls[0] % 3]]",
    "seen.append(base[calls[0] % 6].sum().item())", "seen.append(float(v[calls[0] % 4]))",
    "{t} = model[0].weight[calls[0] % 4] * {x}", "{t} = n[calls[0] % 3] * w", "s[calls[0] % 3].copy_(v.detach())",
    "row = base[calls[0] % 6]\nbase.add_(0.1)\n{t} = row * w",
    "row = s[calls[0] % 3] * 2.0\ns.mul_(0.5)\n{t} = row * v",
    "{t} = weft.stack([base[k] for k in range(calls[0] % 3, 5)]).sum(0) * w",
    "if calls[0] % 5 == 4:\n    kept[:1] = [s[calls[0] % 3]]\nelse:\n    {t} = s[calls[0] % 3] * w",
    "{t} = ({x} * w).unbind(-1)[calls[0] % 4]", "{t} = weft.autograd.grad((w[calls[0] % 3] * {x}).sum(), w)[0]",
    "{t} = ({x} * w).expand(3, 4).clone()\n{t}[calls[0] % 3] += v",
    "{t} = weft.zeros(3, 4)\n{t}[:, calls[0] % 3 : calls[0] % 3 + 2] = ({x} * w).expand(3, 4)[:, :2]",
    "base[calls[0] % 4 : calls[0] % 4 + 2, 1:3] += 0.5", "base[1:][calls[0] % 5].mul_(0.9)",
    "row = base[calls[0] % 6]\nrow += 1.0\nkept[:1] = [row]", "base.t()[calls[0] % 4].copy_(base[:, 0])",
    "{t} = ({x} * w).expand(3, 4).clone()\nrow = {t}[calls[0] % 3]\nrow.mul_(v)\n{t} = {t} * 2.0 + row",
    "row, line = s[calls[0] % 3], s[:, calls[0] % 4]\nrow += 1.0\n{t} = line.sum() * w\nline.zero_()",
)  # fmt: skip
