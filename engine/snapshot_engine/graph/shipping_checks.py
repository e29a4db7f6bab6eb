"""What cannot be sent to the executors: a lock, a connection, an open file in a function that the pipeline made.

Found when the job is planned. In a running job it would look like a failure of the region, and be tried again.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import cloudpickle

from snapshot_engine.graph.logical import LogicalGraph, LogicalNode
from snapshot_engine.state.state_types import note_field_types


def check_shipping(graph: LogicalGraph, local_modules: Sequence[str]) -> None:
    with _by_value(local_modules):
        for node in graph.nodes:
            if not hasattr(node.source, "materialise"):  # the driver has to write that one's rows first
                _check_node(graph, node)


def _check_node(graph: LogicalGraph, node: LogicalNode) -> None:
    try:
        cloudpickle.dumps((node.step.factory if node.step else None, node.source, node.sink))
    except Exception as error:
        graph.refuse(
            node,
            f"it cannot be sent to the executors: {str(error) or type(error).__name__}; make what it uses "
            "(a connection, a lock, a client) in open(context) of a function class, which runs there",
        )


@contextmanager
def _by_value(names: Sequence[str]) -> Iterator[None]:
    """The executors do not have these modules: their functions are sent with all that they name."""
    known = cloudpickle.list_registry_pickle_by_value()
    modules: list[Any] = [importlib.import_module(name) for name in names if name not in known]
    for module in modules:
        note_field_types(module)
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
