# Benchmarks beside the peers. The harness has an environment of its own and installs the peers into theirs.
BENCH_PY := benchmarks/.envs/harness/bin/python
BENCH_STAMP := benchmarks/.envs/harness/.ready

.PHONY: bench bench-quick bench-scenarios bench-smoke bench-check bench-prepare bench-reach bench-coordinator bench-loops bench-metrics bench-operator bench-recovery profile
$(BENCH_STAMP): benchmarks/environments.py
	@command -v java >/dev/null || { echo "Java 17 is needed by the peers: apt-get install openjdk-17-jre-headless"; exit 1; }
	@command -v mvn >/dev/null || { echo "Maven is needed to fetch the peers' jars: apt-get install maven"; exit 1; }
	python3 -m benchmarks.environments harness
	touch $@

bench: $(BENCH_STAMP) $(KERNELS)  ## all benchmarks beside all peers (hours): table, plots and report.json in benchmarks/out
	$(BENCH_PY) -m benchmarks run --plan full
	$(BENCH_PY) -m benchmarks scenarios

bench-quick: $(BENCH_STAMP) $(KERNELS)  ## the main benchmarks beside the main peers, under 10 minutes once the peers are installed
	$(BENCH_PY) -m benchmarks run --plan quick

bench-smoke: $(BENCH_STAMP) $(KERNELS)  ## every engine and query once over few rows, checked against the reference
	$(BENCH_PY) -m benchmarks run --plan smoke

bench-prepare: $(BENCH_STAMP)  ## the input files of the goals' cells
	$(BENCH_PY) -m benchmarks prepare --plan reach

bench-reach: $(BENCH_STAMP) $(KERNELS)  ## the cells of the project's goals beside the peers that could reach them
	$(BENCH_PY) -m benchmarks run --plan reach

bench-check: bench-quick  ## has this engine become slower beside the peers than the stored ratios say
	$(BENCH_PY) -m benchmarks compare

bench-metrics: $(STAMP) $(KERNELS)  ## throughput while being scraped each second, beside the same job left alone
	$(PY) -m benchmarks.scenarios.metrics_cost

bench-scenarios: $(BENCH_STAMP) $(KERNELS)  ## latency, checkpoint sizes, recovery, regions and the like, put into the report
	$(BENCH_PY) -m benchmarks scenarios

bench-coordinator: $(STAMP)  ## the driver's own cost of a checkpoint with 100, 1,000 and 10,000 subtasks, simulated
	$(PY) -m benchmarks.scenarios.coordinator

bench-loops: $(STAMP) $(KERNELS)  ## a loop with a checkpoint each second against one without any
	$(PY) -m benchmarks.scenarios.loops

bench-recovery: $(STAMP) $(KERNELS)  ## kill to first new output by strategy, what exchanges cost, catch-up after an absence
	$(PY) -m benchmarks.scenarios.recovery

bench-operator: $(STAMP)  ## 200 jobs with a checkpoint each second on an API server alone: the operator's processor, memory, calls
	$(PY) -m pytest -q -s tests/operator/api_server/test_fleet.py

profile: $(BENCH_STAMP) $(KERNELS)  ## where a slot spends its time: a flame graph (QUERY=tumbling, q5, ...)
	$(BENCH_PY) -m benchmarks.scenarios.profile --query $(or $(QUERY),tumbling)
