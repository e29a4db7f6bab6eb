"""The command `streamingjob`: run, plan and look at jobs, with the manifest that Kubernetes would be given."""

from snapshot_engine.cli.main import main

__all__ = ["main"]
