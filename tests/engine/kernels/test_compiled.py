from __future__ import annotations

import numpy as np
import pytest

from snapshot_engine.kernels import preload
from snapshot_engine.kernels.hashing import hash_words


def test_preload_loads_every_kernel() -> None:
    assert preload() > 5


def test_a_kernel_refuses_types_it_was_not_compiled_for() -> None:
    with pytest.raises(TypeError, match="No matching definition"):
        hash_words(np.zeros(3, np.int32), np.zeros(3, np.uint64))  # type: ignore[arg-type]
