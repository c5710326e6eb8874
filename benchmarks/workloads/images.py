"""Convolutional networks, trained with momentum: LeNet on digits, and ResNet-18 (He et al., arXiv 1512.03385)."""

import numpy as np


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
