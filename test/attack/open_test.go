// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"strings"
	"testing"
)

// publicAPI is a cluster whose API has a public address at a load balancer, or at its only machine.
const publicAPI = `apiVersion: slipway.dev/v1alpha1
kind: Cluster
metadata: {name: NAME}
spec:
  api:
    loadBalancer: {type: TYPE}
    access: [RANGE]
  networking:
    subnets: [{name: public-a, type: Public, zone: us-east-1a}]
---
apiVersion: slipway.dev/v1alpha1
kind: InstanceGroup
metadata: {name: control-plane}
spec: {role: ControlPlane, minSize: 1}
`

// TestOpenAPIIsAnnounced: the API of a cluster is open to the whole internet only with a warning that names the range,
// for each kind of public address, and also if a change opens it. The changes were seen to open it silently.
func TestOpenAPIIsAnnounced(t *testing.T) {
	l := newLab(t)
	write := func(name, kind, ranges string) string {
		text := strings.NewReplacer("NAME", name, "TYPE", kind, "RANGE", ranges).Replace(publicAPI)
		return l.temporaryFile(name+".yaml", text)
	}
	warned := func(ranges string, args ...string) {
		t.Helper()
		out, errs, code := l.slipway(caller{}, args...)
		if code != 0 {
			t.Fatalf("slipway %s: exit %d\n%s%s", args, code, out, errs)
		}

		if is := strings.Contains(out+errs, "the whole internet ("+ranges+") reaches the Kubernetes API"); is != (ranges != "") {
			t.Errorf("slipway %s: a warning of the range %q is %t\n%s%s", args, ranges, is, out, errs)
		}
	}

	zones := []string{"--zones", "us-east-1a,us-east-1b,us-east-1c", "--yes"}
	warned("0.0.0.0/0", append([]string{"create", "cluster", "wide"}, zones...)...)
	warned("", append([]string{"create", "cluster", "narrow", "--api-access", "198.51.100.0/24"}, zones...)...)
	warned("", append([]string{"create", "cluster", "inside", "--api-loadbalancer-type", "Internal"}, zones...)...)

	for _, kind := range []string{"Public", "ElasticIP"} {
		name := "by-" + strings.ToLower(kind)
		warned("", "create", "-f", write(name, kind, "198.51.100.0/24"), "--yes")
		warned("0.0.0.0/0", "replace", "-f", write(name, kind, "0.0.0.0/0"), "--yes")
		warned("", "replace", "-f", write(name, kind, "198.51.100.0/24"), "--yes")
		warned("0.0.0.0/1, 128.0.0.0/1", "replace", "-f", write(name, kind, "0.0.0.0/1, 128.0.0.0/1"), "--yes")
		warned("0.0.0.0/0", "create", "-f", write(name+"-open", kind, ""), "--yes") // the default
	}
}
