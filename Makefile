# Every target works on a fresh Debian machine with Go and root: what else is
# needed is installed, or built from Go modules and kept for all checkouts. Elsewhere
# the targets say what is missing.

GO ?= go
BIN := .cache/bin/programs
FUZZTIME ?= 60s

# GOFILES prints all files of Go that were written by hand, and the few that controller-gen writes.
GOFILES := find . -name '*.go' ! -name '*.pb.go' ! -path './.cache/*'

# SUITE runs phases of the test suite, several at once, and reports what each has cost and what has failed.
SUITE := $(GO) build -o .cache/suite ./test/suite && exec .cache/suite

# ADDED prints the files of Go that are ours as a whole in a copy of gVisor with the patches of runsc/fast. They compile
# there alone, so of lint only gofumpt and the length of lines see them, as for runsc/fast/_difftest.
ADDED := awk '$$2 != "-" && ($$1 == "-" || /_unsafe.go$$/) {print ".cache/gvisor/" $$3}' runsc/fast/patches/UPSTREAM

# MODULES prints the directories of all modules that have Go of ours; the others only name what is built from them.
MODULES := find . -name go.mod ! -path './.cache/*' -execdir sh -c 'find . -name "*.go" | grep -q .' ';' -printf '%h\n'

N ?= 3
LOAD ?= 2
KILLS ?= 300
ROUNDS ?= 20
REVISION ?= HEAD
GVISOR ?= go
SEED ?= 0

.PHONY: $(shell sed -n 's/^\([a-z0-9-]*\):.*\#\# .*/\1/p' Makefile)

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

build: ## the agent, the CLI, the shim and the sidecar, static, in .cache/bin/programs
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags '-s -w' -o $(BIN)/ ./cmd/...

release: ## image, SBOM, provenance and kubectl plugin of REVISION (HEAD), in .cache/release; BUILDER is the URI of who builds, VERSION and PLUGIN_URI are for krew
	$(GO) run ./test/tools/release --revision=$(REVISION) $(if $(BUILDER),--builder=$(BUILDER)) $(if $(VERSION),--version=$(VERSION)) $(if $(PLUGIN_URI),--plugin-uri=$(PLUGIN_URI))

tools: ## all that tests, demo and benchmarks run: runsc, containerd, Kubernetes, fake-gcs-server, S3 servers, azurite, packages
	@$(GO) run ./test/tools/build

test: tools ## the tests, with real components; what takes longer has a target of its own below; what failed stands at the end
	@$(SUITE)

race: ## the tests that need no bed, nearly all of them with the race detector
	@$(SUITE) -phase race,plain,memory,plots

unit: ## tests that need neither root nor a bed; less is random than in make test, which has the rest
	@$(SUITE) -phase unit,plots

stock-build: tools ## the main tests of restores and sleeping pods, with gVisor's own build of runsc
	@$(SUITE) -phase stock-build

rare: tools ## what make test leaves out: daemons ended at more steps, rarer cases, the release and gVisor's patched packages
	@$(SUITE) -phase rare

chart: ## the Helm chart: lint, each value and preset, and what it renders beside manifests/
	@$(SUITE) -phase chart

alerts: ## each alert of manifests/components/alerts fires, and is quiet where all is well, by Prometheus' own tool
	$(GO) test ./test/alerts -fire -count=1 -timeout 20m

helm: ## the chart in a cluster, by Helm: install, test, upgrade, adopt, uninstall, while a pod sleeps; some minutes
	$(GO) test ./test/helm -install -count=1 -v -timeout 40m

e2e: tools ## end to end on Kubernetes: a cluster of two nodes, the agents installed, pods frozen and brought back
	@$(SUITE) -phase e2e

flake: tools ## all tests N (3) times, each second time beside LOAD (2) busy loops; which failed how often stands at the end
	@$(SUITE) -flake $(N) -load $(LOAD)

cover: tools ## all tests, and which share of the statements they and the programs of their beds reach
	@$(SUITE) -cover -phase race,e2e,integration,beds,kube,plain,memory,plots,chart,dashboard,workflows,rare

chaos: tools ## kill daemons and sidecars KILLS (300) times while pods freeze, sleep by request and by policy, wake and end; SEED repeats a run
	$(GO) test ./test/e2e -run '^TestChaos$$' -count=1 -v -timeout 4h -chaos.kills=$(KILLS) -chaos.seed=$(SEED)

s3: tools ## snapshots in a bucket of S3: a cluster whose agents and controller have its credentials; two minutes
	$(GO) test ./test/e2e -run '^TestS3$$' -count=1 -v -timeout 20m

databases: tools ## PostgreSQL, MariaDB, Redis and SQLite on a volume, written all the time: ROUNDS (20) sleeps, saves at deletion and stops of each
	$(GO) test ./test/e2e -run '^TestDatabase' -count=1 -v -timeout 4h -databases.rounds=$(ROUNDS)

gvisor-rehearsal: ## the patches of runsc/fast with gVisor's version GVISOR (the newest): which apply, and does it build
	@rm -rf .cache/gvisor-rehearsal && mkdir -p .cache
	@$(GO) run ./runsc/fast/tree rehearse .cache/gvisor-rehearsal $(GVISOR)

lint: ## gofumpt, lines of at most 120 characters; in each module go vet, staticcheck and govulncheck
	@rm -rf .cache/gvisor && mkdir -p .cache
	@$(GO) run ./runsc/fast/tree "$$($(GO) list -m -f '{{.Dir}}' gvisor.dev/gvisor)" .cache/gvisor
	@bad=$$({ $(GOFILES); $(ADDED); } | xargs $(GO) tool gofumpt -l) && test -z "$$bad" || { echo "gofumpt: $$bad" >&2; exit 1; }
	@{ $(GOFILES); $(ADDED); } | xargs awk 'length > 120 && !/kubebuilder/ {print FILENAME ":" FNR ": over 120 characters"; n++} END {exit n > 0}'
	@set -e; staticcheck=$$($(GO) tool -n staticcheck); govulncheck=$$($(GO) tool -n govulncheck); unreachable=; \
	export GOWORK=off GOFLAGS=-trimpath; for module in $$($(MODULES)); do \
		cd $(CURDIR)/$$module; echo "lint: module $$module"; $(GO) vet ./...; $$staticcheck ./...; \
		test -z "$$unreachable" || continue; \
		out=$$($$govulncheck ./... 2>&1) || case "$$out" in \
		*"fetching vulnerabilities"*) unreachable=1; echo "govulncheck: its database cannot be reached, so nothing was checked" ;; \
		*) printf '%s\n' "$$out" >&2; exit 1 ;; \
		esac; \
	done

demo: ## checkpoint a real pod, restore two branches of it, put it to sleep and wake it
	@$(GO) run ./test/demo

bench-pause: ## the pause of a checkpoint, side by side with stock gVisor
	$(GO) run ./bench pause

bench-precopy: ## how far a pod is slowed down while its memory is stored before the pause
	$(GO) run ./bench precopy

bench-loading: ## the pause of a checkpoint soon after a restore, while the sandbox loads
	$(GO) run ./bench loading

bench-restore: ## the time of a restore, side by side with stock gVisor
	$(GO) run ./bench restore

bench-sleep: ## how pods fall asleep, sleep and wake, under traffic, many on one node, and with light work; 40 minutes
	$(GO) run ./bench/sleep

bench-programs: ## the pause, the restore and the content of real programs under load, side by side with stock gVisor
	$(GO) run ./bench programs

bench-wake: ## what a restored server does next: first answer, full speed, its neighbours, eight branches at once
	$(GO) run ./bench wake

plots: ## draw what the benchmarks in bench/out have found: bench/pause.svg, programs.svg and answer.svg
	cd bench/plots && GOWORK=off $(GO) run . --from ../out --to ..

bench-idle: tools ## what agents use that have nothing to do, with 10,000 snapshots and 200 pods in a cluster
	$(GO) test ./test/e2e -run '^$$' -bench '^BenchmarkIdle$$' -benchtime 1x -timeout 2h

bench-latency: tools ## how long a trigger takes until it is Complete, and a pod until it is Ready, in a cluster; twelve rounds
	$(GO) test ./test/e2e -run '^$$' -bench '^BenchmarkLatency$$' -benchtime 12x -timeout 30m

bench-budget: tools ## 16 checkpoints of 1 GiB at once; the agent's memory must stay within its budget. It takes 20 GiB of memory
	DIAPAUSE_TEST_PODS=15 DIAPAUSE_TEST_MIB=1024 $(GO) test ./test/integration -run '^TestHostileCheckpointsAtOnce$$' \
		-count=1 -v -timeout 30m

bench-store: ## the snapshot store on a real heap, beside its bounds and other tools
	$(GO) run ./bench/store

generate: ## the Go of the local API from its .proto; deep copies and manifests/crds from the Kubernetes API's types; the dashboard; the chart
	$(GO) generate ./api/...
	cd test/dashboard && GOWORK=off $(GO) test . -run '^TestRendered$$' -count=1 -update
	$(GO) run ./test/tools/chart
	@test -f /usr/include/google/protobuf/timestamp.proto && command -v protoc >/dev/null || \
		{ apt-get update -q && apt-get install -qy --no-install-recommends protobuf-compiler libprotobuf-dev; }
	GOBIN=$(CURDIR)/.cache/gen $(GO) install google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc
	cd api/local/v1 && PATH=$(CURDIR)/.cache/gen:$$PATH protoc -I . -I /usr/include \
		--go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative *.proto

fuzz: ## every fuzz target for FUZZTIME (60s) each; what they find out is kept in .cache/fuzz
	@$(GO) run ./test/fuzz -time $(FUZZTIME)

clean: ## remove what the targets above have made in this checkout
	rm -rf .cache bench/out

clean-tools: ## remove the built programs that all checkouts share
	@$(GO) run ./test/tools/build -clean
