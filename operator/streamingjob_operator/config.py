"""How this operator process was asked to run."""

from dataclasses import dataclass


@dataclass(frozen=True)
class OperatorConfig:
    image: str
    """For jobs that name none: the operator's own, which holds the engine as well."""
    namespaces: tuple[str, ...] = ()
    """Watched namespaces; empty for all."""
    identity: str = "streamingjob-operator"
    """This process, in leases and events."""
    watch_nodes: bool = True
    """Needs a right for the whole cluster, so not with namespaced rights."""
    make_service_accounts: bool = True
    """False where jobs must bring their own, because the operator may not make roles."""
    workers: int = 16
    """Reconciles at the same time, of different jobs."""
