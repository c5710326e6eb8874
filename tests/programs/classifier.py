"""A classifier's training script, as people write them: for whatever device there is."""

import argparse
import json
import os
import tempfile

import torch
import torch.backends.cudnn as cudnn
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.amp import GradScaler, autocast
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--no-cuda", action="store_true")
    parser.add_argument("--device", default=None)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--amp", action="store_true")
    return parser.parse_args()


class Net(nn.Module):
    def __init__(self, features: int, classes: int, device: torch.device = None, dtype: torch.dtype = None) -> None:
        super().__init__()
        options = {"device": device, "dtype": dtype}
        self.fc1 = nn.Linear(features, 32, **options)
        self.norm = nn.LayerNorm(32, **options)
        self.bn = nn.BatchNorm1d(32, **options)
        self.fc2 = nn.Linear(32, classes, bias=False, **options)
        self.register_buffer("scale", torch.tensor(0.5, device=device))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert x.device == self.fc1.weight.device
        x = F.relu(self.norm(self.fc1(x)), inplace=True)
        x = self.bn(x).contiguous(memory_format=torch.contiguous_format)
        return F.log_softmax(self.fc2(x) * self.scale.to(x.device), dim=1)


def known_weights(model):
    """Random numbers differ between libraries: every parameter gets numbers that do not."""
    with torch.no_grad():
        for k, p in enumerate(model.parameters()):
            steps = torch.arange(p.numel(), dtype=torch.float32, device=p.device)
            p.copy_(torch.sin(steps * 0.7 + k).reshape(p.shape) * 0.3)


def train(args, model, device, loader, optimizer, scaler, epoch):
    model.train()
    losses = []
    for data, target in loader:
        data, target = data.to(device, non_blocking=True), target.to(device, non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        with autocast(device_type=device.type, enabled=args.amp):
            loss = F.nll_loss(model(data), target)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=None)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses


@torch.inference_mode()
def test(model, device, loader):
    model.eval()
    loss = torch.zeros((), device=device)
    correct = 0
    for data, target in loader:
        output = model(data.to(device))
        loss += F.nll_loss(output, target.to(device), reduction="sum")
        correct += output.argmax(dim=1).eq(target).sum().item()
    return loss.cpu().item(), correct


def main():
    args = arguments()
    use_cuda = not args.no_cuda and torch.cuda.is_available()
    use_mps = torch.backends.mps.is_available()
    device = torch.device(args.device or ("cuda" if use_cuda else "mps" if use_mps else "cpu"))
    torch.manual_seed(args.seed)
    if device.type == "cuda":
        torch.cuda.manual_seed_all(args.seed)
        cudnn.benchmark = True
    cudnn.deterministic = True
    torch.set_float32_matmul_precision("high")

    x = torch.cos(torch.arange(64 * 8, dtype=torch.float32)).view(64, 8)
    y = (x.sum(1) > 0).long() + (x[:, 0] > 0.5).type(torch.LongTensor)
    options = {"num_workers": 0, "pin_memory": use_cuda, "drop_last": True, "persistent_workers": False}
    loader = DataLoader(TensorDataset(x, y), batch_size=args.batch_size, shuffle=False, **options)

    model = Net(8, 3, device=device).to(device=device, dtype=torch.float32)
    known_weights(model)
    optimizer = optim.AdamW(model.parameters(), lr=1e-2, eps=1e-4, fused=use_cuda, foreach=None)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    scaler = GradScaler(device.type, enabled=args.amp)
    losses = []
    for epoch in range(args.epochs):
        losses += train(args, model, device, loader, optimizer, scaler, epoch)
        scheduler.step()
    if device.type == "cuda":
        torch.cuda.synchronize()

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "checkpoint.pt")
        torch.save({"model": model.state_dict(), "scaler": scaler.state_dict(), "rng": torch.get_rng_state()}, path)
        checkpoint = torch.load(path, map_location=device, weights_only=True)
        again = Net(8, 3).to(device)
        again.load_state_dict(checkpoint["model"])
        torch.set_rng_state(checkpoint["rng"].cpu())
    print(json.dumps({"losses": losses, "test": test(again, device, loader), "device": str(device)}))


if __name__ == "__main__":
    main()
