"""A loop that learns: workers send gradients of what they see, and get the model back that all of them made.

Examples are dealt out to shards. A shard works out the gradient of its examples, 32 at a time, with the model it has;
the model adds it up and goes round to all shards again. Nothing waits for anything, so a gradient may be that of an
older model: it counts the less, the older. Each gradient is added once, whatever fails on the way.

    streamingjob run examples/online_training.yaml
    python examples/online_training.py out/online-training     # draws out/online-training.png
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from snapshot_engine.api import Environment, KeyedProcessFunction, ListState, ValueState, col
from snapshot_engine.connectors.generated_columns import Sequence64, UniformFloat
from snapshot_engine.connectors.generator import GeneratorSource
from snapshot_engine.connectors.parquet_sink import ParquetSink

SHARDS = 4
BATCH = 32
RATE = 2.0
TRUTH = np.array([0.4, 1.5, -1.0])
"""A point (x, y) is red if 0.4 + 1.5 x - y > 0."""
RECORD = "shard long, is_model boolean, x double, y double, red double, step long, weights array<double>"
"""What goes round: an example, or the model for one shard."""


def examples(count: int, rate: float) -> GeneratorSource:
    columns = {"number": Sequence64(), "x": UniformFloat(-2, 2, seed=1), "y": UniformFloat(-2, 2, seed=2)}
    return GeneratorSource(columns, rate=rate, count=count)


def labelled(row):
    red = float(TRUTH @ [1.0, row.x, row.y] > 0)
    return {
        "shard": row.number % SHARDS,
        "is_model": False,
        "x": row.x,
        "y": row.y,
        "red": red,
        "step": 0,
        "weights": [],
    }


class Shard(KeyedProcessFunction):
    """Puts out a gradient for every 32 examples."""

    def open(self, context) -> None:
        self.weights = context.state(ValueState("weights", list[float]))
        self.step = context.state(ValueState("step", int))
        self.batch = context.state(ListState("batch", list[float]))

    def process(self, record, context):
        if record.is_model:
            self.weights.update(list(record.weights))
            self.step.update(record.step)
            return
        self.batch.add([1.0, record.x, record.y, record.red])
        seen = self.batch.get()
        if len(seen) < BATCH:
            return
        gradient, loss = gradient_of(np.array(self.weights.value() or [0.0, 0.0, 0.0]), np.array(list(seen)))
        self.batch.clear()
        yield {"model": 0, "of_step": self.step.value() or 0, "loss": loss, "gradient": gradient.tolist()}


def gradient_of(weights, batch):
    """Of the logistic loss, over the examples of a batch."""
    inputs, red = batch[:, :3], batch[:, 3]
    guess = 1 / (1 + np.exp(-inputs @ weights))
    loss = -np.mean(red * np.log(guess + 1e-12) + (1 - red) * np.log(1 - guess + 1e-12))
    return inputs.T @ (guess - red) / len(red), float(loss)


class Model(KeyedProcessFunction):
    def open(self, context) -> None:
        self.weights = context.state(ValueState("weights", list[float]))
        self.step = context.state(ValueState("step", int))

    def process(self, record, context):
        before = self.step.value() or 0
        step, rate = before + 1, RATE / (1 + before - record.of_step)
        weights = np.array(self.weights.value() or [0.0, 0.0, 0.0]) - rate * np.array(record.gradient)
        self.step.update(step)
        self.weights.update(weights.tolist())
        context.emit_side("steps", {"step": step, "loss": record.loss, "weights": weights.tolist()})
        for shard in range(SHARDS):
            yield {
                "shard": shard,
                "is_model": True,
                "x": 0.0,
                "y": 0.0,
                "red": 0.0,
                "step": step,
                "weights": weights.tolist(),
            }


def train(records):
    gradients = records.process(Shard(), schema="model long, of_step long, loss double, gradient array<double>").uid(
        "shards"
    )
    models = gradients.key_by("model").process(Model(), schema=RECORD).uid("model")
    return models, models.side_output("steps", schema="step long, loss double, weights array<double>")


def pipeline(env: Environment, out: str = "out/online-training", count: int = 64_000, rate: float = 10_000) -> None:
    source = env.from_source(examples(count, rate), name="examples", uid="examples").map(labelled, schema=RECORD)
    steps = source.key_by("shard").iterate(train, uid="train")
    steps.where(col("step") > 0).sink_to(ParquetSink(out), uid="steps-out")


def draw(out: str) -> Path:
    """How the loss fell, and the line that was learned beside the true one."""
    import matplotlib

    matplotlib.use("Agg")
    import pyarrow.parquet as pq
    from matplotlib import pyplot as plt

    steps = pq.read_table(out).sort_by("step")
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 5))
    left.plot(steps["step"].to_numpy(), steps["loss"].to_numpy(), linewidth=0.7)
    left.set(title="loss of each batch", xlabel="step", yscale="log")
    xs = np.linspace(-2, 2, 50)
    for step in np.unique(np.geomspace(1, steps.num_rows, 6).astype(int)):
        bias, of_x, of_y = steps["weights"][int(step) - 1].as_py()
        right.plot(xs, -(bias + of_x * xs) / of_y, label=f"step {step}", linewidth=1)
    right.plot(xs, TRUTH[0] + TRUTH[1] * xs, "k--", label="the truth")
    right.set(title="the line between red and blue", xlim=(-2, 2), ylim=(-2, 2))
    right.legend()
    picture = Path(out).parent / f"{Path(out).name}.png"
    figure.savefig(picture, dpi=120)
    return picture


if __name__ == "__main__":
    print(draw(sys.argv[1] if len(sys.argv) > 1 else "out/online-training"))
