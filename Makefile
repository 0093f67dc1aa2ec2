# Names for the project's few commands; the logic is in Go and in hack/.
SHELL := /bin/bash
export GOFLAGS ?= -buildvcs=false

.PHONY: build test long robustness robustness-machines etcd-proof addons-proof moto-suite conformance lint vulncheck bench e2e e2e-aws demo demo-down deps assets image packages packages-check generate man fuzz clean

build: ## bin/slipway and bin/slipway-node
	@hack/build.sh

deps: ## install the Debian packages that are missing, by name
	@hack/deps.sh

assets: build deps ## build Kubernetes, etcd, containerd, images (cached by content)
	@hack/assets.sh

image: build deps ## build the local region's machine image (cached by content)
	@bin/slipway region image

test: build ## every test; tests that this machine cannot run are skipped, listed and counted
	@hack/test.sh

# What decides about machines is played with this many random histories.
MODEL = ./internal/cluster/rollout ./internal/cluster/upgrade ./internal/machine/backup ./internal/machine/discovery ./internal/machine/etcd ./internal/machine/follow ./internal/machine/repair ./internal/machine/netpolicy

SEED ?= $(shell date +%s)
long: build ## the long forms of tests: killed at every write, every topology judged and operated with least rights, 10,000 histories of each model
	@echo "COUNT models: seed $(SEED), 10000 histories each"
	@go test -count=1 -v -timeout 60m -run 'Model|Histories|IsSafe|NeverHarm|KeepQuorum|TestLock$$|TestRestorations$$|TestMaintenance$$|TestRecordsConverge$$' $(MODEL) -rapid.checks=10000 -rapid.seed=$(SEED)
	@SLIPWAY_LONG=1 go test -count=1 -v -timeout 60m ./test/killed ./test/judge
	@SLIPWAY_LONG=1 go test -count=1 -v -timeout 60m -run TestTopologiesWithLeastRights ./test/attack

FAULTS ?= 200
# Their figures are written into this file.
FAULTS_REPORT ?= $(CURDIR)/docs/benchmarks.md
robustness: assets ## faults (default 200) injected into real etcd members under load; the history must be linearizable
	@SLIPWAY_E2E=require SLIPWAY_FAULTS=$(FAULTS) SLIPWAY_FAULTS_REPORT=$(FAULTS_REPORT) go test -count=1 -v -timeout 120m -run TestRealRobustness ./internal/machine/agent

robustness-machines: build deps ## the same with faults of machines, disks and networks of a cluster in the local region; about 25 s a fault
	@SLIPWAY_E2E=require SLIPWAY_FAULTS=$(FAULTS) SLIPWAY_FAULTS_REPORT=$(FAULTS_REPORT) E2E_TIMEOUT=300m E2E_RUN=TestRobustness$$ hack/e2e.sh

# What proves on machines that etcd heals, is backed up, is restored, grows and shrinks.
ETCD_E2E = TestLostQuorum|TestEtcdBackups|TestRestoreElsewhere|TestControlPlaneSize|TestControlPlaneRepair|TestDiscoveryByDNS|TestEtcdUpgrade|TestZoneMove|TestFaultsAreSeen
etcd-proof: ## the long proofs about etcd (docs/testing.md lists them): 10,000 histories of each model, faults of members and of machines, disasters on machines; some hours
	@$(MAKE) --no-print-directory long
	@$(MAKE) --no-print-directory robustness
	@SLIPWAY_LONG=1 SLIPWAY_E2E=require go test -count=1 -v -timeout 120m -run 'TestReal' ./internal/machine/agent
	@$(MAKE) --no-print-directory robustness-machines
	@$(MAKE) --no-print-directory e2e E2E_TIMEOUT=300m E2E_RUN='$(ETCD_E2E)'

# What proves add-ons: their packages, the rights of channels, and what controllers do on machines.
ADDONS = ./internal/manifest ./internal/machine/addon/... ./internal/cluster/addons/... ./internal/lib/guardedhttp ./internal/lib/signing ./internal/lib/oidcdiscovery
ADDONS_RIGHTS = Addon|Channel|Account|Pods|Issuer|Tokens|Documents|Controller|Provisioner|EBS|GroupScaler|Karpenter|CNI|CertManager|ExternalDNS|Traefik|MetricsGate|NoEscalation
ADDONS_E2E = TestSpine|TestTokenKeyRotation|TestControllers|TestIngress|TestLoadBalancerServices|TestExternalCloudProvider|TestMonitoring|TestVPCCNI|Karpenter|TestAddonTutorial
addons-proof: build ## the proofs about add-ons (docs/testing.md lists them): packages and fuzzing, rights of channels, other tools, NetworkPolicies, controllers on machines; some hours
	@SLIPWAY_LONG=1 SLIPWAY_E2E=require go test -count=1 -v -timeout 60m $(ADDONS)
	@go test -count=1 -v -run Properties ./internal/machine/addon/bundle -rapid.checks=10000
	@SLIPWAY_E2E=require go test -count=1 -v -timeout 60m -run 'Addon|Channel|Source|RealControlPlane' ./internal/machine/agent
	@SLIPWAY_E2E=require go test -count=1 -v -timeout 60m -run 'TestAddonScripts' ./internal/cli
	@SLIPWAY_E2E=require go test -count=1 -v -timeout 60m -run '$(ADDONS_RIGHTS)' ./test/attack
	@set -o pipefail; SLIPWAY_BENCH=1 go test -count=1 -v -timeout 60m -run TestAddonTools ./test/bench | grep -v '^==='
	@FUZZ=addon hack/fuzz.sh
	@$(MAKE) --no-print-directory e2e E2E_TIMEOUT=300m E2E_RUN='$(ADDONS_E2E)'
	@$(MAKE) --no-print-directory conformance SUITE=NetworkPolicy

moto-suite: ## the listed tests of moto's own suite, against the local region; says how to get them
	@hack/moto-suite.sh $(SERVICE)

conformance: build deps ## Kubernetes' conformance tests against a cluster in a local region; FOCUS=REGEXP runs those whose names match, SUITE=NetworkPolicy those about NetworkPolicies
	@hack/conformance.sh

e2e: build deps ## the end-to-end tests; fails where test would skip
	@SLIPWAY_E2E=require hack/e2e.sh

e2e-aws: build ## the steps from init to delete against an AWS account, with a sweep and a report; SWEEP=ID deletes what a killed run left (docs/testing.md)
	@hack/e2e-aws.sh $(SWEEP)

lint: ## golangci-lint with the project's rules, and the style figures
	@hack/lint.sh

vulncheck: ## known vulnerabilities in what the programs call; skipped where the database cannot be reached
	@hack/vulncheck.sh

packages: ## archives, deb, rpm, image, formula, plugin manifest, checksums and bill of materials, in dist
	@hack/packages.sh

packages-check: ## build the packages twice, at two paths, and compare them byte by byte
	@hack/packages-check.sh

bench: build ## benchmarks; results belong in docs/benchmarks.md
	@go test -run '^$$' -bench . -benchmem ./internal/...
	@set -o pipefail; SLIPWAY_BENCH=1 go test -count=1 -v -timeout 30m -run 'TestCriticalPath|TestThrottledApplyConverges|TestWhatIsNotSeenYet|TestScale' ./test/engine | grep -E '^(COUNT|---|FAIL|ok|panic)'
	@set -o pipefail; SLIPWAY_BENCH=1 KOPS='$(if $(KOPS),$(abspath $(KOPS)))' go test -count=1 -v -timeout 30m -run 'TestTable|TestWidePlan|TestDemo|TestAddonTools' ./test/bench | grep -v '^==='

demo: build deps ## local region, a real highly available cluster, kubectl get nodes
	@bin/slipway demo --yes

demo-down: build ## remove everything that demo made
	@bin/slipway region destroy --yes

generate: ## regenerate docs and goldens
	@go test ./internal/cli ./internal/manifest ./internal/machine/node ./internal/lib/asset ./internal/region/network ./internal/infra/render ./internal/infra/render/diagram ./internal/infra/plan ./internal/region/services ./internal/region/ec2 -update
	@go test ./test/engine -run TestDrift -update
	@go test ./internal/repocheck -update

man: ## the man pages of slipway, in bin/man/man1
	@go run ./hack/manpages bin/man/man1

fuzz: ## every fuzz target for FUZZTIME (default 10s)
	@hack/fuzz.sh

clean:
	@rm -rf bin
