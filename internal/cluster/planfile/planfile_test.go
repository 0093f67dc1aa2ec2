// SPDX-License-Identifier: Apache-2.0

package planfile_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/cluster/planfile"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// world is all that a plan is made from.
type world struct {
	subnet, vpc awskind.Tags // that AWS has
	zone        string       // that is wanted
	rest        []plan.ActualResource
	file        planfile.File
}

func theWorld() world {
	return world{
		subnet: awskind.Tags{"slipway.dev/cluster": "demo", "cost": "1"}, vpc: awskind.Tags{"slipway.dev/cluster": "demo"}, zone: "us-east-1a",
		file: planfile.File{
			Tool: "v1", CreatedAt: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), CreatedBy: "me@here",
			Identity:  planfile.ClusterIdentity{Cluster: "demo", Account: "1", Partition: "aws", Region: "us-east-1", State: "s3://b"},
			Documents: map[string]string{"demo/cluster.yaml": "1", "demo/instancegroups/a.yaml": "2"},
		},
	}
}

// save makes the file of the plan of w.
func save(t *testing.T, w world) planfile.File {
	t.Helper()
	g := &graph.Graph{}
	vpc := graph.Add(g, "main", awskind.VPC{CIDR: "10.0.0.0/16", Tags: awskind.Tags{"slipway.dev/cluster": "demo"}})
	graph.Add(g, "a", awskind.Subnet{VPC: vpc, CIDR: "10.0.0.0/24", Zone: "us-east-1a", MapPublicIP: true, Tags: awskind.Tags{"slipway.dev/cluster": "demo"}})
	graph.Add(g, "b", awskind.Subnet{VPC: vpc, CIDR: "10.0.1.0/24", Zone: w.zone, Tags: awskind.Tags{"slipway.dev/cluster": "demo"}})
	have := append([]plan.ActualResource{
		{Addr: "vpc/main", ID: "vpc-1", Resource: awskind.VPC{CIDR: "10.0.0.0/16", Tags: w.vpc}},
		{Addr: "subnet/a", ID: "subnet-1", Resource: awskind.Subnet{VPC: graph.UnmanagedRef[awskind.VPC]("vpc-1"), CIDR: "10.0.0.0/24", Zone: "us-east-1a", Tags: w.subnet}},
	}, w.rest...)
	p, _ := plan.Compute(g, have, plan.Options{})
	f := w.file
	f.Actual, f.Desired = p.FingerprintActual(), p.FingerprintDesired()
	doc, err := json.Marshal(p.Document("demo"))
	if err != nil {
		t.Fatal(err)
	}
	f.Plan = doc
	return f
}

func TestStale(t *testing.T) {
	tests := map[string]struct {
		change func(*world)
		want   []string
	}{
		"nothing": {func(*world) {}, nil},
		"a foreign tag": {func(w *world) {
			w.subnet = awskind.Tags{"slipway.dev/cluster": "demo", "cost": "2", "team": "a"}
		}, nil},
		"a tag of a resource that the plan changes": {
			func(w *world) { w.subnet = awskind.Tags{"slipway.dev/cluster": "other", "cost": "1"} },
			[]string{"subnet/a: Tags[slipway.dev/cluster] changed"},
		},
		"a tag of a resource that the plan leaves alone": {
			func(w *world) { w.vpc = awskind.Tags{"slipway.dev/mine": "x"} },
			[]string{"vpc/main: Tags[slipway.dev/cluster] changed", "vpc/main: Tags[slipway.dev/mine] changed"},
		},
		"a resource that is new": {func(w *world) {
			w.rest = []plan.ActualResource{{Addr: "subnet/c", ID: "subnet-3", Resource: awskind.Subnet{CIDR: "10.0.3.0/24"}}}
		}, []string{"subnet/c: is new"}},
		"another tool": {func(w *world) { w.file.Tool = "v2" }, []string{"it was created by slipway v1; this is v2"}},
		"a changed manifest": {
			func(w *world) {
				w.file.Documents = map[string]string{"demo/cluster.yaml": "9", "demo/instancegroups/b.yaml": "2"}
			},
			[]string{"the document demo/cluster.yaml of the state changed", "the document demo/instancegroups/a.yaml of the state was deleted", "the document demo/instancegroups/b.yaml of the state is new"},
		},
		"something else that is wanted": {
			func(w *world) { w.zone = "us-east-1b" },
			[]string{"subnet/b: AvailabilityZone changed, because of another agent, machine image or asset catalogue"},
		},
		"another option": {
			func(w *world) { w.file.DestroyData = true },
			[]string{"its steps do not follow from the manifests and AWS: the file was changed"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			body, err := save(t, theWorld()).Encode()
			if err != nil {
				t.Fatal(err)
			}
			then, err := planfile.Parse(body)
			if err != nil {
				t.Fatal(err)
			}
			w := theWorld()
			tt.change(&w)
			w.file.CreatedAt, w.file.CreatedBy = time.Now(), "you@there" // who looks does not matter
			if diff := cmp.Diff(tt.want, then.StaleReasons(save(t, w))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestForged: a changed plan with a correct digest is rejected: the plan is computed again and
// compared.
func TestForged(t *testing.T) {
	f := save(t, theWorld())
	f.Plan = bytes.Replace(f.Plan, []byte(`"create"`), []byte(`"delete"`), 1)
	body, err := f.Encode()
	if err != nil {
		t.Fatal(err)
	}
	forged, err := planfile.Parse(body)
	if err != nil {
		t.Fatal(err)
	}
	if lines := forged.StaleReasons(save(t, theWorld())); len(lines) == 0 {
		t.Error("a forged plan is taken")
	}
}

func TestElsewhere(t *testing.T) {
	f := theWorld().file
	for _, tt := range []struct {
		change func(*planfile.ClusterIdentity)
		want   string
	}{
		{func(*planfile.ClusterIdentity) {}, ""},
		{func(i *planfile.ClusterIdentity) { i.Cluster = "prod" }, "it is for cluster demo, not prod"},
		{func(i *planfile.ClusterIdentity) { i.Account = "2" }, "it is for account 1, not 2"},
		{func(i *planfile.ClusterIdentity) { i.Partition = "aws-cn" }, "it is for partition aws, not aws-cn"},
		{func(i *planfile.ClusterIdentity) { i.Region = "eu-west-1" }, "it is for region us-east-1, not eu-west-1"},
		{func(i *planfile.ClusterIdentity) { i.Endpoint = "http://x" }, "it is for endpoint of AWS itself, not http://x"},
		{func(i *planfile.ClusterIdentity) { i.State = "s3://c" }, "it is for state store s3://b, not s3://c"},
	} {
		now := f.Identity
		tt.change(&now)
		if got := strings.Join(f.IdentityMismatches(now), "; "); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

// TestDamaged: every byte of a file counts.
func TestDamaged(t *testing.T) {
	body, err := save(t, theWorld()).Encode()
	if err != nil {
		t.Fatal(err)
	}
	for i := range body {
		for _, b := range []byte{body[i] ^ 1, ' '} {
			changed := bytes.Clone(body)
			changed[i] = b
			f, err := planfile.Parse(changed)
			if err != nil {
				continue
			}
			if again, err := f.Encode(); err != nil || !bytes.Equal(again, body) {
				t.Fatalf("byte %d changed from %q to %q is taken", i, body[i], b)
			}
		}
		if i > 0 {
			if _, err := planfile.Parse(body[:i]); err == nil && i < len(body)-1 {
				t.Fatalf("%d of %d bytes are taken", i, len(body))
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	w := theWorld()
	w.file.Plan = json.RawMessage(`{"formatVersion":1,"cluster":"demo","machineStore":[],"steps":[],"summary":{"add":0,"change":0,"destroy":0}}`)
	body, err := w.file.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Add([]byte(`{"format":"slipway-plan","formatVersion":1}`))
	f.Add([]byte(`{"format":"slipway-plan","formatVersion":2}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		file, err := planfile.Parse(body)
		if err != nil {
			return
		}
		again, err := file.Encode()
		if err != nil {
			t.Fatal(err)
		}
		twice, err := planfile.Parse(again)
		if err != nil {
			t.Fatalf("what was written is not read: %v", err)
		}
		if lines := file.StaleReasons(twice); len(lines) > 0 || len(file.IdentityMismatches(twice.Identity)) > 0 {
			t.Fatalf("it is stale at once: %v", lines)
		}
	})
}
