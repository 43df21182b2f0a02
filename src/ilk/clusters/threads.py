"""Work that is cut into pieces, on all cores. One thread computes a piece, so its bits do not depend on their number."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def each(compute: Callable[[Piece], Result], pieces: Sequence[Piece], threads: int | None = None) -> Iterator[Result]:
    """Yield the result of each piece, in order. A few pieces are ahead at any time, so memory stays bounded."""
    count = min(threads or cores(), len(pieces))
    if count < 2:
        yield from map(compute, pieces)
        return
    ahead: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(count) as pool:
        try:
            for piece in pieces:
                ahead.append(pool.submit(compute, piece))
                if len(ahead) > 2 * count:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:  # whoever stops listening, or Ctrl-C, need not wait for the rest
            for future in ahead:
                future.cancel()
