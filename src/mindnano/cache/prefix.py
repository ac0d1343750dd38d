"""Prefix checkpoints: what prompts computed, kept for prompts that begin the same way.

A radix tree of tokens. A node holds the tokens since its parent and their KV rows, which all prompts that go through
it share, and may hold the states after its last token: KDA states can't be rolled back, so a prompt can go on only
from where a copy of them was made. Only rows that a prefill computed are kept, never those of generated tokens: a
prefill gives the same bits whatever came in one block with what, so a restored sequence goes on exactly as a cold one.

Everything that is kept counts against one byte budget, and room for a copy is made before it is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mindnano.cache.copies import Rows, StateCopy, rounding, row_bytes, state_shapes
from mindnano.cache.pages import arena_bytes
from mindnano.cache.slots import Slot, SlotPool

Tokens = NDArray[np.int64]


@dataclass(eq=False)
class Node:
    """Tokens [begin, end) of the prompts that go through here, their rows, and maybe the states after them.

    `weight`: how likely a prompt is to go on from here, against others. `answer`: what was generated after a prompt
    that ended here; it explains, it can't be reused.
    """

    parent: Node | None
    tokens: Tokens
    begin: int
    rows: Rows | None  # None only at the root
    states: StateCopy | None = None
    weight: float = 1.0
    answer: Tokens | None = None
    children: list[Node] = field(default_factory=list)
    used: float = 0.0  # the cache's inflation when it was last used

    @property
    def end(self) -> int:
        return self.begin + len(self.tokens)

    @property
    def has_logits(self) -> bool:
        return self.states is not None and self.states.logits is not None


@dataclass(frozen=True)
class Hit:
    """What a prompt found: where it can go on, and how much it has in common with anything kept."""

    node: Node
    common: int  # tokens
    generated: int = 0  # of those, generated in an answer

    @property
    def reused(self) -> int:
        return self.node.end

    @property
    def reason(self) -> str:
        """Why no more was reused; empty where everything in common was."""
        if self.common <= self.reused:
            return "" if self.reused else "no common prefix"
        text = f"{self.common} tokens in common, reused {self.reused}: "
        between = self.common - self.generated - self.reused
        if not self.generated:
            return text + f"no states were kept at the {between} after those, and states can't be rolled back"
        if not between:
            return text + f"the other {self.generated} were generated, and only a prompt's rows are kept"
        return text + f"{self.generated} were generated, and no states were kept at the {between} before them"


@dataclass(frozen=True)
class Piece:
    """A node's content on its own: tokens [begin, begin + len(tokens)), their rows, maybe the states after them."""

    tokens: Tokens
    begin: int
    rows: Rows
    states: StateCopy | None

    def rows_between(self, pool: SlotPool) -> Callable[[int, int], Rows]:
        """Rows of [begin, end), which reaches to this piece's end."""

        def rows(begin: int, end: int) -> Rows:
            if begin == self.begin:
                return self.rows
            return self.rows.view().split(pool, begin - self.begin)[1]

        return rows


@dataclass(frozen=True)
class PieceShape:
    """What a piece will be, before it is there: up to token `end`, with states, with logits."""

    end: int
    states: bool
    logits: bool


@dataclass
class Room:
    """Bytes that are set aside for the checkpoints of one block, and the copies that will be made there."""

    copies: dict[int, StateCopy]
    weights: dict[int, float]
    nbytes: int


class PrefixCache:
    """The tree and its byte budget.

    What goes first is what saves the fewest tokens a byte, aged as in GreedyDual-Size (Cao and Irani 1997): the states
    of an inner node, whose rows its children need, or a leaf as a whole.
    """

    def __init__(self, pool: SlotPool, budget: int) -> None:
        self.pool, self.budget = pool, budget
        self.nbytes = 0  # kept and set aside
        self.root = Node(None, np.empty(0, np.int64), 0, None)
        self._inflation = 0.0
        self._rounding = rounding(pool)
        self._pinned: dict[Node, int] = {}
        self._rooms: list[Room] = []

    def find(self, prompt: Sequence[int]) -> Hit:
        """The deepest place that begins `prompt` and has states: short of its end, or there with the logits."""
        tokens = np.asarray(prompt, np.int64)
        best = node = self.root
        common = generated = 0
        while True:
            if node.states is not None and (node.end < len(tokens) or node.has_logits):
                best = node
            common = max(common, node.end)
            if node.answer is not None:
                same = _same(tokens[node.end :], node.answer)
                if node.end + same > common:
                    common, generated = node.end + same, same
            child, same = self._child(node, tokens)
            if child is None:
                break
            if node.end + same > common:
                common, generated = node.end + same, 0
            if same < len(child.tokens):
                break
            node = child
        return Hit(best, common, generated if common > best.end else 0)

    def restore(self, hit: Hit, slot: Slot) -> None:
        """Put the rows and states of a hit into an empty slot."""
        if hit.node.states is None:
            return
        hit.node.states.put(self.pool, slot.index)
        slot.length = hit.node.end
        for node in self.chain(hit.node):
            node.used = self._inflation
            assert node.rows is not None
            node.rows.put(slot, node.begin)

    def room(self, node: Node, end: int, wanted: dict[int, tuple[float, bool]]) -> Room | None:
        """Set bytes aside for checkpoints of a prompt that goes on from `node`, before anything is copied.

        `wanted`: position -> (weight, whether the logits are kept with it). The lightest go first where not all
        fit; None where none does. To be used up by `keep` or given back by `give_back`.
        """
        chosen = dict(wanted)
        while chosen:
            states = sum(self._state_bytes(logits) for _, logits in chosen.values())
            nbytes = states + self._row_bytes(max(chosen) - node.end, len(chosen))
            if self._make_room(nbytes, node):
                copies = {at: StateCopy(self.pool, logits) for at, (_, logits) in chosen.items()}
                return self._set_aside(nbytes, copies, {at: weight for at, (weight, _) in chosen.items()})
            del chosen[min(chosen, key=lambda at: (chosen[at][0], at))]
        return None

    def _set_aside(self, nbytes: int, copies: dict[int, StateCopy], weights: dict[int, float]) -> Room:
        room = Room(copies, weights, nbytes)
        self._rooms.append(room)
        self.nbytes += nbytes
        return room

    def _row_bytes(self, tokens: int, stretches: int) -> int:
        """Bytes of rows and tokens at most: a stretch may be cut in two, and so may a node that it leaves."""
        return row_bytes(self.pool, tokens) + 8 * tokens + 2 * (stretches + 1) * self._rounding

    def give_back(self, room: Room) -> None:
        """Nothing came of it."""
        self._rooms.remove(room)
        self.nbytes -= room.nbytes

    def keep(self, room: Room, node: Node, prompt: Sequence[int], slot: Slot) -> Node:
        """The checkpoints that room was made for, their copies taken, below `node`; returns the last one."""
        self.give_back(room)
        tokens = np.asarray(prompt, np.int64)

        def rows(begin: int, end: int) -> Rows:
            made = Rows(self.pool, end - begin)
            made.take(slot, begin)
            return made

        for at, copy in sorted(room.copies.items()):
            node = self._extend(node, tokens[:at], rows)
            self._stand(node, copy, room.weights[at])
        assert self.nbytes <= self.budget
        return node

    def _stand(self, node: Node, copy: StateCopy, weight: float) -> None:
        """Keep states at a node, unless it has as much."""
        node.weight, node.used = max(node.weight, weight), self._inflation
        if node.states is None or (copy.logits is not None and not node.has_logits):
            self.nbytes += copy.nbytes - (node.states.nbytes if node.states is not None else 0)
            node.states = copy

    def export(self, chain: Sequence[Node]) -> list[Piece]:
        """A chain's content as it is now, whatever becomes of the tree. Pin its nodes for as long as it is used."""
        pieces = []
        for node in chain:
            assert node.rows is not None
            pieces.append(Piece(node.tokens, node.begin, node.rows.view(), node.states))
        return pieces

    def room_for(self, pieces: Sequence[PieceShape]) -> tuple[Room, int, bool] | None:
        """Set bytes aside for pieces that come from elsewhere: for how many of them, and whether with the states of
        those before the last. None where not even the first fits."""
        for count in range(len(pieces), 0, -1):
            last = pieces[count - 1]
            if not last.states:
                continue
            rows = self._row_bytes(last.end, count)
            for inner in (True, False) if count > 1 else (True,):
                standing = [p for p in pieces[:count] if p.states and (inner or p is last)]
                nbytes = rows + sum(self._state_bytes(p.logits) for p in standing)
                if self._make_room(nbytes, self.root):
                    return self._set_aside(nbytes, {}, {}), count, inner
        return None

    def adopt(self, room: Room, pieces: Sequence[Piece], weights: Sequence[float]) -> int:
        """Take pieces that room was made for, from the beginning of a prompt; returns the tokens that are now kept."""
        self.give_back(room)
        node, tokens = self.root, np.empty(0, np.int64)
        for piece, weight in zip(pieces, weights, strict=True):
            tokens = np.concatenate((tokens, piece.tokens))
            node = self._extend(node, tokens, piece.rows_between(self.pool))
            node.used = self._inflation
            if piece.states is not None:
                self._stand(node, piece.states, weight)
        assert self.nbytes <= self.budget
        return node.end

    def note_answer(self, node: Node, answer: Sequence[int]) -> None:
        """What was generated after the prompt that ended at `node`, so that `find` can say what it has in common."""
        nbytes = 8 * len(answer) - (0 if node.answer is None else node.answer.nbytes)
        if self._make_room(max(0, nbytes), node):
            node.answer = np.asarray(answer, np.int64)
            self.nbytes += nbytes

    def chain(self, node: Node) -> list[Node]:
        """From the root's child down to `node`."""
        nodes: list[Node] = []
        while node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]

    def pin(self, node: Node) -> None:
        """Keep `node` and its ancestors until `unpin`: something goes on from there."""
        self._pinned[node] = self._pinned.get(node, 0) + 1

    def unpin(self, node: Node) -> None:
        self._pinned[node] -= 1
        if not self._pinned[node]:
            del self._pinned[node]

    def nodes(self) -> Iterator[Node]:
        """All but the root, parents first."""
        stack = list(self.root.children)
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children)

    def clear(self) -> None:
        """Let go of everything; nothing may be pinned or set aside. Nodes know each other both ways, so that otherwise
        their memory would be given back only when the collector comes by."""
        for node in list(self.nodes()):
            node.parent, node.children, node.rows, node.states = None, [], None, None
        self.root.children = []
        self.nbytes = 0

    def check_integrity(self) -> None:
        """Raises AssertionError unless the bytes add up, every node continues its parent, and no two begin alike."""
        kept = sum(self._bytes(node) for node in self.nodes())
        assert self.nbytes == kept + sum(room.nbytes for room in self._rooms)
        assert self.nbytes <= self.budget
        needed = self._with_ancestors(self._pinned)
        for node in [self.root, *self.nodes()]:
            first = [int(child.tokens[0]) for child in node.children]
            assert len(first) == len(set(first))
            for child in node.children:
                assert child.parent is node
                assert child.begin == node.end
                assert child.rows is not None
                assert child.rows.count == len(child.tokens) > 0
                assert child.children or child.states is not None or child in needed

    # The tree.

    def _child(self, node: Node, tokens: Tokens) -> tuple[Node | None, int]:
        """The child that shares the first token after `node`, and how many tokens it shares."""
        if node.end < len(tokens):
            for child in node.children:
                if child.tokens[0] == tokens[node.end]:
                    return child, _same(tokens[child.begin :], child.tokens)
        return None, 0

    def _extend(self, node: Node, tokens: Tokens, rows: Callable[[int, int], Rows]) -> Node:
        """The node below `node` that ends where `tokens` end: found, split off, or made with `rows(begin, end)`."""
        while node.end < len(tokens):
            child, same = self._child(node, tokens)
            if child is None:
                begin = node.end
                child = Node(node, tokens[begin:].copy(), begin, rows(begin, len(tokens)))
                node.children.append(child)
                self.nbytes += self._bytes(child)
            elif same < len(child.tokens):
                child = self._split(child, same)
            node = child
        return node

    def _split(self, node: Node, at: int) -> Node:
        """Cut a node after `at` of its tokens; returns the new upper part. The states stay with the lower one."""
        assert node.parent is not None
        assert node.rows is not None
        self.nbytes -= self._bytes(node)
        first, rest = node.rows.split(self.pool, at)
        upper = Node(node.parent, node.tokens[:at].copy(), node.begin, first, used=node.used)
        upper.parent.children[upper.parent.children.index(node)] = upper  # type: ignore[union-attr]
        upper.children = [node]
        node.parent, node.tokens, node.begin, node.rows = upper, node.tokens[at:].copy(), upper.end, rest
        self.nbytes += self._bytes(upper) + self._bytes(node)
        return upper

    # The budget.

    def _state_bytes(self, logits: bool) -> int:
        shapes = state_shapes(self.pool, logits)
        return arena_bytes(shapes) if shapes else 0

    def _bytes(self, node: Node) -> int:
        nbytes = row_bytes(self.pool, len(node.tokens)) + node.tokens.nbytes
        nbytes += 0 if node.states is None else node.states.nbytes
        return nbytes + (0 if node.answer is None else node.answer.nbytes)

    def _make_room(self, nbytes: int, keep: Node) -> bool:
        """Evict until `nbytes` fit; False, with nothing evicted for it in vain, where they never can."""
        if self.nbytes + nbytes <= self.budget:
            return True
        held = {keep, *self._pinned}
        needed = self._with_ancestors(held)
        fixed = sum(room.nbytes for room in self._rooms)
        for node in needed:
            fixed += self._bytes(node)
            if node not in held and node.states is not None:
                fixed -= node.states.nbytes
        if nbytes + fixed > self.budget:
            return False
        while self.nbytes + nbytes > self.budget:
            worths = {
                node: self._worth(node)
                for node in self.nodes()
                if node not in held and (_has_bytes(node.states) if node.children else node not in needed)
            }
            victim = min(worths, key=lambda node: worths[node])
            self._inflation = max(self._inflation, worths[victim])
            self._evict(victim, needed)
        return True

    def _with_ancestors(self, nodes: Iterable[Node]) -> set[Node]:
        found: set[Node] = set()
        for node in nodes:
            at: Node | None = node
            while at is not None and at is not self.root and at not in found:
                found.add(at)
                at = at.parent
        return found

    def _worth(self, node: Node) -> float:
        """What evicting here would lose: tokens a byte, plus the inflation when it was used."""
        if node.states is None:  # a leaf that something held until now
            return 0.0
        above = node.parent
        while above is not None and above.states is None:
            above = above.parent
        tokens = node.end - (above.end if above is not None else 0)
        freed = node.states.nbytes if node.children else self._bytes(node)
        return node.used + node.weight * tokens / freed

    def _evict(self, node: Node, needed: set[Node]) -> None:
        """Drop an inner node's states, or a leaf and what above it then leads nowhere."""
        if node.children:
            assert node.states is not None
            self.nbytes -= node.states.nbytes
            node.states, node.weight = None, 1.0
            return
        while node.parent is not None and not node.children and node not in needed:
            node.parent.children.remove(node)
            self.nbytes -= self._bytes(node)
            node = node.parent
            if node.states is not None:
                break


def _has_bytes(states: StateCopy | None) -> bool:
    return states is not None and states.nbytes > 0  # none in a model without KDA layers


def _same(a: Tokens, b: Tokens) -> int:
    """How many tokens two sequences have in common from their beginnings."""
    n = min(len(a), len(b))
    differs = np.flatnonzero(a[:n] != b[:n])
    return int(differs[0]) if len(differs) else n
