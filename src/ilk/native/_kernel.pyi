import numpy as np
from numpy.typing import NDArray

def sets() -> list[str]: ...

class Network:
    def __init__(self, layers: NDArray[np.int64], parameters: int, set: str) -> None: ...
    def fit(
        self,
        start: NDArray[np.float32],
        x: NDArray[np.float32],
        y: NDArray[np.int64],
        order: NDArray[np.int64],
        batch: int,
        lr: float,
        momentum: float,
        decay: float,
        proximal: float,
        shift: NDArray[np.float32] | None,
        drift: NDArray[np.float32] | None,
    ) -> tuple[NDArray[np.float32], float, bool]: ...
    def gradient(
        self, model: NDArray[np.float32], x: NDArray[np.float32], y: NDArray[np.int64]
    ) -> NDArray[np.float32]: ...
    def forward(self, model: NDArray[np.float32], x: NDArray[np.float32]) -> NDArray[np.float32]: ...
