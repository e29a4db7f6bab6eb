# A real Kubernetes on this machine, for the tests that need one: see docs/developers/cluster.md.
# These need no virtual environment: localcluster uses Python's standard library only.
LOCALCLUSTER := PYTHONPATH=hack/cluster python3 -m localcluster
NODES ?= 1

.PHONY: cluster cluster-down cluster-status
cluster:  ## a real Kubernetes on this machine (NODES=2 for a second node)
	@$(LOCALCLUSTER) up --nodes $(NODES)

cluster-down:  ## take it down; only its cache stays
	@$(LOCALCLUSTER) down

cluster-status:  ## its nodes and pods
	@$(LOCALCLUSTER) status
