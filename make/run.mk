KERNELS := $(VENV)/.kernels

$(KERNELS): $(STAMP) $(wildcard engine/snapshot_engine/kernels/*.py)
	@echo "compiling the kernels: half a minute, once"
	$(PY) -m snapshot_engine.kernels
	touch $@

.PHONY: run chaos
run: $(KERNELS)  ## the first example on an embedded Spark: its result and its checkpoints
	rm -rf out/first-job examples/.streamingjob/checkpoints/default/first-job
	$(VENV)/bin/streamingjob run examples/first_job.yaml
	$(VENV)/bin/streamingjob checkpoints examples/first_job.yaml
	@$(PY) -c "import pyarrow.parquet as p; t = p.read_table('out/first-job').sort_by([('window_start', 'ascending'), ('auction', 'ascending')]); print(f'{t.num_rows} rows in out/first-job, the first of them:'); print(t.slice(0, 5).to_pandas().to_string(index=False))"

chaos: $(KERNELS)  ## kills, failures and restarts on a real Spark: the output must stay exact
	$(PY) -m pytest -q tests/chaos -m slow --timeout 1500
	$(PY) -m pytest -q tests/engine/runtime/test_at_least_once.py
