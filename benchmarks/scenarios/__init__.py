"""Measurements that are not throughput: the coordinator's own cost, latency, recovery, where time goes."""
