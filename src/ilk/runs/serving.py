"""How a federation over a network is served: options that need no Flower to be described."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from ilk.checked import options


@options
class Serving:
    """How a federation is served: nothing of this changes what comes out, as long as everybody answers."""

    as_flags: ClassVar[bool] = True

    wait_for: Annotated[int, Field(ge=1, strict=True)] | None = None
    """Begin when this many clients have joined; default: all that have a key."""
    wait: Annotated[float, Field(gt=0)] = 600.0
    """Begin after this many seconds with those who have joined by then."""
    seats: Annotated[int, Field(ge=1, strict=True)] | None = None
    """Room for this many clients, those included who join later; default: as many as have a key when it begins."""
    patience: Annotated[float, Field(gt=0)] = 600.0
    """Seconds that an answer may take; then the round goes on without it."""
    largest: Annotated[int, Field(ge=1, strict=True)] = 1 << 31
    """Bytes that the arrays of an answer may have."""
    stay: bool = False
    """After the last round go on serving newcomers: signature in, the cluster's model out."""
