"""The training form against the transformers class: recurrence, whole model, gradients."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.oracle


@pytest.fixture(scope="module")
def torch():
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    return torch


def kda_inputs(torch, length, dtype, *, hard=False):
    """Random q, k, v, g, beta; `hard`: nearly one key everywhere, full writes, strongest decay in places."""
    generator = torch.Generator().manual_seed(length)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    q, k, v = (normal(2, length, 3, 8) for _ in range(3))
    if hard:
        k = 1 + 0.3 * k
    q, k = (x / x.norm(dim=-1, keepdim=True) for x in (q, k))
    g = -5 * torch.sigmoid(3 * normal(2, length, 3, 8) - (0 if hard else 3))
    beta = torch.sigmoid(normal(2, length, 3) + (3 if hard else 0))
    return [x.to(dtype).requires_grad_() for x in (q, k, v, g, beta)]


def recurrence(torch, q, k, v, g, beta):
    """The equations, one token after another."""
    state = q.new_zeros(*q.shape[:1], *q.shape[2:], v.shape[-1])
    outputs = []
    for t in range(q.shape[1]):
        state = g[:, t].exp().unsqueeze(-1) * state
        u = beta[:, t, :, None] * (v[:, t] - torch.einsum("bhkv,bhk->bhv", state, k[:, t]))
        state = state + k[:, t, :, :, None] * u.unsqueeze(-2)
        outputs.append(torch.einsum("bhkv,bhk->bhv", state, q[:, t]))
    return torch.stack(outputs, 1)


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize(("dtype", "bound"), [("float64", 1e-9), ("float32", 2e-3)])
@pytest.mark.parametrize("length", [16, 48, 160])
def test_recurrence(torch, length, dtype, bound, hard):
    """Forward and all five gradients. float64 shows that the algebra is right, float32 that it is stable."""
    from training import kda

    inputs = kda_inputs(torch, length, getattr(torch, dtype), hard=hard)
    exact = [x.detach().double().requires_grad_() for x in inputs]
    weights = torch.randn(2, length, 3, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    got, wanted = kda.chunked(*inputs), recurrence(torch, *exact)
    (got * weights.to(got.dtype)).sum().backward()
    (wanted * weights).sum().backward()
    pairs = [(got, wanted), *((x.grad, y.grad) for x, y in zip(inputs, exact, strict=True))]
    for name, (mine, right) in zip(("o", "q", "k", "v", "g", "beta"), pairs, strict=True):
        error = (mine.double() - right).norm() / right.norm()
        print(length, dtype, hard, name, error.item())
        assert error < bound, name


@pytest.mark.parametrize("length", [16, 64, 128])
def test_class_recurrence(torch, length):
    """The class's own fallback says the same (it scales the queries itself)."""
    from transformers.models.bailing_hybrid import modeling_bailing_hybrid as theirs

    from training import kda

    q, k, v, g, beta = (x.detach() for x in kda_inputs(torch, length, torch.float32))
    wanted, _ = theirs.chunk_kimi_delta_attention(q * q.shape[-1] ** 0.5, k, v, g, beta)
    assert (kda.chunked(q, k, v, g, beta) - wanted).norm() / wanted.norm() < 1e-5


@pytest.fixture(scope="module")
def pair(torch, tmp_path_factory):
    """(our model, the class's with the same weights), through the exported checkpoint."""
    from transformers import BailingHybridForCausalLM

    from training import export
    from training.model import Model, Shape
    from training.verify import load_class

    model = Model(Shape(vocab_size=272, num_experts=8), seed=3).eval()
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if name.endswith(("A_log", "expert_bias")) or "norm" in name:
                tensor += 0.2 * torch.randn(tensor.shape, generator=generator)
    folder = tmp_path_factory.mktemp("export")
    export.save(model, folder, {"bos": 257, "pad": 258, "eos": 259}, torch.float32)
    theirs = load_class(folder)
    assert isinstance(theirs, BailingHybridForCausalLM)
    return model, theirs


@pytest.mark.parametrize("length", [1, 15, 16, 17, 100, 200])
def test_logits(torch, pair, length):
    ours, theirs = pair
    tokens = torch.randint(0, 256, (2, length), generator=torch.Generator().manual_seed(length))
    with torch.no_grad():
        got, wanted = ours(tokens), theirs(tokens, use_cache=False).logits
    assert (got - wanted).abs().max() / wanted.abs().max() < 1e-4


def test_gradients(torch, pair):
    """Of the mean cross-entropy with respect to every tensor, by the class's own backward pass."""
    import torch.nn.functional as F

    from training import export

    ours, theirs = pair
    tokens = torch.randint(0, 256, (2, 48), generator=torch.Generator().manual_seed(9))
    for model in pair:
        model.zero_grad()
    for logits in (ours(tokens), theirs(tokens, use_cache=False).logits):
        F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
    mine = {name: p.grad for name, p in ours.named_parameters()}
    gradients = dict(export.official_tensors(_Gradients(mine)))
    right = {name: p.grad for name, p in theirs.named_parameters()}
    checked = 0
    for name, gradient in gradients.items():
        wanted = _theirs(name, right)
        error = (gradient - wanted).norm() / wanted.norm().clamp(min=1e-12)
        assert error < 1e-3, (name, float(error))
        checked += 1
    assert checked > 100


class _Gradients:
    """Gradients where `official_tensors` expects weights."""

    def __init__(self, gradients):
        self.gradients = gradients

    def state_dict(self):
        return self.gradients


def _theirs(name, right):
    """The class's tensor for an official name (transformers packs and renames)."""
    if name == "lm_head.weight":
        return right[name]
    if name == "model.word_embeddings.weight":
        return right["model.embed_tokens.weight"]
    part = name.split(".")
    if "experts" in part:
        expert, kind = int(part[5]), part[6]
        base = ".".join(part[:5])
        if kind == "down_proj":
            return right[f"{base}.down_proj"][expert]
        return right[f"{base}.gate_up_proj"][expert].chunk(2)[kind == "up_proj"]
    moved = name.replace(".attention.", ".self_attn.").replace(".dense.", ".o_proj.")
    if "_conv1d" in moved:
        which = "qkv".index(part[4][0])
        return right[".".join([*moved.split(".")[:4], "conv1d.weight"])].chunk(3)[which]
    for leaf in ("A_log", "dt_bias", "f_proj.weight"):
        if moved.endswith(f".self_attn.{leaf}"):
            moved = moved.replace(leaf, f"forget_gate.{leaf}")
    return right[moved]
