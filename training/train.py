"""Trains: python -m training.train DATA RUN --steps N [--decay M]. Goes on from RUN/last.pt where that exists.

Workers of one thread each share the parameters and take their own rows; a step sums their gradients, and each updates
the parameters it owns. That keeps two busy cores busy, where one process with two threads waits for itself. SIGTERM (or
Ctrl-C) ends the run after the step, with a checkpoint.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path
from random import Random
from typing import Any

import torch
import torch.multiprocessing as mp
import torch.nn.functional as F

from training.batches import Batch, Source
from training.curriculum import STAGES
from training.model import Model, MoE, Shape
from training.optimizer import Optimizer, is_matrix

WARMUP = 60
BALANCE = 5e-3
PASSED, PATIENCE = (
    0.94,
    0.9,
)  # accuracy of keys and values that ends a stage, as a mean that forgets at this rate
REHEARSAL = 0.4  # share of steps that go back to one of the two stages before
VALUE_SHARE = 0.6  # of a retrieval batch's loss; counted by token, long rows were mostly text
SAVE_EVERY = 50
KEPT = 2  # checkpoints; the last is last.pt as well
STATS = ("retrieval_loss", "value_loss", "value_accuracy", "text_loss", "seconds")


def loss_of(model: Model, batch: Batch) -> tuple[torch.Tensor, dict[str, float]]:
    """Weighted mean cross-entropy, of values and the rest apart; loss and accuracy at the values asked for."""
    logits = model.lm_head(model.hidden(batch.inputs))
    losses = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), reduction="none").view(
        batch.targets.shape
    )
    found: dict[str, float] = {}
    values = batch.values
    others = batch.weights * ~values
    loss = (losses * others).sum() / others.sum()
    if values.any():
        loss = VALUE_SHARE * losses[values].mean() + (1 - VALUE_SHARE) * loss
        right = logits.detach()[values].argmax(-1) == batch.targets[values]
        found = {
            "value_loss": float(losses.detach()[values].mean()),
            "value_accuracy": float(right.float().mean()),
        }
    return loss, found


def rate(step: int, steps: int, decay: int, peak: float = 1.0) -> float:
    """Of the learning rate: warm-up, constant at `peak`, linear to a twentieth over the last `decay` steps."""
    left = steps - step
    return peak * min(1.0, (step + 1) / WARMUP) * (1.0 if left >= decay else max(0.05, left / decay))


class Shared:
    """What the workers have in common: parameters, gradients of each, loads of the experts, figures."""

    def __init__(self, model: Model, workers: int) -> None:
        self.model = model
        model.share_memory()
        self.names = [name for name, _ in model.named_parameters()]
        sizes = [p.numel() for p in model.parameters()]
        self.gradients = torch.zeros(workers, sum(sizes)).share_memory_()
        self.moes = [layer.mlp for layer in model.layers if isinstance(layer.mlp, MoE)]
        self.loads = torch.zeros(workers, len(self.moes), model.shape.num_experts).share_memory_()
        self.stats = torch.zeros(workers, len(STATS)).share_memory_()
        self.stage = torch.zeros(2, dtype=torch.float64).share_memory_()  # stage, mean accuracy in it
        self.asked_to_stop = torch.zeros(1).share_memory_()
        self.stopping = torch.zeros(1).share_memory_()  # the same, but changing only between two steps
        self.sizes = sizes

    def views(self, worker: int) -> dict[str, torch.Tensor]:
        """A worker's gradients by name."""
        parts = self.gradients[worker].split(self.sizes)
        shapes = [p.shape for p in self.model.parameters()]
        return {n: part.view(s) for n, part, s in zip(self.names, parts, shapes, strict=True)}

    def owned(self, workers: int) -> list[list[str]]:
        """Names that each worker updates; about the same work."""
        cost = {n: p.numel() * (8 if is_matrix(n, p) else 1) for n, p in self.model.named_parameters()}
        lists: list[list[str]] = [[] for _ in range(workers)]
        sums = [0] * workers
        for name in sorted(cost, key=cost.__getitem__, reverse=True):
            least = sums.index(min(sums))
            lists[least].append(name)
            sums[least] += cost[name]
        return lists


class Trainer:
    """One worker's part."""

    def __init__(
        self, args: argparse.Namespace, shared: Shared, source: Source, worker: int, barrier: Barrier
    ) -> None:
        self.args, self.shared, self.worker, self.barrier = args, shared, worker, barrier
        self.model = shared.model
        self.source = source
        parameters = dict(self.model.named_parameters())
        self.optimizer = Optimizer({n: parameters[n].data for n in shared.owned(args.workers)[worker]})
        for name, view in shared.views(worker).items():
            parameters[name].grad = view
        self.all_views = [shared.views(w) for w in range(args.workers)]
        for n, moe in enumerate(shared.moes):
            moe.load = shared.loads[worker, n]

    def run(self, first: int) -> None:
        self.model.train()
        for step in range(first, self.args.steps):
            begin = time.monotonic()
            stage = self._stage(step)
            stats = self._gradients(step, stage)
            stats["seconds"] = time.monotonic() - begin
            self.shared.stats[self.worker] = torch.tensor([stats[name] for name in STATS])
            self.barrier.wait()
            self._update(step)
            self.barrier.wait()
            if self.worker == 0:
                self._finish(step, stage, time.monotonic() - begin)
            self.barrier.wait()
            stopping = bool(self.shared.stopping)
            if stopping or (step + 1) % SAVE_EVERY == 0 or step + 1 == self.args.steps:
                self._save(step + 1)
            if stopping:
                return

    def _stage(self, step: int) -> int:
        """The stage of a step, the same for all workers."""
        now = int(self.shared.stage[0])
        r = Random(f"{self.args.seed} stage {step}")
        return r.randrange(max(0, now - 2), now) if now and r.random() < REHEARSAL else now

    def _gradients(self, step: int, stage: int) -> dict[str, float]:
        r = Random(f"{self.args.seed} {step} {self.worker}")
        self.shared.gradients[self.worker].zero_()
        loss, found = loss_of(self.model, self.source.retrieval(r, STAGES[stage]))
        loss.backward()
        text, _ = loss_of(self.model, self.source.text(r, STAGES[stage]))
        text.backward()
        return {"retrieval_loss": loss.item(), "text_loss": text.item()} | found

    def _update(self, step: int) -> None:
        own = self.optimizer.parameters
        summed = {name: sum(views[name] for views in self.all_views) / self.args.workers for name in own}
        self.optimizer.step(summed, self._rate(step))

    def _rate(self, step: int) -> float:
        return rate(step, self.args.steps, self.args.decay, self.args.peak)

    def _balance(self) -> float:
        """Raises the bias of experts that got too few tokens (DeepSeek-V3, arXiv 2412.19437, 2.1.2); the largest
        load over the mean."""
        worst = 0.0
        for n, moe in enumerate(self.shared.moes):
            load = self.shared.loads[:, n].sum(0)
            moe.gate.expert_bias += BALANCE * torch.sign(load.mean() - load)
            worst = max(worst, float(load.max() / load.mean()))
        self.shared.loads.zero_()
        return worst

    def _finish(self, step: int, stage: int, seconds: float) -> None:
        """What one worker does for all: balance, curriculum, log."""
        self.shared.stopping.copy_(self.shared.asked_to_stop)
        means = dict(zip(STATS, self.shared.stats.mean(0).tolist(), strict=True))
        worst = self._balance()
        now, mean = self.shared.stage.tolist()
        if stage == int(now):
            mean = PATIENCE * mean + (1 - PATIENCE) * means["value_accuracy"]
            passed = mean >= PASSED and int(now) + 1 < len(STAGES)
            self.shared.stage[:] = torch.tensor(
                [now + 1, 0.0] if passed else [now, mean], dtype=torch.float64
            )
        kind = STAGES[stage]
        tokens = self.args.workers * (kind.rows * kind.length + kind.text_rows * kind.text_length)
        entry = {
            "step": step, "stage": stage, "current": int(now), "mean_accuracy": mean, "tokens": tokens,
            "rate": self._rate(step), "balance": worst, **means, "step_seconds": seconds,
        }  # fmt: skip
        with (self.args.run / "log.jsonl").open("a") as log:
            log.write(
                json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in entry.items()}) + "\n"
            )

    def _save(self, step: int) -> None:
        """Each worker its part of the optimizer, the first the weights last: that file makes it valid.

        To go on from an earlier one that is kept, copy its model.STEP.pt over last.pt.
        """
        run = self.args.run
        _write(run / f"optimizer.{self.worker}.{step}.pt", self.optimizer.state_dict())
        self.barrier.wait()
        if self.worker == 0:
            state = {
                "model": self.model.state_dict(), "step": step, "stage": self.shared.stage.clone(),
                "workers": self.args.workers,
            }  # fmt: skip
            _write(run / f"model.{step}.pt", state)
            _write(run / "last.pt", state)
            known = sorted(run.glob("model.*.pt"), key=lambda p: int(p.name.split(".")[1]))
            kept = {p.name.split(".")[1] for p in known[-KEPT:]} | {str(step)}
            for old in (*known, *run.glob("optimizer.*.pt")):
                if old.name.split(".")[-2] not in kept:
                    old.unlink()
        self.barrier.wait()


def _write(path: Path, state: dict[str, Any]) -> None:
    scratch = path.with_suffix(".tmp")
    torch.save(state, scratch)
    scratch.replace(path)


def _worker(
    worker: int, args: argparse.Namespace, shared: Shared, source: Source, barrier: Barrier, first: int
) -> None:
    torch.set_num_threads(1)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # the parent passes it on
    try:
        trainer = Trainer(args, shared, source, worker, barrier)
        if first:
            saved = torch.load(args.run / "last.pt", weights_only=True)
            parts = [
                torch.load(args.run / f"optimizer.{w}.{first}.pt", weights_only=True)
                for w in range(saved["workers"])
            ]
            merged = {k: v for part in parts for k, v in part["state"].items()}
            trainer.optimizer.load({"count": parts[0]["count"], "state": merged})
        trainer.run(first)
    except BaseException:
        barrier.abort()
        raise


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("run", type=Path, help="has the tokenizer; takes checkpoints and log.jsonl")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--decay", type=int, default=0, help="last steps in which the learning rate falls")
    parser.add_argument("--peak", type=float, default=1.0, help="factor on the learning rates")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--stage", type=int, help="start or go on at this stage of the curriculum")
    args = parser.parse_args()
    torch.set_num_threads(1)
    first = 0
    if (args.run / "last.pt").exists():
        model = Model(Shape.load(args.run / "shape.json"))
        saved = torch.load(args.run / "last.pt", weights_only=True)
        model.load_state_dict(saved["model"])
        first = saved["step"]
    else:
        model = Model(Shape(), args.seed)
        (args.run / "shape.json").write_text(json.dumps(model.shape.to_dict(), indent=1) + "\n")
    shared = Shared(model, args.workers)
    if first:
        shared.stage.copy_(saved["stage"])
    if args.stage is not None:
        shared.stage[:] = torch.tensor([args.stage, 0.0])
    count = sum(p.numel() for p in model.parameters())
    print(f"{count:,} parameters, steps {first} to {args.steps}", flush=True)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    source = Source(args.data, args.run)  # once, before the workers part
    context = mp.get_context("fork")
    barrier = context.Barrier(args.workers)
    workers = [
        context.Process(target=_worker, args=(w, args, shared, source, barrier, first))
        for w in range(args.workers)
    ]
    for process in workers:
        process.start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: shared.asked_to_stop.fill_(1))
    (args.run / "pids").write_text("".join(f"{p}\n" for p in (os.getpid(), *(w.pid for w in workers))))
    for process in workers:
        process.join()
    if any(w.exitcode for w in workers):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
