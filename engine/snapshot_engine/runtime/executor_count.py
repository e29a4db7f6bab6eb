"""How many executors a job on Kubernetes has, and whether they can hold it. Pure: numbers only."""

from __future__ import annotations

from snapshot_engine.wire.spec import StreamingJobSpec


class TooFewSlots(Exception):
    """The executors that the spec gives the job can never hold it."""

    def __init__(self, spec: StreamingJobSpec, instances: int, needed: int) -> None:
        cores = spec.executor.cores
        super().__init__(
            f"the job needs {needed} slots at the same time, and its executors have {instances * cores} "
            f"(executor.instances: {instances}, executor.cores: {cores}; standby executors do not count). Set "
            f"executor.instances to at least {_rounded_up(needed, cores)} or leave it out, raise executor.cores, or "
            f"lower parallelism ({spec.parallelism})"
        )


def executors_for(spec: StreamingJobSpec, needed: int) -> int:
    """On so many executors `needed` slots are placed, beside the standby ones. Raises TooFewSlots.

    Where the spec gives no number it is as many as the job needs, which depends on its regions.
    """
    given, cores = spec.executor.instances, spec.executor.cores
    if given is None:
        return max(spec.executor_instances, _rounded_up(needed, cores))
    if given * cores < needed:
        raise TooFewSlots(spec, given, needed)
    return given


def _rounded_up(slots: int, cores: int) -> int:
    return -(-slots // cores)
