// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
)

// TestNamedPlacesAreListed: who attaches the policies reads what they allow outside of the cluster, or would allow: an operator
// chooses it in the manifest. Nothing of that is left after it was left out.
func TestNamedPlacesAreListed(t *testing.T) {
	t.Parallel()

	state := []iampolicy.StoreLocation{{Bucket: "state", Prefix: "team"}}
	own := iampolicy.Input{
		Partition:    "aws",
		Account:      "123456789012",
		Cluster:      "demo",
		Stores:       state,
		HasEndpoints: true,
		WarmPools:    true,
		UnknownTypes: true,
		Function:     "slipway-dns-demo",
		FunctionRole: "demo.dns.us-east-1",
	}
	if got := listElsewhere(own, state); len(got) > 0 {
		t.Errorf("a cluster that names nothing of others: %q", got)
	}

	named := own
	named.Stores = slices.Concat(state, []iampolicy.StoreLocation{{Bucket: "payroll"}})
	named.CreatesZones = true
	named.InterfaceEndpoints = true
	named.DNSNames = []string{"www.example.org"}
	named.Issuer = "https://oidc.s3.us-east-1.amazonaws.com/demo"
	named.Discovery = iampolicy.StoreLocation{Bucket: "oidc"}
	named.PeerVPCs = []string{"vpc-2"}
	named.RouteTables = []string{"rtb-1"}
	named.Existing = iampolicy.ExistingResources{
		VPC:             "vpc-1",
		Profiles:        []string{"arn:aws:iam::123456789012:instance-profile/prod"},
		ProfileRoles:    []string{"arn:aws:iam::123456789012:role/prod-admin"},
		ManagedPolicies: []string{"arn:aws:iam::aws:policy/ReadOnlyAccess"},
		Subnets:         []string{"subnet-1"},
		PublicSubnets:   []string{"subnet-1"},
		SecurityGroups:  []string{"sg-1"},
		Addresses:       []string{"eipalloc-1"},
	}

	got := strings.Join(listElsewhere(named, state), "\n")
	for _, want := range []string{
		"role/prod-admin", "policy/ReadOnlyAccess", "vpc-1", "subnet-1", "sg-1", "eipalloc-1", "vpc-2", "rtb-1", "s3://payroll",
		"slipway-machines-payroll", "records of www.example.org", "create hosted zones", "VPC endpoints",
		"oidc-provider/oidc.s3", "s3://oidc",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("nothing about %s in:\n%s", want, got)
		}
	}

	reader := named
	reader.ReadOnly = true
	got = strings.Join(listElsewhere(reader, state), "\n")
	for _, want := range []string{"instance-profile/prod", "s3://payroll", "oidc-provider/oidc.s3", "records of all hosted zones"} {
		if !strings.Contains(got, want) {
			t.Errorf("nothing about %s for a reader in:\n%s", want, got)
		}
	}

	if strings.Contains(got, "change") || strings.Contains(got, "write") || strings.Contains(got, "create") {
		t.Errorf("a reader changes:\n%s", got)
	}

	if limitToCluster(&named, state); !reflect.DeepEqual(named, own) {
		t.Errorf("left are %+v", named)
	}
}
