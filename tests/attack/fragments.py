"""What users write, one line or block each. {x}, {y}: tensors of the function; {t}: a new name; {r}, {q}: results.

There are: w (3, 4) and v (4,), leaves; model, a small network; optimizer, of all of these; s and u, state without
gradients; box, an object; array, the memory of n; kept and seen, lists; calls, the number of calls so far.
"""

VALUES = (
    "{t} = {x} * 2.0", "{t} = {x} + {y}", "{t} = {x} * {y}", "{t} = {x}.tanh()", "{t} = {x}.sigmoid() * {y}",
    "{t} = {x}.sum()", "{t} = {x}.square().mean()", "{t} = {x}.sin()", "{t} = {x}.detach()", "{t} = {x}.clone()",
    "{t} = {x} * w", "{t} = {x} * v", "{t} = {x} + s", "{t} = {x} * u + 1.0", "{t} = {x} * box.scale",
    "{t} = model({x} * w)", "{t} = F.linear({x} * w, model[0].weight)", "{t} = (w * v).tanh()", "{t} = {x} * n",
    "{t} = ({x} * w).softmax(-1)", "{t} = weft.where({x} > 0, {x}, {y})", "{t} = {x}.relu()", "{t} = {x} - {x}.mean()",
    "{t} = weft.cat([{x} * w, {y} * w])[:3]", "{t} = F.dropout({x}, 0.3)", "{t} = {x} * weft.rand(4)",
    "{t} = {x} * scale", "{t} = {x} * (0.5 + calls[0])", "{t} = {x}.double().float()", "{t} = {x} * {x}.detach()",
    "{t} = F.mse_loss({x} * w, {y} * w)", "{t} = ({x} * w).abs().amax(-1, keepdim=True)", "{t} = w", "{t} = {x}",
    "with weft.no_grad():\n    {t} = {x} * 0.5", "{t} = sum([{x}, {y}, 1.0])", "{t} = {x} / ({y}.abs() + 1.0)",
    "{t} = ({x} * w) @ ({y} * w).t()\n{t} = {t}.mean()", "{t} = {x}.detach().requires_grad_()",
    "{t} = weft.tensor([1.0, 2.0, 3.0, 4.0]) * {x}", "{t} = inner({x})", "{t} = Twice.apply({x})",
    "{t} = weft.zeros_like({x})\nfor k in range(2):\n    {t} = {t} + {x} * k",
)  # fmt: skip
VIEWS = (
    "{t} = {x}[...]", "{t} = {x}.t().t()", "{t} = ({x} * w).t()", "{t} = ({x} + w)[0]", "{t} = ({x} * w)[:, 1:3].sum(1)",
    "{t} = {x}.reshape(-1).view({x}.shape)", "{t} = {x}.unsqueeze(0).squeeze(0)", "{t} = {x}.expand(2, *{x}.shape)[0]",
    "{t} = w[1]", "{t} = w.view(-1)[2:6]", "{t} = s[0]", "{t} = {x}.detach()[...]", "{t} = {x}.view(-1)[0]",
    "{t} = ({x} * w).unbind(0)[1]", "{t} = ({x} * w).chunk(2, -1)[0].contiguous().sum()", "{t} = {x}.data",
    "{t} = ({x} * w).permute(1, 0)[1:].mT[..., 0]", "{t} = base[:3]", "{t} = base[1:4] * {x}",
)  # fmt: skip
CHANGES = (
    "{x}.add_(1.0)", "{x}.mul_({y})", "{x}[...] = 0.5", "{x} += {y}", "{x} *= 0.5", "{x}.zero_()", "{x}.relu_()",
    "{t} = {x} * w\n{t}[0] = 1.0", "{t} = {x} * w\n{t}[1:].zero_()", "{t} = {x}.clone()\n{t} += 1.0\n{t}.mul_({y})",
    "s.add_(1.0)", "s.mul_(0.5)", "s.copy_({x}.detach())", "s[calls[0] % 3] = 0.25", "s[0] = v.detach()", "s += 0.5",
    "with weft.no_grad():\n    w.mul_(0.99)", "with weft.no_grad():\n    v -= 0.01", "w.data.add_(0.01)", "u.fill_(0.5)",
    "with weft.no_grad():\n    s.lerp_(w, 0.1)", "with weft.no_grad():\n    v.copy_(v.clamp(-1.0, 1.0))",
    "w.data = w.data * 0.99", "box.scale = box.scale * 0.9", "box.last = {x}", "box.last = {x}.detach()",
    "array += 1.0", "n.add_(0.5)", "base[0] = u", "base[1:3].mul_(0.5)", "{t} = base[0]\n{t}.add_(1.0)",
    "u.data = u + 1.0", "with weft.no_grad():\n    w[0].zero_()", "with weft.no_grad():\n    {x}.add_({y})",
    "with weft.no_grad():\n    model[0].weight[0] = 0.1",
)  # fmt: skip
LOOKS = (
    "kept.append({x})", "seen.append({x}.sum().item())", "seen.append({x}.detach().numpy().copy())",
    "seen.append({x}.tolist())", "if {x}.sum() > 0:\n    {x} = {x} * 0.5", "seen.append({x}._version)",
    "seen.append(str({x}))", "seen.append(({x}.shape, {x}.requires_grad, {x}.is_leaf, {x}.stride()))",
    "kept.append({x}.detach())", "{t} = {x} * float({x}.detach().mean())", "seen.append(bool(({x} > 0).all()))",
    "if calls[0] % 3 == 1:\n    {x} = {x}.cos()", "if calls[0] == 9:\n    kept.append({x})",
    "if calls[0] == 8:\n    seen.append({x}.sum().item())", "seen.append(len(kept))", "seen.append(s.tolist())",
    "while {x}.detach().abs().max() > 3.0:\n    {x} = {x} * 0.5", "kept[:1] = [{x}]", "kept[:1] = [{x}[...]]",
    "seen.append(type({x}.grad_fn).__name__)", "if {x}.is_contiguous():\n    {t} = {x} + 1.0",
    "seen.append({x}.detach().numpy())", "seen.append(v.sum().item())", "seen[:] = [{x}.mean().item()]",
)  # fmt: skip
GRADIENTS = (
    "({x} * {y}).sum().backward()", "{x}.sum().backward(retain_graph=True)", "({x} * w).sum().backward()",
    "w.grad = None", "w.grad, v.grad = None, None", "kept[:1] = [w.grad]", "w.grad.mul_(0.5)", "w.grad.zero_()",
    "with weft.no_grad():\n    w.sub_(0.1 * w.grad)", "w.data.sub_(0.1 * w.grad)", "optimizer.zero_grad()",
    "({x} * w).square().mean().backward()\noptimizer.step()\noptimizer.zero_grad()", "optimizer.step()",
    "{t} = weft.autograd.grad(({x} * w).sum(), [w], retain_graph=True)[0]",
    "{t} = weft.autograd.grad(({x} * w).square().sum(), w, create_graph=True)[0]\n{t}.square().sum().backward()",
    "{t} = weft.autograd.grad(({x} * w).sin().sum(), w, create_graph=True)[0]",
    "({x} * w).square().sum().backward(create_graph=True)", "({x} * w * v).tanh().backward(s)",
    "{t} = {x} * w\n{t}.retain_grad()\n{t}.square().sum().backward()\nkept.append({t}.grad)",
    "{t} = {x} * v\n{t}.register_hook(lambda g: g * 0.5)\n{t}.sum().backward()",
    "{t} = {x} * v\n{t}.sum().backward(inputs=[v])", "F.mse_loss(model({x} * w), s).backward()\noptimizer.step()",
    "{t} = {x}.detach().requires_grad_()\n({t} * w).square().sum().backward()\n{t} = {t}.grad",
    "for p in model.parameters():\n    p.grad = None",
)  # fmt: skip
ODDITIES = (
    "if calls[0] == {k}:\n    raise ValueError('in the middle')", "if calls[0] == {k}:\n    gc.collect()", "gc.collect()",
    "if calls[0] == {k}:\n    w.data = w.data.clone()", "if calls[0] == {k}:\n    w.requires_grad_(False)",
    "if calls[0] == {k}:\n    s = s.clone()", "if calls[0] == {k}:\n    box.hold = {x}", "look_elsewhere()",
    "if calls[0] == {k}:\n    signal.raise_signal(signal.SIGUSR1)", "signal.raise_signal(signal.SIGUSR1)",
    "if calls[0] == {k}:\n    array[...] = 2.0", "if calls[0] == {k}:\n    {x} = {x}.double()", "w.requires_grad_(True)",
    "if calls[0] == {k}:\n    raise KeyboardInterrupt", "model.eval()", "model.train()", "if calls[0] == {k}:\n    {x} + base",
    "try:\n    {x} @ weft.ones(7, 7)\nexcept RuntimeError as error:\n    seen.append(type(error).__name__)",
    "if calls[0] == {k}:\n    return None", "if calls[0] == {k}:\n    optimizer.param_groups[0]['lr'] *= 0.5",
    "if calls[0] == {k}:\n    weft.set_default_dtype(weft.float64)", "weft.manual_seed(3)", "box.ref = weakref.ref({x})",
    "if calls[0] == {k}:\n    handle = w.register_hook(lambda g: g * 2.0)",
)  # fmt: skip
RETURNS = (
    "return {x}", "return {x}", "return {x}, {y}", "return [{x}, {y}]", "return {{'a': {x}, 'b': ({y}, None)}}",
    "return {x}, {x}", "return {x}, {x}[...]", "return ({x} * w)[0], ({y} * w).t()", "return {x}.sum()", "return None",
    "return {x}.detach(), {y}", "return ({x} * w).sum()", "return ({x} * w).sum(), ({y} * v).sum()", "return x, {x}",
    "return {x}.item() if {x}.numel() == 1 else {x}.sum().item()", "box.last = {x}\nreturn {y}", "return w, {x}",
    "{t} = {x} * w\nreturn {t}, {t}[0], {t}[0][1:]", "return model({x} * w)", "return model({x} * w).sum(), {y}",
    "return {x}.mean(), {y}.detach()", "return {x} * w, {y} * v, s",
)  # fmt: skip

# How arguments are taken and given: parameters, first lines, the call. {a}, {b}: what is given.
SIGNATURES = (
    ("x, y", "pass", "{a}, {b}"),
    ("x, y", "pass", "{a}, {b}"),
    ("x, *, y, scale=0.5", "pass", "{a}, y={b}, scale=0.5 + call"),
    ("batch, scale=1.5", "x, y = batch['x'], batch['y']", "{{'x': {a}, 'y': {b}}}"),
    ("pair, scale=1.5", "x, y = pair", "({a}, {b})"),
    ("pairs", "x, (y, scale) = pairs", "[{a}, ({b}, 0.5 + call)]"),
    ("*given, scale=1.5", "x, y = given", "{a}, {b}"),
    ("x, y, scale", "pass", "{a}, {b}, call % 2"),
    ("x, y=None, **more", "y = x if y is None else y", "{a}, note='n', z={b}"),
)
ARGUMENTS = (
    "randn(3, 4)", "randn(3, 4)", "randn(3, 4)", "randn(4)", "a", "b", "randn(4, 3).t()", "s", "w", "base[0]", "n", "a",
    "randn(3, 4, requires_grad=True)", "w * 2.0", "w.detach()", "r0", "s[1]", "b.expand(3, 4)", "weft.ones(3, 4)", "a[0]",
    "base[:3]", "weft.from_numpy(array)", "randn(())", "randn(3, 4).double()", "weft.arange(12).view(3, 4)", "u", "v",
)  # fmt: skip
# What happens to the results. rs: all tensors of them.
AFTER = (
    "pass", "pass", "{r}.sum().backward()", "({r} * 2).sum().backward(retain_graph=True)", "{r}.backward()",
    "{r}.sum().backward()", "weft.autograd.backward([o for o in rs if o.requires_grad], [weft.ones_like(o) for o in rs if o.requires_grad])",
    "weft.autograd.backward([o for o in rs if o.requires_grad], [weft.rand(o.shape) for o in rs if o.requires_grad])",
    "weft.autograd.backward([o.sum() for o in rs if o.requires_grad])", "{r}.backward(weft.full_like({r}, 0.5))",
    "{r}.backward(retain_graph=True)\n{r}.backward()", "{r}.backward(weft.ones_like({r}), retain_graph=True)\n{r}.backward(weft.ones_like({r}))",
    "{r}.backward(weft.ones_like({r}))\n{r}.backward(weft.ones_like({r}))", "{r}.sum().backward()\n{q}.sum().backward()",
    "kept.append(weft.autograd.grad({r}.sum(), [w, v], allow_unused=True))", "kept.append(weft.autograd.grad({r}, [w]))",
    "kept.append(weft.autograd.grad({r}.sum(), w, create_graph=True)[0])", "{r}.backward()\noptimizer.step()",
    "g = weft.autograd.grad({r}.sum(), w, create_graph=True)[0]\n(g * w).sum().backward()",
    "g = weft.autograd.grad({r}, [w], [weft.ones_like({r})], create_graph=True)[0]\ng.square().sum().backward()",
    "{r}.sum().backward(create_graph=True)\nw.grad.sum().backward()", "optimizer.zero_grad()\n{r}.sum().backward()\noptimizer.step()",
    "{r}.sum().backward(inputs=[w])", "{r}.mul_(0.5)", "with weft.no_grad():\n    {r}.zero_()", "{r}[...] = 1.0", "{r}.data.add_(1.0)",
    "{r}.retain_grad()\n{r}.sum().backward()\nyield {r}.grad", "{r}.register_hook(lambda g: g * 2.0)\n({r} * 1.5).sum().backward()",
    "{r}.detach().add_(1.0)", "{r}.requires_grad_()\n({r} * {r}).sum().backward()\nyield {r}.grad", "kept.append({r})", "kept.append({r}[...])",
    "box.r = {r}", "box.r = {r}.detach()", "kept.clear()", "seen.clear()", "yield {r}.grad_fn.name()", "yield rs", "yield peek(rs)",
    "yield shared([*rs, a, b, s, u, w, n, base])", "kept[0].sum().backward()", "kept[-1].sum().backward(retain_graph=True)",
    "with weft.no_grad():\n    w.mul_(0.9)\n{r}.sum().backward()", "s.add_(1.0)\n{r}.sum().backward()", "a.add_(1.0)\n{r}.sum().backward()",
    "w.data.mul_(0.9)\n{r}.sum().backward()", "ref = weakref.ref({r})\ndel r, rs\ngc.collect()\nyield ref() is None", "array[...] = call",
    "sum((k.sum() for k in flat(kept) if k.requires_grad), weft.zeros(())).backward()", "yield {r}.grad_fn.next_functions[0][0].name()",
    "({r} * {q}).sum().backward()", "w.grad = None\nv.grad = None", "r = rs = None", "rs = None", "yield {r}._version, {r}.stride()",
    "with weft.no_grad():\n    w.sub_(0.1 * w.grad)\nw.grad = None", "optimizer.step()", "optimizer.zero_grad()", "{r}.numpy()[...] = 0.5",
    "({r}.sum() + w.sum()).backward()", "f0({r}, {q})", "copied = copy.deepcopy({r}.detach())\nyield copied", "yield {r}.sum().item()",
    "{r}.unsqueeze(0).add_(1.0)", "nn.utils.clip_grad_norm_([w, v], 0.5)\noptimizer.step()",
    "{r}.sum().backward()\n{r}.sum().backward()", "{r}.detach().requires_grad_().sum().backward()",
)  # fmt: skip
# What changes between calls.
SURGERY = (
    "pass", "w.grad = None", "w.data = w.data.clone()", "w.data.mul_(0.5)", "w.requires_grad_(not w.requires_grad)",
    "v.requires_grad_(False)", "v.requires_grad_(True)", "s = weft.zeros(3, 4)", "w = randn(3, 4, requires_grad=True)",
    "u = randn(4)", "box.scale = 1.25", "box.scale = weft.tensor(0.5)", "box.scale = 1", "kept.clear()", "del kept[:1]",
    "gc.collect()", "model.double()", "model.float()", "model.eval()", "model.train()", "model = copy.deepcopy(model)",
    "model[1] = nn.ReLU()", "model.requires_grad_(False)", "model.requires_grad_(True)", "model[0].weight.data.zero_()",
    "model.load_state_dict(other.state_dict())", "other = copy.deepcopy(model)", "model, other = other, model",
    "model[0].weight = nn.Parameter(randn(4, 4))", "model[0].bias = None", "optimizer.param_groups[0]['lr'] = 0.01",
    "optimizer = optim.Adam([w, v, *model.parameters()], lr=0.02)", "optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))",
    "optimizer.state.clear()", "optimizer.add_param_group({'params': [weft.ones(2, requires_grad=True)]})", "saved = optimizer.state_dict()",
    "handle = w.register_hook(lambda g: g * 2.0)", "handle.remove()", "handle = w.register_hook(lambda g: seen.append(g.sum().item()))",
    "handle = w.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.sum().item()))", "box.r = None", "box.hold = None",
    "held = w.detach()", "held = w.detach().numpy()", "held = s[0]", "held = None", "held = w.view(-1)", "held = s.numpy()",
    "array[...] = 0.25", "array = np.ones((3, 4), np.float32)\nn = weft.from_numpy(array)", "base = randn(6, 4)", "a = base[1:4]",
    "a = randn(3, 4)", "b = randn(4)", "a, b = randn(3, 4), a[0]", "with weft.no_grad():\n    w.copy_(randn(3, 4))", "s = w.detach()",
    "weft.set_default_dtype(weft.float64)", "weft.set_default_dtype(weft.float32)", "mode.append(weft.no_grad())", "mode.clear()",
    "v.data = v.data.double()", "v.data = v.data.float()", "w.data = w.data.t().contiguous().t()", "w.grad = weft.ones(3, 4)",
    "box = copy.deepcopy(box)", "weft.manual_seed(5)", "s.requires_grad_(True)", "s = s.detach()", "r0 = randn(3, 4)", "u = v", "u = s[0]",
    "inner = weft.sin", "model[0].register_forward_hook(lambda module, given, out: out * 0.5)", "v = w[0].detach().requires_grad_()",
)  # fmt: skip
