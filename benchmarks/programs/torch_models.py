"""The models as PyTorch programs write them."""

from __future__ import annotations

from typing import Any

from torch import nn


class Flat(nn.Module):
    """Passes on what a module returns, without the state of a recurrent one."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        """The last output of a sequence."""
        return self.inner(x)[0][:, -1]


def mlp() -> nn.Module:
    """784-256-256-10."""
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))


def estimator_cnn() -> nn.Module:
    """The network of the Estimator tutorial."""
    head = [nn.Flatten(), nn.Linear(5408, 64), nn.ReLU(), nn.Linear(64, 10)]
    return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), *head)


def workers_cnn() -> nn.Module:
    """The network of the multi-worker tutorial."""
    head = [nn.Flatten(), nn.Linear(21632, 128), nn.ReLU(), nn.Linear(128, 10)]
    return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), *head)


def lstm() -> nn.Module:
    """Embedding and LSTM of 128."""
    return nn.Sequential(nn.Embedding(20_000, 128), Flat(nn.LSTM(128, 128, batch_first=True)), nn.Linear(128, 2))


class Transformer(nn.Module):
    """Two encoder blocks of width 128, 4 heads."""

    def __init__(self) -> None:
        super().__init__()
        block = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
        self.embed = nn.Embedding(20_000, 128)
        self.blocks = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)
        self.head = nn.Linear(128, 2)

    def forward(self, tokens: Any) -> Any:
        """Logits of int (n, 128) tokens."""
        return self.head(self.blocks(self.embed(tokens)).mean(1))


def _convolution(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    return [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]


class _Inverted(nn.Module):
    """A block of MobileNetV2: widen, filter each channel, narrow."""

    def __init__(self, inputs: int, outputs: int, stride: int, widening: int) -> None:
        super().__init__()
        wide = inputs * widening
        layers = [*_convolution(inputs, wide, 1), nn.ReLU6()] if widening > 1 else []
        layers += [*_convolution(wide, wide, 3, stride, wide), nn.ReLU6(), *_convolution(wide, outputs, 1)]
        self.body = nn.Sequential(*layers)
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Any) -> Any:
        return x + self.body(x) if self.adds else self.body(x)


def mobilenet() -> nn.Module:
    """MobileNetV2 for two classes."""
    layers, inputs = [*_convolution(3, 32, 3, 2), nn.ReLU6()], 32
    plan = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    for widening, outputs, count, stride in plan:
        for i in range(count):
            layers.append(_Inverted(inputs, outputs, stride if i == 0 else 1, widening))
            inputs = outputs
    layers += [*_convolution(320, 1280, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 2)]
    return nn.Sequential(*layers)


class _Bottleneck(nn.Module):
    """A block of ResNet-50."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *_convolution(inputs, width, 1),
            nn.ReLU(),
            *_convolution(width, width, 3, stride),
            nn.ReLU(),
            *_convolution(width, 4 * width, 1),
        )
        same = stride == 1 and inputs == 4 * width
        self.shortcut = nn.Identity() if same else nn.Sequential(*_convolution(inputs, 4 * width, 1, stride))

    def forward(self, x: Any) -> Any:
        return nn.functional.relu(self.body(x) + self.shortcut(x))


def resnet() -> nn.Module:
    """ResNet-50 for 1,000 classes."""
    layers, inputs = [*_convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(count):
            layers.append(_Bottleneck(inputs, width, stride if i == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


MODELS = {"mobilenet": mobilenet, "resnet": resnet, "lstm": lstm, "transformer": Transformer}
