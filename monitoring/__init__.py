"""Dashboards and alert rules as code; `python -m monitoring` writes them into the chart.

What they query is named in the engine's `runtime/*_metrics.py` and in the operator's `metrics.py`. The tests
run every query against a real Prometheus.
"""
