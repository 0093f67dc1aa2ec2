// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
)

// TestExistingResourcesAreNamed: who attaches the policies reads what of others they allow, or would allow: an operator
// chooses it in the manifest. Only an explicit flag allows it.
func TestExistingResourcesAreNamed(t *testing.T) {
	t.Parallel()

	named := iampolicy.Input{
		Cluster: "demo",
		Existing: iampolicy.ExistingResources{
			VPC:             "vpc-1",
			ProfileRoles:    []string{"arn:aws:iam::123456789012:role/prod-admin"},
			ManagedPolicies: []string{"arn:aws:iam::aws:policy/ReadOnlyAccess"},
			Subnets:         []string{"subnet-1"},
			SecurityGroups:  []string{"sg-1"},
			Addresses:       []string{"eipalloc-1"},
		},
		PeerVPCs:    []string{"vpc-2"},
		RouteTables: []string{"rtb-1"},
	}

	for _, allowed := range []bool{false, true} {
		var out bytes.Buffer
		a := &app{Env: Env{Stderr: newScreen(&out)}}
		if limitExisting(a, iampolicy.Input{}, allowed); out.Len() > 0 {
			t.Errorf("a cluster without resources of others: %s", out.String())
		}

		got := limitExisting(a, named, allowed)
		for _, want := range []string{
			"role/prod-admin", "policy/ReadOnlyAccess", "vpc-1", "subnet-1", "sg-1", "eipalloc-1", "vpc-2", "rtb-1",
		} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("allowed %t: nothing about %s in:\n%s", allowed, want, out.String())
			}
		}

		if tells := strings.Contains(out.String(), "--allow-existing"); tells == allowed {
			t.Errorf("allowed %t: the flag is named: %t", allowed, tells)
		}

		want := iampolicy.Input{Cluster: "demo"}
		if allowed {
			want = named
		}

		if !reflect.DeepEqual(got, want) {
			t.Errorf("allowed %t: %+v", allowed, got)
		}
	}
}
