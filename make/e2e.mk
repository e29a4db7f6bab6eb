.PHONY: e2e
e2e: $(KERNELS)  ## the operator end to end on a real cluster: yours by KUBECONFIG, kind or minikube, else `make cluster`
	$(PY) -m pytest -q tests/e2e
