"""Convolutional networks, trained with momentum: LeNet on digits, and ResNet-18 (He et al., arXiv 1512.03385)."""

from functools import partial

import numpy as np

from ..workload import Training


def lenet(library):
    """LeCun et al. 1998, as PyTorch's tutorials write it."""
    nn = library.nn
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
    )


def resnet18(library, classes=1000):
    """The network of torchvision, with its names of parameters."""
    nn = library.nn

    class Block(nn.Module):
        def __init__(self, inputs, outputs, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(outputs)
            self.relu = nn.ReLU(inplace=True)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(outputs)
            self.downsample = None
            if stride != 1 or inputs != outputs:
                convolution = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
                self.downsample = nn.Sequential(convolution, nn.BatchNorm2d(outputs))

        def forward(self, x):
            identity = x if self.downsample is None else self.downsample(x)
            out = self.relu(self.bn1(self.conv1(x)))
            return self.relu(self.bn2(self.conv2(out)) + identity)

    class ResNet18(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
            self.bn1 = nn.BatchNorm2d(64)
            self.relu = nn.ReLU(inplace=True)
            self.maxpool = nn.MaxPool2d(3, 2, 1)
            self.layer1 = nn.Sequential(Block(64, 64, 1), Block(64, 64, 1))
            self.layer2 = nn.Sequential(Block(64, 128, 2), Block(128, 128, 1))
            self.layer3 = nn.Sequential(Block(128, 256, 2), Block(256, 256, 1))
            self.layer4 = nn.Sequential(Block(256, 512, 2), Block(512, 512, 1))
            self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
            self.fc = nn.Linear(512, classes)

        def forward(self, x):
            x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
            x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
            return self.fc(self.avgpool(x).flatten(1))

    return ResNet18()


def drawn(shapes, seed=0):
    """Parameters as PyTorch's layers draw them: uniform by the inputs of an output, normalisations as they begin."""
    rng, result = np.random.default_rng(seed), []
    bound = 0.0
    for name, shape in shapes:
        if len(shape) > 1:
            bound = 1 / np.sqrt(np.prod(shape[1:]))
            result.append(rng.uniform(-bound, bound, shape).astype(np.float32))
        elif "bn" in name or "downsample" in name:
            result.append(np.full(shape, float(name.endswith("weight")), np.float32))
        else:
            result.append(rng.uniform(-bound, bound, shape).astype(np.float32))
    return result


# --- the same in JAX --------------------------------------------------------------------------------------------------
_LAYOUT = ("NCHW", "WHIO", "NCHW")


def jax_convolution(jax, x, weight, stride=1, padding=0):
    sides = [(padding, padding)] * 2
    return jax.lax.conv_general_dilated(x, weight, (stride, stride), sides, dimension_numbers=_LAYOUT)


def jax_max_pool(jax, x, kernel, stride, padding):
    sides = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    shape = (1, 1, kernel, kernel), (1, 1, stride, stride)
    return jax.lax.reduce_window(x, -jax.numpy.inf, jax.lax.max, *shape, sides)


def jax_cross_entropy(jax, logits, y):
    log_probabilities = jax.nn.log_softmax(logits)
    return -jax.numpy.take_along_axis(log_probabilities, y[:, None], axis=1).mean()


def jax_lenet_loss(jax, parameters, x, y):
    pairs = list(zip(parameters[::2], parameters[1::2]))
    for (weight, bias), padding in zip(pairs[:2], (2, 0)):
        x = jax_convolution(jax, x, weight, 1, padding) + bias[:, None, None]
        x = jax_max_pool(jax, jax.nn.relu(x), 2, 2, 0)
    x = x.reshape(x.shape[0], -1)
    for weight, bias in pairs[2:4]:
        x = jax.nn.relu(x @ weight + bias)
    weight, bias = pairs[4]
    return jax_cross_entropy(jax, x @ weight + bias, y)


def jax_normalised(jax, x, weight, bias):
    mean = x.mean((0, 2, 3), keepdims=True)
    variance = ((x - mean) ** 2).mean((0, 2, 3), keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * weight[:, None, None] + bias[:, None, None]


def jax_resnet18_loss(jax, parameters, x, y):
    """Parameters in the order of the module's; running statistics, which no loss depends on, are left out."""
    rest = iter(parameters)

    def block(x, stride):
        out = jax_convolution(jax, x, next(rest), stride, 1)
        out = jax.nn.relu(jax_normalised(jax, out, next(rest), next(rest)))
        out = jax_normalised(jax, jax_convolution(jax, out, next(rest), 1, 1), next(rest), next(rest))
        if out.shape != x.shape:
            x = jax_normalised(jax, jax_convolution(jax, x, next(rest), stride), next(rest), next(rest))
        return jax.nn.relu(out + x)

    x = jax.nn.relu(jax_normalised(jax, jax_convolution(jax, x, next(rest), 2, 3), next(rest), next(rest)))
    x = jax_max_pool(jax, x, 3, 2, 1)
    for stride in (1, 1, 2, 1, 2, 1, 2, 1):
        x = block(x, stride)
    weight, bias = rest
    return jax_cross_entropy(jax, x.mean((2, 3)) @ weight + bias, y)


# --- the workloads ----------------------------------------------------------------------------------------------------
_LENET = [
    *(("weight", (6, 1, 5, 5)), ("bias", (6,)), ("weight", (16, 6, 5, 5)), ("bias", (16,)), ("weight", (120, 400))),
    *(("bias", (120,)), ("weight", (84, 120)), ("bias", (84,)), ("weight", (10, 84)), ("bias", (10,))),
]


def resnet18_shapes(classes):
    """(name, shape) of the parameters, in the order of the module's."""
    shapes = [("conv1.weight", (64, 3, 7, 7)), ("bn1.weight", (64,)), ("bn1.bias", (64,))]
    inputs = 64
    for outputs in (64, 128, 256, 512):
        for _ in range(2):
            for number, channels in ((1, inputs), (2, outputs)):
                shapes.append((f"conv{number}.weight", (outputs, channels, 3, 3)))
                shapes += [(f"bn{number}.{kind}", (outputs,)) for kind in ("weight", "bias")]
            if inputs != outputs:
                shapes.append(("downsample.0.weight", (outputs, inputs, 1, 1)))
                shapes += [(f"downsample.1.{kind}", (outputs,)) for kind in ("weight", "bias")]
            inputs = outputs
    return [*shapes, ("fc.weight", (classes, 512)), ("fc.bias", (classes,))]


def arrays(shapes, image, batch, classes, n_batches):
    rng = np.random.default_rng(1)
    batches = [
        (rng.standard_normal((batch, *image), dtype=np.float32), rng.integers(0, classes, batch))
        for _ in range(n_batches)
    ]
    return drawn(shapes), batches


def loss(library, model, x, y):
    return library.nn.functional.cross_entropy(model(x), y)


LENET = Training(
    "lenet",
    "LeNet, 28x28, batch 64, SGD step with momentum",
    partial(arrays, _LENET, (1, 28, 28), 64, 10, 8),
    lenet,
    loss,
    jax_lenet_loss,
    lr=0.01,
    momentum=0.9,
)


def resnet(batch):
    return Training(
        f"resnet18_{batch}",
        f"ResNet-18 with 1000 classes, 64x64, batch {batch}, SGD step with momentum",
        partial(arrays, resnet18_shapes(1000), (3, 64, 64), batch, 1000, 4),
        resnet18,
        loss,
        jax_resnet18_loss,
        lr=0.01,
        momentum=0.9,
        # Rounding errors grow a hundredfold from step to step where few numbers are normalised, for the last images are
        # 2x2: in float64 weft and PyTorch agree to 4e-11 after five steps, in float32 each is 0.3 away from that.
        tolerance=1e-2,
        compared_steps=1,
    )


RESNET18_1, RESNET18_16 = resnet(1), resnet(16)
