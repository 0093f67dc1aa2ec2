// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
)

// attachedCluster is a cluster with a group whose role gets a managed policy.
const attachedCluster = `apiVersion: slipway.dev/v1alpha1
kind: Cluster
metadata: {name: demo}
spec:
  networking:
    subnets: [{name: public-a, type: Public, zone: us-east-1a}]
---
apiVersion: slipway.dev/v1alpha1
kind: InstanceGroup
metadata: {name: control-plane}
spec: {role: ControlPlane, minSize: 1}
---
apiVersion: slipway.dev/v1alpha1
kind: InstanceGroup
metadata: {name: workers}
spec: {role: Worker, iam: {policies: ["arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess"]}}
`

// attachable returns the managed policies that policies of an operator allow attaching.
func attachable(docs []iampolicy.Policy) []string {
	var out []string
	for _, d := range docs {
		for _, s := range d.Statement {
			if slices.Contains(s.Action, "iam:AttachRolePolicy") {
				out = append(out, s.Condition["ArnEquals"]["iam:PolicyARN"]...)
			}
		}
	}

	return out
}

// TestManifestsChooseNoRights: who writes manifests, or only to the bucket, has an administrator attach policies that allow
// more: the manifest names a policy, a role or a network of others. Only an explicit flag allows what it names, and with it the
// manifests must be signed by the cluster's own authority. Before, such policies were printed with a warning alone, and were
// seen to name what somebody had written who could only write to the bucket.
func TestManifestsChooseNoRights(t *testing.T) {
	l := newLab(t)
	l.must(caller{}, 0, "create", "-f", l.temporaryFile("demo.yaml", attachedCluster), "--yes")
	const named = "arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess"
	allowed := []string{"iam", "operator-policy", "demo", "--allow-existing", "-o", "json"}

	_, errs, _ := l.slipway(caller{}, "iam", "operator-policy", "demo")
	if got := attachable(l.policies("demo")); len(got) > 0 || !strings.Contains(errs, "left out: operators may not attach "+named) {
		t.Errorf("without the flag, operators may attach %q:\n%s", got, errs)
	}

	_, errs, _ = l.slipway(caller{}, allowed...)
	if got := attachable(l.policies("demo", "--allow-existing")); !slices.Equal(got, []string{named}) || !strings.Contains(errs, "warning: operators may attach "+named) {
		t.Errorf("with the flag, operators may attach %q:\n%s", got, errs)
	}

	w := l.writer()
	restore := w.edit("instancegroups/workers.yaml", "AmazonS3ReadOnlyAccess", "AdministratorAccess")
	l.refused("a manifest that nobody signed", caller{}, []string{"iam", "operator-policy", "demo"}, unsigned)
	l.refused("a manifest that nobody signed", caller{}, allowed, unsigned)

	signature := w.read("signature.json")
	w.remove("signature.json")
	l.refused("a deleted signature", caller{}, allowed, "demo/signature.json does not exist", unsigned)
	l.refused("a deleted signature", caller{}, []string{"iam", "operator-policy", "demo"}, "demo/signature.json does not exist", unsigned)

	w.put("signature.json", signature)
	l.forgeEverything() // the manifest is still the attacker's
	l.refused("the signature of an attacker", caller{}, allowed, "the key does not match the first certificate")
	if got := attachable(l.policies("demo")); len(got) > 0 {
		t.Errorf("with the signature of an attacker, operators may attach %q", got)
	}

	restore()
	l.refused("a cluster that does not exist", caller{}, []string{"iam", "operator-policy", "other", "--allow-existing"}, "there is no cluster")
}
