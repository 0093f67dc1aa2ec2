// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
	"github.com/slipway-k8s/slipway/internal/region/authz"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

const appliedKey = "demo/applied.json"

// changeTrace collects the calls with which commands change AWS.
type changeTrace struct {
	mu      sync.Mutex
	changes map[string]bool
}

// note remembers a call that IAM allowed and that changes something. Objects of the store and the use of keys are not AWS's
// resources.
func (c *changeTrace) note(r authz.Request, d authz.Decision) {
	service, operation, _ := strings.Cut(r.Action, ":")
	isRead := slices.ContainsFunc([]string{"Describe", "Get", "List", "Head", "Simulate"}, func(prefix string) bool {
		return strings.HasPrefix(operation, prefix)
	})
	isObject := service == "s3" && strings.Contains(r.Resource, "/")
	isKeyUse := r.Action == "kms:Decrypt" || strings.HasPrefix(r.Action, "kms:GenerateDataKey")
	if !d.Allowed || isRead || isObject || isKeyUse {
		return
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes[r.Action+" "+r.Resource] = true
}

// take returns what was collected since the last time, sorted.
func (c *changeTrace) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := slices.Sorted(maps.Keys(c.changes))
	c.changes = map[string]bool{}

	return out
}

// appliedForgeries change the record of what was applied last in the ways that an attacker has.
func appliedForgeries() map[string]func(record map[string]any) {
	return map[string]func(map[string]any){
		"nothing was applied": func(record map[string]any) { record["resources"] = []any{} },
		"another value of everything": func(record map[string]any) {
			for _, r := range resourcesOf(record) {
				forgeValues(r["properties"])
			}
		},
		"more resources": func(record map[string]any) {
			var more []any
			for _, r := range resourcesOf(record) {
				kind, _, _ := strings.Cut(r["address"].(string), "/")
				more = append(more, map[string]any{
					"address": kind + "/evil", "kind": r["kind"], "properties": r["properties"],
				})
			}

			record["resources"] = append(record["resources"].([]any), more...)
		},
		"attempts at everything": func(record map[string]any) {
			steps := map[string]any{}
			for _, r := range resourcesOf(record) {
				steps[r["address"].(string)] = "delete"
			}

			record["attempts"] = []any{map[string]any{"token": 1, "steps": steps}}
		},
		"other documents and objects": func(record map[string]any) {
			record["documents"] = map[string]any{"demo/cluster.yaml": strings.Repeat("0", 64)}
			record["objects"] = []any{"demo/machine/worker/evil", "demo/cluster.yaml", "other/cluster.yaml"}
			record["machineStore"] = stateURL + "/evil"
		},
		"no manifests":    func(record map[string]any) { record["manifests"], record["attempted"] = "", "" },
		"other manifests": func(record map[string]any) { forgeManifests(record, "t3.large", "t3.nano") },
		"of another network": func(record map[string]any) {
			forgeManifests(record, "10.80.0.0/16", "10.81.0.0/16")
		},
		"attempted manifests": func(record map[string]any) { record["attempted"] = record["manifests"] },
	}
}

// forgeManifests changes the manifests of a record.
func forgeManifests(record map[string]any, old, changed string) {
	record["manifests"] = strings.ReplaceAll(record["manifests"].(string), old, changed)
}

// resourcesOf returns the resources of a record.
func resourcesOf(record map[string]any) []map[string]any {
	var out []map[string]any
	for _, r := range record["resources"].([]any) {
		out = append(out, r.(map[string]any))
	}

	return out
}

// forgeValues changes each value below v.
func forgeValues(v any) {
	switch v := v.(type) {
	case []any:
		for _, one := range v {
			forgeValues(one)
		}
	case map[string]any:
		for key, value := range v {
			switch value := value.(type) {
			case string:
				v[key] = value + "evil"
			case bool:
				v[key] = !value
			case float64:
				v[key] = value + 1
			default:
				forgeValues(value)
			}
		}
	}
}

// TestForgedAppliedChangesNoApply: who writes what was applied last, which nobody signs, has no apply do anything else than it
// does with the genuine record, which puts back what others have changed in AWS: it makes the same calls, or none since the
// record blocks it. The plan shows the same steps. No attack: it shows what the accepted risk is.
func TestForgedAppliedChangesNoApply(t *testing.T) {
	trace := &changeTrace{changes: map[string]bool{}}
	l := newLabWith(t, regiontest.Options{TraceAuthorization: trace.note})
	l.must(caller{}, 0, "state", "init", "--yes")
	l.createCluster()
	operator := l.user("administrator", []iampolicy.Policy{{Version: "2012-10-17", Statement: []iampolicy.Statement{
		{Sid: "All", Effect: "Allow", Action: []string{"*"}, Resource: []string{"*"}}, // IAM does not ask about the account's root
	}}})
	vpc := l.vpcOf("demo")
	l.switchOffHostnames(vpc)
	wantSteps := l.planSteps()
	trace.take()
	l.must(operator, 0, "apply", "demo", "--yes")
	want := trace.take()
	if len(want) == 0 || !strings.Contains(wantSteps, "EnableDnsHostnames") {
		t.Fatalf("the genuine record: changes %q, plan %s", want, wantSteps)
	}

	blocked := 0
	for name, forge := range appliedForgeries() {
		l.switchOffHostnames(vpc)
		genuine := l.readState(appliedKey)
		forged := l.forgeRecord(name, genuine, forge)
		l.writeState(appliedKey, forged)
		trace.take()

		if l.isBlocked(operator) {
			blocked++
			if got := trace.take(); len(got) > 0 {
				t.Errorf("%s: an apply that was refused made changes: %q", name, got)
			}

			l.writeState(appliedKey, genuine)
		}

		if steps := l.planSteps(); steps != wantSteps {
			t.Errorf("%s: the plan has other steps:\n%s\nwithout the forgery:\n%s", name, steps, wantSteps)
		}

		trace.take()
		l.must(operator, 0, "apply", "demo", "--yes")
		if got := trace.take(); !slices.Equal(got, want) {
			t.Errorf("%s: the apply made the calls\n%q, without the forgery\n%q", name, got, want)
		}

		l.must(caller{}, 0, "plan", "demo")
		l.must(caller{}, 0, "drift", "demo")
	}

	if blocked != 1 {
		t.Errorf("%d forged records block an apply, want the one of another network", blocked)
	}

	t.Logf("COUNT forged records of the last apply: %d, of which %d block an apply", len(appliedForgeries()), blocked)
}

// forgeRecord returns a record with a forgery.
func (l *lab) forgeRecord(name string, genuine []byte, forge func(map[string]any)) []byte {
	l.Helper()
	var record, forged map[string]any
	l.check(json.Unmarshal(genuine, &record))
	l.check(json.Unmarshal(genuine, &forged))
	forge(forged)
	if reflect.DeepEqual(record, forged) {
		l.Fatalf("%s: the record has nothing of that", name)
	}

	body, err := json.Marshal(forged)
	l.check(err)

	return body
}

// isBlocked reports whether the record keeps plans and applies from beginning.
func (l *lab) isBlocked(as caller) bool {
	l.Helper()
	_, _, code := l.slipway(caller{}, "plan", "demo")
	if code != 1 {
		return false
	}

	if _, errs, code := l.slipway(as, "apply", "demo", "--yes"); code != 1 {
		l.Errorf("a plan is blocked and an apply is not: exit %d\n%s", code, errs)
	}

	return true
}

// planSteps returns the steps of the plan as JSON.
func (l *lab) planSteps() string {
	l.Helper()
	var document struct{ Steps json.RawMessage }
	l.check(json.Unmarshal([]byte(l.must(caller{}, 2, "plan", "demo", "-o", "json")), &document))

	return string(document.Steps)
}

// vpcOf returns the id of the VPC of a cluster.
func (l *lab) vpcOf(cluster string) string {
	l.Helper()
	out, err := ec2.NewFromConfig(l.config(caller{})).DescribeVpcs(l.Context(), &ec2.DescribeVpcsInput{Filters: []types.Filter{
		{Name: sdk.String("tag:slipway.dev/cluster"), Values: []string{cluster}},
	}})
	l.check(err)
	if len(out.Vpcs) != 1 {
		l.Fatalf("the cluster has %d VPCs", len(out.Vpcs))
	}

	return *out.Vpcs[0].VpcId
}

// switchOffHostnames changes the VPC as somebody else than Slipway.
func (l *lab) switchOffHostnames(vpc string) {
	l.Helper()
	_, err := ec2.NewFromConfig(l.config(caller{})).ModifyVpcAttribute(l.Context(), &ec2.ModifyVpcAttributeInput{
		VpcId: &vpc, EnableDnsHostnames: &types.AttributeBooleanValue{Value: sdk.Bool(false)},
	})
	l.check(err)
}
