"""Prefix checkpoints: what prompts computed, kept for prompts that begin the same way.

KDA states can't be rolled back, so a prefix can be reused only up to a place where a copy of them was made. The
checkpoints form a tree: a node holds the tokens since its parent, their KV rows, and the states after them. Only
rows that a prefill computed are kept, never those of generated tokens: a prefill gives the same bits whatever came
in one block with what, so a restored sequence goes on exactly as a cold one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mindnano.cache.kv import KVCache, LatentCache
from mindnano.cache.slots import Slot, SlotPool, kv_bytes, state_bytes
from mindnano.cache.states import KDAState

Array = NDArray[np.generic]


class StateCopy:
    """Copies of all KDA layers' states of one slot, taken layer by layer while a block passes."""

    def __init__(self) -> None:
        self.memory: dict[int, Array] = {}
        self.conv: dict[int, Array] = {}

    def take(self, layer: int, state: KDAState, slot: int) -> None:
        self.memory[layer] = state.memory[slot].copy()
        self.conv[layer] = state.conv[slot].copy()

    def put(self, pool: SlotPool, slot: int) -> None:
        for layer, state in pool.states.items():
            state.memory[slot] = self.memory[layer]
            state.conv[slot] = self.conv[layer]


@dataclass(eq=False)
class Node:
    """Tokens [begin, begin + len(tokens)) of a prompt: their KV rows by layer and name, the states after them."""

    parent: Node | None
    tokens: NDArray[np.int64]
    begin: int
    rows: dict[int, dict[str, Array]]
    states: StateCopy | None  # None only at the root
    nbytes: int
    logits: Array | None = None  # after the last token, where a prompt ended here
    children: list[Node] = field(default_factory=list)
    priority: float = 0.0

    @property
    def end(self) -> int:
        return self.begin + len(self.tokens)


@dataclass(frozen=True)
class Hit:
    """What a prompt found: `reused` tokens, and the longest prefix it has in common with anything kept."""

    node: Node
    common: int

    @property
    def reused(self) -> int:
        return self.node.end

    @property
    def reason(self) -> str:
        """Why no more was reused; empty where everything in common was."""
        if self.common > self.reused:
            return f"{self.common} tokens in common, no checkpoint after {self.reused}"
        return "" if self.reused else "no common prefix"


class PrefixCache:
    """The tree and its byte budget. Eviction: GreedyDual-Size (Cao and Irani 1997), leaves only; a node's
    value is the tokens it saves, its cost the bytes it takes."""

    def __init__(self, pool: SlotPool, budget: int) -> None:
        self.pool, self.budget = pool, budget
        self.nbytes = 0
        self.root = Node(None, np.empty(0, np.int64), 0, {}, None, 0)
        self._inflation = 0.0
        self._state_bytes = state_bytes(pool.config)
        self._pinned: dict[Node, int] = {}

    def find(self, prompt: Sequence[int]) -> Hit:
        """The deepest checkpoint whose tokens begin `prompt`: one short of it, or all of it with its logits."""
        tokens = np.asarray(prompt, np.int64)
        node, common = self.root, 0
        while True:
            best: Node | None = None
            for child in node.children:
                ahead = tokens[child.begin : child.end]
                differs = np.flatnonzero(ahead != child.tokens[: len(ahead)])
                same = int(differs[0]) if len(differs) else len(ahead)
                common = max(common, child.begin + same)
                if same == len(child.tokens) and (child.end < len(tokens) or child.logits is not None):
                    best = child
            if best is None:
                return Hit(node, common)
            node = best

    def restore(self, hit: Hit, slot: Slot) -> None:
        """Put the checkpoint's rows and states into an empty slot."""
        node: Node | None = hit.node
        if node is None or node.states is None:
            return
        node.states.put(self.pool, slot.index)
        slot.length = node.end
        while node is not None and node.states is not None:
            self._touch(node)
            for layer, named in node.rows.items():
                arrays = slot.kv[layer].arrays()
                for name, rows in named.items():
                    rows_of(slot.kv[layer], arrays[name], node.begin, node.end)[...] = rows
            node = node.parent

    def keep(
        self,
        parent: Node,
        prompt: Sequence[int],
        end: int,
        slot: Slot,
        states: StateCopy,
        logits: Array | None,
    ) -> Node:
        """Checkpoint tokens [parent.end, end) of `prompt` below `parent`; returns the node to go on from.

        `logits` [vocabulary] are those after token end - 1, where they are known (the prompt ends
        there). Where the budget doesn't allow it nothing is copied and `parent` is returned.
        """
        tokens = np.asarray(prompt[parent.end : end], np.int64)
        for child in parent.children:
            if np.array_equal(child.tokens, tokens):
                self._touch(child)
                if child.logits is None and logits is not None and self._make_room(logits.nbytes, child):
                    child.logits = logits.copy()
                    child.nbytes += logits.nbytes
                    self.nbytes += logits.nbytes
                return child
        nbytes = self.cost(len(tokens)) + (logits.nbytes if logits is not None else 0)
        if len(tokens) == 0 or not self._make_room(nbytes, parent):
            return parent
        rows = {
            layer: {name: rows_of(kv, array, parent.end, end).copy() for name, array in kv.arrays().items()}
            for layer, kv in slot.kv.items()
        }
        node = Node(
            parent, tokens, parent.end, rows, states, nbytes, None if logits is None else logits.copy()
        )
        parent.children.append(node)
        self.nbytes += nbytes
        self._touch(node)
        return node

    def chain(self, node: Node) -> list[Node]:
        """The checkpoints from the root's child down to `node`."""
        nodes: list[Node] = []
        while node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]

    def adopt(self, nodes: Sequence[Node]) -> int:
        """Take a chain of checkpoints that came from elsewhere; returns the tokens that are now kept."""
        parent = self.root
        for node in nodes:
            same = next((c for c in parent.children if np.array_equal(c.tokens, node.tokens)), None)
            if same is None:
                nbytes = self.cost(len(node.tokens)) + (0 if node.logits is None else node.logits.nbytes)
                if not self._make_room(nbytes, parent):
                    break
                node.parent, node.nbytes, node.children = parent, nbytes, []
                parent.children.append(node)
                self.nbytes += nbytes
                same = node
            self._touch(same)
            parent = same
        return parent.end

    def cost(self, tokens: int) -> int:
        """Bytes of a checkpoint of `tokens` tokens."""
        return (
            kv_bytes(self.pool.config, self.pool.layout, self.pool.fmt, tokens)
            + self._state_bytes
            + 8 * tokens
        )

    def pin(self, node: Node) -> None:
        """Keep `node` and its ancestors until `unpin`: a running sequence goes on from it."""
        self._pinned[node] = self._pinned.get(node, 0) + 1

    def unpin(self, node: Node) -> None:
        self._pinned[node] -= 1
        if not self._pinned[node]:
            del self._pinned[node]

    def clear(self) -> None:
        """Forget everything."""
        self.root.children.clear()
        self.nbytes = 0

    def nodes(self) -> Iterable[Node]:
        """All checkpoints, parents first."""
        stack = list(self.root.children)
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children)

    def check_integrity(self) -> None:
        """Raises AssertionError unless the bytes add up and every node continues its parent."""
        assert self.nbytes == sum(node.nbytes for node in self.nodes())
        assert self.nbytes <= self.budget
        for node in self.nodes():
            assert node.parent is not None
            assert node in node.parent.children
            assert node.begin == node.parent.end
            assert node.nbytes == self.cost(len(node.tokens)) + (
                0 if node.logits is None else node.logits.nbytes
            )

    def _touch(self, node: Node) -> None:
        node.priority = self._inflation + len(node.tokens) / node.nbytes

    def _make_room(self, nbytes: int, keep: Node) -> bool:
        """Evict until `nbytes` fit; False, with nothing evicted for it in vain, where they never can."""
        if nbytes > self.budget:
            return False
        needed: set[Node] = set()
        for node in [keep, *self._pinned]:
            at: Node | None = node
            while at is not None:
                needed.add(at)
                at = at.parent
        if nbytes + sum(node.nbytes for node in needed) > self.budget:
            return False
        while self.nbytes + nbytes > self.budget:
            leaves = [node for node in self.nodes() if not node.children and node not in needed]
            victim = min(leaves, key=lambda node: node.priority)
            self._inflation = victim.priority
            assert victim.parent is not None
            victim.parent.children.remove(victim)
            self.nbytes -= victim.nbytes
        return True


def rows_of(kv: KVCache, array: Array, begin: int, end: int) -> Array:
    """The rows of tokens [begin, end): the first axis of a latent cache, the second of an expanded one."""
    return array[begin:end] if isinstance(kv, LatentCache) else array[:, begin:end]
