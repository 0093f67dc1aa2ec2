// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/examples"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/lib/asset"
	"github.com/slipway-k8s/slipway/internal/lib/asset/assettest"
	"github.com/slipway-k8s/slipway/internal/manifest"
	"github.com/slipway-k8s/slipway/internal/region/authz"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
	"github.com/slipway-k8s/slipway/test/dnsfunction"
	"github.com/slipway-k8s/slipway/test/prerequisite"
)

// topologyLab is a lab in which one topology of examples/ is created, changed and deleted by callers who have nothing but
// the policies that Slipway prints.
type topologyLab struct {
	*lab
	cluster v1alpha1.Cluster
	file    string // the manifests

	mu    sync.Mutex
	asked []askedRight
}

// askedRight is a question to IAM, and its answer.
type askedRight struct {
	authz.Request
	isAllowed bool
	reason    string
}

// shortTopologies are those of make test: they differ most in what they need. The rights for a function are in the tests of
// package iampolicy.
func shortTopologies() []string {
	return []string{"dns-existing", "existing", "session", "worker-groups"}
}

// TestTopologiesWithLeastRights: an operator with the everyday policies applies each topology, changes it so that all
// machines are replaced, and makes the calls of that rolling update; a reader with the read-only policies plans and
// validates it; machines make the calls of their agents with their roles; and the operator deletes it with the policy for
// deletions. Nothing is denied. What the policies do not allow is in TestNoEscalation. An administrator creates only what
// the examples expect to exist. No attack: what the limits must not break.
func TestTopologiesWithLeastRights(t *testing.T) {
	tried := map[string]bool{}
	lived := 0

	for _, x := range examples.All() {
		t.Run(x.Name, func(t *testing.T) {
			if os.Getenv("SLIPWAY_LONG") == "" && !slices.Contains(shortTopologies(), x.Name) {
				t.Skip("SKIPPED: a long form, see make long")
			}

			l := newTopologyLab(t, string(x.YAML))
			l.live()
			lived++

			for _, a := range l.asked {
				if a.Principal.RoleARN != "" || strings.HasSuffix(a.Principal.ARN, "/operator") {
					tried[a.Action] = true
				}
			}
		})
	}

	if t.Failed() || lived < len(shortTopologies()) { // -run has chosen some of them
		return
	}

	for _, action := range declaredActions(t, "../../internal/cluster/rollingupdate", "../../internal/machine/agent") {
		// Only machines of a CloudFormation stack signal. An agent reads the user data of machines that Karpenter has launched, which no
		// topology has: go test ./internal/machine/agent -run Launch.
		untried := []string{"cloudformation:SignalResource", "ec2:DescribeInstanceAttribute"}
		if !tried[action] && !slices.Contains(untried, action) {
			t.Errorf("a rolling update or an agent calls %s, which no topology has tried", action)
		}
	}
}

// newTopologyLab starts a region with a state store, and creates what the manifests of a topology expect to exist.
func newTopologyLab(t *testing.T, manifests string) *topologyLab {
	t.Helper()
	const soon = 10 * time.Millisecond
	l := &topologyLab{}
	l.lab = newLabWith(t, regiontest.Options{TransitionDelay: soon, TraceAuthorization: l.note})
	set, findings := manifest.Parse([]byte(manifests))
	l.check(findings.Err())
	set = manifest.Default(set)

	for was, is := range prerequisite.Create(t, l.region.AWSConfig(), set.Cluster.Spec) {
		manifests = strings.ReplaceAll(manifests, was, is)
	}

	l.cluster = set.Cluster
	l.file = l.temporaryFile("cluster.yaml", manifests)
	l.more = map[string]string{}
	l.must(caller{}, 0, "state", "init", "--yes")
	if place := set.Cluster.Spec.ServiceAccountIssuerDiscovery.DiscoveryStore; place != "" {
		l.must(caller{}, 0, "iam", "init-discovery", place, "--yes")
	}

	if model.UsesEtcdDNS(set.Cluster.Spec) {
		program, err := dnsfunction.Build(l.dir)
		l.check(err)
		l.more["SLIPWAY_DNS_BINARY"] = program
	}

	l.addAgents(set)

	return l
}

// note remembers what IAM was asked.
func (l *topologyLab) note(r authz.Request, d authz.Decision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = append(l.asked, askedRight{Request: r, isAllowed: d.Allowed, reason: d.Reason})
}

// addAgents lets programs stand for the agents of machines of both architectures, which slipway finds next to the running
// program.
func (l *topologyLab) addAgents(set manifest.Set) {
	l.Helper()
	arches := map[string]bool{}
	for _, g := range set.Groups {
		arches[set.Arch(g.Spec.MachineType)] = true
	}

	if len(arches) == 1 && arches["amd64"] {
		return
	}

	self, err := os.Executable()
	l.check(err)
	program, err := os.ReadFile(l.agent)
	l.check(err)

	const (
		machineAt = 18  // in the head of an ELF file
		aarch64   = 183 // the number of the architecture
	)
	foreign := bytes.Clone(program)
	binary.LittleEndian.PutUint16(foreign[machineAt:], aarch64)
	l.agent = ""

	for name, body := range map[string][]byte{"slipway-node": program, "slipway-node-arm64": foreign} {
		path := filepath.Join(filepath.Dir(self), name)
		l.check(os.WriteFile(path, body, 0o700))
		l.Cleanup(func() { _ = os.Remove(path) })
	}
}

// name returns the name of the cluster.
func (l *topologyLab) name() string { return l.cluster.Metadata.Name }

// live creates the cluster, changes it and deletes it.
func (l *topologyLab) live() {
	l.Helper()
	name := l.name()

	// The policies depend on the ids in the manifests.
	l.must(caller{}, 0, l.createArgs()...)
	operator := l.user("operator", l.policies(name, "--allow-existing"))
	reader := l.user("reader", l.policies(name, "--read-only", "--allow-existing"))
	l.must(caller{}, 0, "delete", "cluster", name, "--yes")

	l.must(operator, 0, l.createArgs()...)
	l.must(operator, changes, "plan", name)
	l.must(operator, 0, "apply", name, "--yes")
	l.must(operator, 0, "plan", name)

	l.must(reader, 0, "plan", name)
	l.must(reader, 0, "get", "cluster", name)
	l.must(reader, 0, "get", "machines", name)
	l.must(reader, 0, "drift", name)
	l.must(reader, notReady, "validate", "cluster", name) // this region runs no machines

	l.changeMachines(operator)
	l.rollMachines(operator)
	l.callAsMachines()
	l.must(operator, 0, "plan", name)
	l.deleteCluster(operator)
	l.checkNothingDenied()
}

// createArgs returns the command that creates the manifests. The built-in catalogue lacks the images of the Amazon VPC CNI.
func (l *topologyLab) createArgs() []string {
	l.Helper()
	args := []string{"create", "-f", l.file, "--yes"}
	if l.cluster.Spec.Networking.CNI != v1alpha1.CNIAmazonVPC {
		return args
	}

	path := assettest.WritePinnedCatalog(l.T, l.dir)
	raw, err := os.ReadFile(path)
	l.check(err)
	catalog, err := asset.ParseCatalog(raw)
	l.check(err)

	for _, name := range []string{"amazon-k8s-cni", "amazon-k8s-cni-init"} {
		image := catalog.Images[0]
		image.Name = name
		image.Ref = "registry.example.com/" + name + ":v" + image.Version
		catalog.Images = append(catalog.Images, image)
	}

	raw, err = catalog.YAML()
	l.check(err)

	return append(args, "--assets", l.temporaryFile("catalog.yaml", string(raw)))
}

// The exit codes of commands that did their work.
const (
	changes  = 2 // of a plan that is not empty
	notReady = 2 // of a cluster that does not work yet
)

// changeMachines changes the size of root volumes, which needs other machines.
func (l *topologyLab) changeMachines(operator caller) {
	l.Helper()
	groups := l.must(operator, 0, "get", "groups", l.name(), "-o", "yaml")
	const size = "    size: 64\n"
	if !strings.Contains(groups, size) {
		l.Fatalf("no root volume has the usual size:\n%s", groups)
	}

	file := l.temporaryFile("groups.yaml", strings.ReplaceAll(groups, size, "    size: 72\n"))
	l.must(operator, 0, "replace", "-f", file, "--name", l.name(), "--yes")
	l.must(operator, changes, "plan", l.name())
	l.must(operator, 0, "apply", l.name(), "--yes")
	l.must(operator, 0, "plan", l.name())
}

// deleteCluster deletes the cluster with the policy for that, as docs/operations/operator-policy.md says.
func (l *topologyLab) deleteCluster(operator caller) {
	l.Helper()
	name := l.name()
	if l.cluster.Spec.CloudProvider.AWS.KMSKeyARN == "" {
		l.attach("operator", "deletion", l.policies(name, "--deletion")[0])
	}

	l.must(operator, 0, "delete", "cluster", name, "--yes", "--destroy-data")
	if out, errs, code := l.slipway(caller{}, "delete", "cluster", name, "--yes"); code != 1 || !strings.Contains(errs, "there is no cluster") {
		l.Errorf("something is left: exit %d\n%s%s", code, out, errs)
	}
}

// isExpected reports whether a policy denies something on purpose, which a command tries and does without, or does not deny it
// in the end.
func (a askedRight) isExpected() bool {
	switch a.Action {
	case "iam:GetAccountAuthorizationDetails": // it saves calls: docs/operations/operator-policy.md
		return true
	case "kms:TagResource": // the policy of a new key allows its first tags
		return strings.HasSuffix(a.Principal.ARN, "/operator")
	case "s3:GetObject": // a reader validates without the Kubernetes API
		return strings.HasSuffix(a.Principal.ARN, "/reader") && strings.Contains(a.Resource, "/pki/private/")
	}

	return false
}

// checkNothingDenied reports what IAM has denied to operators, readers and machines.
func (l *topologyLab) checkNothingDenied() {
	l.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	denied := map[string]bool{}
	functionRole := l.name() + ".dns."
	isDeleting := false // the role of the function, which may still run then

	for _, a := range l.asked {
		if (a.Action == "iam:DeleteRolePolicy" || a.Action == "iam:DeleteRole") && strings.Contains(a.Resource, "/"+functionRole) {
			isDeleting = true
		}

		isLate := isDeleting && strings.Contains(a.Principal.ARN, ":assumed-role/"+functionRole) // a deleted role has no ARN
		if !a.isAllowed && !a.isExpected() && !isLate {
			denied[fmt.Sprintf("%s on %s is denied to %s: %s", a.Action, a.Resource, a.Principal.ARN, a.reason)] = true
		}
	}

	for _, text := range slices.Sorted(maps.Keys(denied)) {
		l.Error(text)
	}

	l.Logf("COUNT rights asked by operator, reader and machines: %d", len(l.asked))
}
