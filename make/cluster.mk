# A real Kubernetes on this machine, for the tests that need one: see docs/developers/cluster.md.
# These need no virtual environment: localcluster uses Python's standard library only.
LOCALCLUSTER := PYTHONPATH=hack/cluster python3 -m localcluster
NODES ?= 1

.PHONY: cluster cluster-down cluster-status cluster-tools image api-server test-cluster
cluster:  ## a real Kubernetes on this machine (NODES=2 for a second node)
	@$(LOCALCLUSTER) up --nodes $(NODES)

cluster-down:  ## take it down; only its cache stays
	@$(LOCALCLUSTER) down

cluster-status:  ## its nodes and pods
	@$(LOCALCLUSTER) status

cluster-tools:  ## kubectl, helm, prometheus, promtool: where they are; provides what is missing
	@$(LOCALCLUSTER) tools

image:  ## the project's image, built without a registry and loaded into the running cluster
	@$(LOCALCLUSTER) image

api-server:  ## etcd and the API server alone, without root and in seconds, until interrupted
	@$(LOCALCLUSTER) api-server

test-cluster: $(STAMP)  ## every test that needs a cluster: yours by KUBECONFIG, kind or minikube, else `make cluster`
	$(PY) -m pytest -q -m cluster
