// SPDX-License-Identifier: Apache-2.0

package ownership_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/ownership"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

const (
	ours   = "aaaaaaaaaaaaaaaa"
	theirs = "bbbbbbbbbbbbbbbb"
)

func vpc(id string) plan.ActualResource {
	tags := awskind.Tags{awskind.TagCluster: "demo"}
	if id != "" {
		tags[awskind.TagClusterID] = id
	}
	return plan.ActualResource{Addr: "vpc/main", ID: "vpc-1", Resource: awskind.VPC{Tags: tags}}
}

func volume(id, token, store string) plan.ActualResource {
	tags := awskind.Tags{awskind.TagClusterID: id, graph.OwnershipTokenTag: token, graph.StateStoreTag: store}
	return plan.ActualResource{Addr: ownership.Bearer, ID: "vol-1", Resource: awskind.Volume{Tags: tags}}
}

func TestCheck(t *testing.T) {
	everything := func(graph.Addr) bool { return true }
	nothing := func(graph.Addr) bool { return false }
	route := plan.ActualResource{ID: "r", Resource: awskind.Route{}}
	bare := plan.ActualResource{Addr: "vpc/main", ID: "vpc-1", Resource: awskind.VPC{}}

	for _, c := range []struct {
		name    string
		owner   ownership.Owner
		have    []plan.ActualResource
		refused string // part of the error; empty: accepted
		hint    string
	}{
		{"nothing exists", ownership.Owner{}, nil, "", ""},
		{"our own", ownership.Owner{ID: ours, Applied: nothing}, []plan.ActualResource{vpc(ours), route}, "", ""},
		{"another id", ownership.Owner{ID: ours, Applied: everything}, []plan.ActualResource{vpc(theirs)}, "with the id " + theirs + "; its state store is not recorded", "another name"},
		{"another id, known store", ownership.Owner{ID: ours}, []plan.ActualResource{vpc(theirs), volume(theirs, "t", "s3://x")}, "its state store is s3://x. ", "--state s3://x,"},
		{"another id, a folder", ownership.Owner{ID: ours}, []plan.ActualResource{volume(theirs, "t", "file:///x at me@host")}, "file:///x at me@host", "on me@host with --state file:///x,"},
		{"we have no such cluster", ownership.Owner{Applied: nothing}, []plan.ActualResource{vpc(theirs)}, "does not have that cluster", "--take-over " + theirs},
		{"another id cannot be forced", ownership.Owner{ID: ours, TakeOver: ours}, []plan.ActualResource{vpc(theirs)}, "with the id " + theirs, ""},
		{"unmarked is no id", ownership.Owner{ID: ours, TakeOver: ownership.Unmarked}, []plan.ActualResource{vpc(theirs)}, "with the id " + theirs, ""},
		{"unmarked and applied", ownership.Owner{ID: ours, Applied: everything}, []plan.ActualResource{vpc(""), bare}, "", ""},
		{"unmarked, never applied", ownership.Owner{ID: ours, Applied: nothing}, []plan.ActualResource{vpc("")}, "has not created, without a cluster id: vpc/main (vpc-1)", "--take-over unmarked"},
		{"without any tag", ownership.Owner{ID: ours, Applied: nothing}, []plan.ActualResource{bare}, "without a cluster id", ""},
		{"unmarked, taken over", ownership.Owner{ID: ours, Applied: nothing, TakeOver: ownership.Unmarked}, []plan.ActualResource{vpc("")}, "", ""},
		{"one of many", ownership.Owner{ID: ours, Applied: nothing}, []plan.ActualResource{vpc(ours), vpc(""), vpc(theirs), vpc(ours)}, "vpc/main (vpc-1), vpc/main (vpc-1)", ""},
		{"our token", ownership.Owner{ID: ours, Tokens: []string{"new", "old"}}, []plan.ActualResource{volume(ours, "new", "s3://x")}, "", ""},
		{"our former token", ownership.Owner{ID: ours, Tokens: []string{"new", "old"}}, []plan.ActualResource{volume(ours, "old", "s3://x")}, "", ""},
		{"no token yet", ownership.Owner{ID: ours}, []plan.ActualResource{volume(ours, "", "")}, "", ""},
		{"a copy's token", ownership.Owner{ID: ours, Store: "s3://y", Tokens: []string{"new", "old"}}, []plan.ActualResource{volume(ours, "other", "s3://x")}, "another copy of the state store, s3://x, has changed cluster demo since s3://y did", "--take-over " + ours},
		{"a token, and we never applied", ownership.Owner{ID: ours}, []plan.ActualResource{volume(ours, "other", "s3://x")}, "another copy", ""},
		{"a copy's token, taken over", ownership.Owner{ID: ours, TakeOver: ours}, []plan.ActualResource{volume(ours, "other", "s3://x")}, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.owner.Cluster = "demo"
			err := c.owner.Check(c.have)
			if (err != nil) != (c.refused != "") || err != nil && !strings.Contains(err.Error(), c.refused) {
				t.Fatalf("got %v, want %q", err, c.refused)
			}
			if hints := diag.Hints(err); err != nil && (len(hints) != 1 || !strings.Contains(hints[0], c.hint)) {
				t.Errorf("hints: %q", hints)
			}
		})
	}
}

func TestErrorsAreTyped(t *testing.T) {
	var many []plan.ActualResource
	for i := range 5 {
		a := vpc(theirs)
		a.ID = fmt.Sprint("vpc-", i)
		many = append(many, a)
	}
	err := ownership.Owner{Cluster: "demo", ID: ours}.Check(many)
	if foreign, ok := errors.AsType[*ownership.ForeignError](err); !ok || len(foreign.Resources) != 5 || !strings.Contains(err.Error(), "(vpc-2) and 2 more") {
		t.Errorf("%v", err)
	}
	err = ownership.Owner{Cluster: "demo", ID: ours}.Check([]plan.ActualResource{volume(ours, "x", "s3://x")})
	if c, ok := errors.AsType[*ownership.CopyError](err); !ok || c.Store != "s3://x" {
		t.Errorf("%v", err)
	}
}

func TestStack(t *testing.T) {
	own := ownership.Owner{Cluster: "demo", ID: ours}
	for _, c := range []struct {
		id      string
		known   bool
		refused bool
	}{
		{ours, false, false}, {theirs, true, true}, {"", true, false}, {"", false, true},
	} {
		err := own.CheckTags(ownership.Resource{Addr: "stack/slipway-demo", ID: "arn", ClusterID: c.id}, c.known)
		if (err != nil) != c.refused {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestLeftovers: what programs in a cluster created has the name of the cluster only.
func TestLeftovers(t *testing.T) {
	found := []plan.ActualResource{{Addr: "volume/leftover:vol-1", ID: "vol-1", Resource: awskind.Volume{}}}
	own := ownership.Owner{Cluster: "demo", ID: ours}
	if err := own.CheckLeftovers(found, true); err != nil {
		t.Error(err)
	}
	if err := own.CheckLeftovers(nil, false); err != nil {
		t.Error(err)
	}
	if err := own.CheckLeftovers(found, false); err == nil || !strings.Contains(err.Error(), "volume/leftover:vol-1") {
		t.Error(err)
	}
	own.TakeOver = ownership.Unmarked
	if err := own.CheckLeftovers(found, false); err != nil {
		t.Error(err)
	}
}
