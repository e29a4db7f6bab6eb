"""A manifest, or its pieces, planned: load the pipeline, run it on an environment, plan what it said."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from snapshot_engine.api.environment import Environment
from snapshot_engine.graph.call_site import told_to_the_user, user_frames
from snapshot_engine.graph.job_graph import JobGraph, SourceLocation
from snapshot_engine.graph.loading import load_pipeline
from snapshot_engine.graph.planning import PlanOptions, plan_graph
from snapshot_engine.graph.problems import PlanError, Problem
from snapshot_engine.protocol.elements import Mode
from snapshot_engine.protocol.failover import Strategy
from snapshot_engine.wire.spec import StreamingJob

Pipeline = Callable[..., Any]


def plan(
    job: StreamingJob, *, folder: Path | None = None, config_map: str | None = None, strict: bool = False
) -> JobGraph:
    """The job graph of a manifest. Raises LoadError or PlanError.

    `folder` is the manifest's own, `config_map` the text of the key that `pipeline.configMap` names. `strict`
    makes a sink without exactly-once an error in an ExactlyOnce job.
    """
    spec = job.spec
    loaded = load_pipeline(spec.pipeline, folder, config_map)
    options = PlanOptions(
        job=job.metadata.name,
        mode=Mode(spec.checkpoint.mode.value),
        strategy=Strategy(spec.recovery.strategy.value),
        require_exactly_once_sinks=strict,
        extra={"checkpoint_interval": spec.checkpoint.interval},
    )
    env = _called(loaded.function, spec.pipeline.args, spec.parallelism, options)
    # Only now: modules that the function has imported are shipped as well, and looked through by the checks.
    options = replace(options, extra={"local_modules": loaded.local_modules(), **options.extra})
    return _planned(env, options)


def plan_pipeline(
    pipeline: Pipeline,
    args: Mapping[str, Any] | None = None,
    parallelism: int = 1,
    options: PlanOptions | None = None,
) -> JobGraph:
    """The job graph of a pipeline function."""
    chosen = options or PlanOptions(job=getattr(pipeline, "__name__", "job"))
    return _planned(_called(pipeline, args, parallelism, chosen), chosen)


def _called(pipeline: Pipeline, args: Mapping[str, Any] | None, parallelism: int, options: PlanOptions) -> Environment:
    """The environment with all that the function has said to it."""
    env = Environment(parallelism=parallelism, args=args, exchange=options.exchange)
    env.key_groups = options.key_groups
    _call(pipeline, env, options.job)
    return env


def _planned(env: Environment, options: PlanOptions) -> JobGraph:
    said = replace(options, parallelism=env.parallelism, exchange=env.exchange, key_groups=env.key_groups)
    return plan_graph(env.graph, said)


def _call(pipeline: Pipeline, env: Environment, job: str) -> None:
    arguments = _arguments_for(pipeline, env, job)
    try:
        result = pipeline(env, **arguments)
    except Exception as error:
        found = [finding.to_problem() for finding in env.graph.problems]
        raise PlanError(job, [*found, _raised(error)]) from error
    if inspect.isgenerator(result) or inspect.iscoroutine(result):
        result.close()
        raise PlanError(job, [_about(pipeline, "it must be a plain function: no yield, no async")])


def _arguments_for(pipeline: Pipeline, env: Environment, job: str) -> dict[str, Any]:
    """`args` go to the parameters of the same names; a function of the environment alone finds them in
    `env.args`."""
    try:
        parameters = list(inspect.signature(pipeline).parameters.values())
    except (TypeError, ValueError):
        return {}
    if not parameters:
        raise PlanError(job, [_about(pipeline, "it takes no argument, but is given the environment: (env)")])
    rest = parameters[1:]
    if not rest:
        return {}
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in rest):
        return dict(env.args)
    names = [parameter.name for parameter in rest]
    unknown = [name for name in env.args if name not in names]
    if unknown:
        message = f"pipeline.args has {', '.join(unknown)}, but it takes {', '.join(names)}"
        raise PlanError(job, [_about(pipeline, message)])
    lacking = [
        parameter.name
        for parameter in rest
        if parameter.default is inspect.Parameter.empty
        and parameter.kind is not inspect.Parameter.VAR_POSITIONAL
        and parameter.name not in env.args
    ]
    if lacking:
        raise PlanError(job, [_about(pipeline, f"it needs pipeline.args.{', pipeline.args.'.join(lacking)}")])
    return dict(env.args)


def _about(pipeline: Pipeline, message: str) -> Problem:
    code = getattr(pipeline, "__code__", None)
    location = SourceLocation(code.co_filename, code.co_firstlineno) if code else None
    return Problem(message, getattr(pipeline, "__name__", "pipeline"), location)


def _raised(error: Exception) -> Problem:
    frames = user_frames(error)
    location = SourceLocation(frames[-1].filename, frames[-1].lineno or 0) if frames else None
    return Problem(f"the pipeline raised while it was planned: {told_to_the_user(error)}", None, location)
