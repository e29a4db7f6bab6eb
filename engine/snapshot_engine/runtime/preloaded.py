"""Imported in the process that slots are forked from: everything they need is loaded once, here."""

from snapshot_engine.runtime.spark_daemon import preload

preload()
