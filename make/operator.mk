# What is generated from the typed model, and committed.
.PHONY: generate chart-lint
generate: $(STAMP)  ## the CRD, its copy in the chart and its reference page, dashboards, alert rules, metrics table
	$(PY) -m streamingjob_operator.crd > crds/streamingjobs.yaml
	mkdir -p charts/streamingjob-operator/files
	cp crds/streamingjobs.yaml charts/streamingjob-operator/files/streamingjobs.yaml
	$(PY) -m streamingjob_operator.reference > docs/crd-reference.md
	$(PY) -m monitoring

RENDER := helm template x charts/streamingjob-operator --kube-version 1.35.0

chart-lint:  ## helm lint and a rendering of every switch
	helm lint charts/streamingjob-operator
	$(RENDER) > /dev/null
	$(RENDER) --set 'watchNamespaces={a,b}' --set metrics.podMonitor.enabled=true \
	  --set networkPolicy.enabled=true --set crd.install=false > /dev/null
	$(RENDER) --set alerts.enabled=true --set dashboards.enabled=true > /dev/null
