// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// documentFields returns the path of every field of the document, with stars for keys of maps and names of items.
func documentFields(typ reflect.Type, prefix string) []string {
	var out []string
	switch {
	case typ.Kind() == reflect.Struct:
		for i := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			out = append(out, documentFields(typ.Field(i).Type, strings.TrimPrefix(prefix+"."+name, "."))...)
		}
	case typ.Kind() == reflect.Slice && typ.Elem().Kind() == reflect.Struct:
		out = documentFields(typ.Elem(), prefix+".*")
	case typ.Kind() == reflect.Map:
		out = []string{prefix + ".*"}
	default:
		out = []string{prefix}
	}
	return out
}

// TestEveryFieldHasAClass: a field of the node document without a rule would silently need a new machine, and a rule
// without a field is a mistake.
func TestEveryFieldHasAClass(t *testing.T) {
	fields := documentFields(reflect.TypeFor[node.Document](), "")
	if len(fields) < 35 {
		t.Fatalf("only %d fields: %v", len(fields), fields)
	}
	rules := map[string]node.FieldRule{}
	for _, rule := range node.FieldRules() {
		if _, twice := rules[rule.Field]; twice {
			t.Errorf("%s has two rules", rule.Field)
		}
		rules[rule.Field] = rule
		if rule.Reason == "" || (rule.Class == node.ClassRestart) != (len(rule.Restarts) > 0) {
			t.Errorf("incomplete rule %+v", rule)
		}
		for _, c := range rule.Restarts {
			if !slices.Contains(node.RestartOrder(), c) {
				t.Errorf("%s restarts the unknown component %s", rule.Field, c)
			}
		}
		exists := slices.Contains(fields, rule.Field) || strings.HasPrefix(rule.Field, "images.")
		if !exists {
			t.Errorf("the document has no field %s", rule.Field)
		}
	}
	for _, field := range fields {
		if _, ok := rules[field]; !ok {
			t.Errorf("field %s has no class: add it to FieldRules", field)
		}
	}
}

func TestClassOf(t *testing.T) {
	for setting, want := range map[string]node.ChangeClass{
		"kubernetesVersion":                     node.ClassReplace,
		"images.kube-apiserver":                 node.ClassRestart,
		"images.coredns":                        node.ClassLive,
		"kubelet.evictionHard.memory.available": node.ClassRestart,
		"nodeLabels.example.com/team":           node.ClassReplace,
		"files.kubelet.url":                     node.ClassLive,
		"files.kubelet.sha256":                  node.ClassReplace,
		"join.workerRoles.nodes":                node.ClassLive,
		"apiSANs":                               node.ClassLive,
		"surprise":                              node.ClassReplace,
		"apiSANs.more":                          node.ClassReplace,
		"kubelet":                               node.ClassReplace,
	} {
		if got := node.ClassOf(setting).Class; got != want {
			t.Errorf("%s: %s, want %s", setting, got, want)
		}
	}
}

func mustBuild(t testing.TB, group int) node.Document {
	d, err := node.BuildDocument(input(group))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func mustBytes(t interface{ Fatal(...any) }, d node.Document) string {
	body, err := d.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestAdvance(t *testing.T) {
	current := mustBuild(t, 0)
	desired := mustBuild(t, 0)
	desired.Kubelet.EvictionHard = map[string]string{"memory.available": "200Mi"}
	desired.Etcd.HeartbeatIntervalMS = 250
	desired.APISANs = append(desired.APISANs, "api.example.com")
	desired.NodeLabels = map[string]string{"example.com/team": "a"}
	changes, err := node.Compare(current, desired)
	if err != nil {
		t.Fatal(err)
	}
	want := []node.Change{
		{Setting: "apiSANs", Class: node.ClassLive},
		{Setting: "etcd.heartbeatIntervalMS", Class: node.ClassRestart, Restarts: []string{"etcd"}},
		{Setting: "kubelet.evictionHard.memory.available", Class: node.ClassRestart, Restarts: []string{"kubelet"}},
		{Setting: "nodeLabels.example.com/team", Class: node.ClassReplace},
	}
	if diff := cmp.Diff(want, changes); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	next, pending, err := node.Advance(current, desired)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want[3:], pending); diff != "" {
		t.Errorf("pending (-want +got):\n%s", diff)
	}
	partly := desired
	partly.NodeLabels = current.NodeLabels
	if diff := cmp.Diff(mustBytes(t, partly), mustBytes(t, next)); diff != "" {
		t.Errorf("next (-want +got):\n%s", diff)
	}
	if next, pending, err = node.Advance(next, desired); err != nil || len(pending) != 1 || mustBytes(t, next) != mustBytes(t, partly) {
		t.Errorf("a second time: %v, %v", pending, err)
	}
}

// TestVersionChangesWaitForMachines: a machine of the old version must not get settings of the new one.
func TestVersionChangesWaitForMachines(t *testing.T) {
	current := mustBuild(t, 0)
	desired := mustBuild(t, 0)
	desired.KubernetesVersion = "1.99.0"
	desired.Kubelet.EvictionHard = map[string]string{"memory.available": "200Mi"}
	next, pending, err := node.Advance(current, desired)
	if err != nil || len(pending) != 2 || mustBytes(t, next) != mustBytes(t, current) {
		t.Errorf("pending %v, %v", pending, err)
	}
}

// TestAdvanceConverges: with random changes the result differs from the desired document in exactly what is pending,
// and a further step changes nothing.
func TestAdvanceConverges(t *testing.T) {
	base := mustBuild(t, 0)
	rapid.Check(t, func(t *rapid.T) {
		current := randomDocument(t, base, "current")
		desired := randomDocument(t, base, "desired")
		next, pending, err := node.Advance(current, desired)
		if err != nil {
			t.Fatal(err)
		}
		left, err := node.Compare(next, desired)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(pending, left); len(pending)+len(left) > 0 && diff != "" {
			t.Fatalf("pending and what is left (-pending +left):\n%s", diff)
		}
		if len(pending) == 0 && mustBytes(t, next) != mustBytes(t, desired) {
			t.Fatal("nothing is pending, and the document is not the desired one")
		}
		again, _, err := node.Advance(next, desired)
		if err != nil || mustBytes(t, again) != mustBytes(t, next) {
			t.Fatalf("a second step changed the document: %v", err)
		}
	})
}

func randomDocument(t *rapid.T, base node.Document, name string) node.Document {
	d := base
	words := rapid.SampledFrom([]string{"", "a", "b"})
	if v := words.Draw(t, name+" eviction"); v != "" {
		d.Kubelet.EvictionHard = map[string]string{"memory.available": v, "nodefs.available": "1%"}
	}
	if v := words.Draw(t, name+" label"); v != "" {
		d.NodeLabels = map[string]string{"example.com/x.y": v}
	}
	if v := words.Draw(t, name+" image"); v != "" {
		d.Images = maps.Clone(base.Images)
		d.Images["coredns"] = "registry/" + v
		d.Images["kube-scheduler"] = "registry/" + v
	}
	if v := words.Draw(t, name+" url"); v != "" {
		d.Files = slices.Clone(base.Files)
		d.Files[0].URL = "https://mirror/" + v
	}
	if v := words.Draw(t, name+" sum"); v != "" {
		d.Files = slices.Clone(d.Files)
		d.Files[1].SHA256 = strings.Repeat(v, 64)
	}
	if v := words.Draw(t, name+" SAN"); v != "" {
		d.APISANs = []string{v}
	}
	if v := words.Draw(t, name+" role"); v != "" {
		d.Join.WorkerRoles = map[string]string{"nodes": v}
	}
	d.Etcd.HeartbeatIntervalMS = rapid.IntRange(0, 2).Draw(t, name+" heartbeat")
	if rapid.IntRange(0, 9).Draw(t, name+" version") == 0 {
		d.KubernetesVersion = "1.99.0"
	}
	return d
}

// revise returns the revisions of the group nodes with a document.
func revise(former node.Revisions, document string) node.Revisions {
	return node.NewRevisions(node.RevisionsInput{
		Cluster: "demo", Role: "Worker", Former: former, Documents: map[string]string{"nodes": document}, FirstSerial: 7,
	})
}

func TestRevisions(t *testing.T) {
	sum := func(s string) string { return strings.Repeat(s, 64) }
	var r node.Revisions
	for i, step := range []struct {
		document string
		changed  bool
		serial   int64
	}{{"a", true, 7}, {"a", false, 7}, {"b", true, 8}, {"a", true, 9}, {"b", true, 10}} {
		if r.Lacks(map[string]string{"nodes": sum(step.document)}) != step.changed {
			t.Errorf("step %d: changed is not %v", i, step.changed)
		}
		r = revise(r, sum(step.document))
		if got := r.Groups["nodes"]; got.Serial != step.serial || got.Document != sum(step.document) {
			t.Errorf("step %d: %+v", i, got)
		}
	}
	g := r.Groups["nodes"]
	if !g.Knows(sum("a")) || !g.Knows(sum("b")) || g.Knows(sum("c")) {
		t.Errorf("knows %+v", g)
	}
	for i := range 100 {
		r = revise(r, sum(string(rune('A'+i))))
	}
	if n := len(r.Groups["nodes"].Former); n != 50 {
		t.Errorf("%d former documents", n)
	}
}

// TestLostRevisions: machines follow revisions again that were deleted and written anew.
func TestLostRevisions(t *testing.T) {
	got := node.NewRevisions(node.RevisionsInput{
		Cluster: "demo", Role: "Worker", Documents: map[string]string{"nodes": "c"}, FirstSerial: 1000,
		Published: map[string][]string{"nodes": {"a", "b", "c"}, "others": {"d"}},
	})
	want := map[string]node.Revision{"nodes": {Serial: 1000, Document: "c", Former: []string{"a", "b"}}}
	if diff := cmp.Diff(want, got.Groups); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
}

// TestRevisionsAreAuthenticated: machines follow only what the holder of the cluster's CA signed for them.
func TestRevisionsAreAuthenticated(t *testing.T) {
	ca := newCA(t)
	revisions := revise(node.Revisions{}, strings.Repeat("a", 64))
	body, err := revisions.Sign(ca.Key())
	if err != nil {
		t.Fatal(err)
	}
	got, err := node.VerifyRevisions(body, string(ca.CertsPEM()), "demo", "Worker")
	if err != nil || !cmp.Equal(got, revisions) {
		t.Fatalf("got %+v, %v", got, err)
	}
	var parts map[string][]byte
	if err := json.Unmarshal(body, &parts); err != nil {
		t.Fatal(err)
	}
	parts["revisions"] = []byte(strings.Replace(string(parts["revisions"]), `"serial":7`, `"serial":8`, 1))
	forged, err := json.Marshal(parts)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		body    []byte
		ca      string
		cluster string
	}{
		"changed":         {forged, string(ca.CertsPEM()), "demo"},
		"another CA":      {body, string(newCA(t).CertsPEM()), "demo"},
		"another cluster": {body, string(ca.CertsPEM()), "other"},
		"no JSON":         {[]byte("{"), string(ca.CertsPEM()), "demo"},
	} {
		if _, err := node.VerifyRevisions(c.body, c.ca, c.cluster, "Worker"); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := node.VerifyRevisions(body, string(ca.CertsPEM()), "demo", "ControlPlane"); err == nil {
		t.Error("another role: accepted")
	}
}
