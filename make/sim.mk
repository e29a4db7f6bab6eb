N ?= 20000
SEED ?= 1
BUG ?=

.PHONY: sim
sim: $(STAMP)  ## fault schedules on the protocols: N=20000 SEED=1; N=1 tells one step by step; BUG= plants a bug
	$(PY) -m snapshot_engine.simulator N=$(N) SEED=$(SEED) $(if $(BUG),"BUG=$(BUG)")
