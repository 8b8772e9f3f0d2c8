"""Strongly connected components and shortest paths of graphs with many nodes.

The module is pure. Nodes are 0, 1, 2, …; edges are lists of successors.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence


def strongly_connected(successors: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the strongly connected components of a graph that have two or more nodes.

    Nodes without predecessors or without successors are in no cycle, so they are removed first,
    repeatedly. That removes all nodes in the graph of a valid history. The remaining nodes are
    searched with Tarjan's algorithm, without recursion.
    """
    left = _within_cycles(successors)
    if not left:
        return []
    found: list[list[int]] = []
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in sorted(left):
        if root in number:
            continue
        work = [(root, 0)]
        while work:
            node, place = work.pop()
            if place == 0:
                number[node] = low[node] = len(number)
                stack.append(node)
                on_stack.add(node)
            else:
                low[node] = min(low[node], low[successors[node][place - 1]])
            is_descending = False
            for at in range(place, len(successors[node])):
                other = successors[node][at]
                if other not in left:
                    continue
                if other not in number:
                    work.append((node, at + 1))
                    work.append((other, 0))
                    is_descending = True
                    break
                if other in on_stack:
                    low[node] = min(low[node], number[other])
            if is_descending or low[node] != number[node]:
                continue
            component: list[int] = []
            while not component or component[-1] != node:
                component.append(stack.pop())
                on_stack.discard(component[-1])
            if len(component) > 1:
                found.append(sorted(component))
    return found


def shortest_way(
    start: int, end: int, successors: Callable[[int], Iterable[int]]
) -> list[int] | None:
    """Return the nodes of a shortest path in a graph from `start` to `end`, including both, or None
    if there is no path."""
    came_from = {start: start}
    waiting = deque([start])
    while waiting:
        node = waiting.popleft()
        if node == end:
            way = [end]
            while way[-1] != start:
                way.append(came_from[way[-1]])
            return way[::-1]
        for other in successors(node):
            if other not in came_from:
                came_from[other] = node
                waiting.append(other)
    return None


def _within_cycles(successors: Sequence[Sequence[int]]) -> set[int]:
    """Repeatedly remove graph nodes without predecessors or without successors, and return the
    remaining nodes."""
    waiting_for = [0] * len(successors)
    for others in successors:
        for other in others:
            waiting_for[other] += 1
    free = [node for node, count in enumerate(waiting_for) if count == 0]
    for node in free:
        for other in successors[node]:
            waiting_for[other] -= 1
            if waiting_for[other] == 0:
                free.append(other)
    return {node for node, count in enumerate(waiting_for) if count > 0}
