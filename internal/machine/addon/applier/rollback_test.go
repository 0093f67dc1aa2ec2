// SPDX-License-Identifier: Apache-2.0

package applier_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/addon/applier"
)

// rollBack returns an add-on to a revision with a new applier.
func (f *fixture) rollBack(name string, number int) applier.Revision {
	f.t.Helper()
	a, _, _ := f.applier(-1, f.makeHealthy)
	plan, target, err := a.PlanRollback(f.t.Context(), name, number)
	if err == nil {
		_, err = a.Apply(f.t.Context(), plan)
	}
	if err != nil {
		f.t.Fatal(err)
	}

	return target
}

// history returns the revisions of an add-on as NUMBER VERSION, with * for the current one and <NUMBER for a rollback.
func (f *fixture) history(name string) []string {
	f.t.Helper()
	a, _, _ := f.applier(-1, nil)
	revisions, err := a.Revisions(f.t.Context(), f.inventory(name))
	if err != nil {
		f.t.Fatal(err)
	}
	var out []string
	for _, r := range revisions {
		text := fmt.Sprintf("%d %s", r.Number, r.Version)
		if r.RollbackTo > 0 {
			text += fmt.Sprintf(" <%d", r.RollbackTo)
		}
		if r.TooLarge {
			text += " large"
		}
		if r.Current {
			text += " *"
		}
		out = append(out, text)
	}

	return out
}

// configMapsOf returns the ConfigMaps of add-ons in a namespace, with their values.
func (f *fixture) configMapsOf(namespace string) []string {
	f.t.Helper()
	list, err := f.client.Resource(configMaps).Namespace(namespace).List(f.t.Context(), metav1.ListOptions{LabelSelector: "slipway.dev/addon"})
	if err != nil {
		f.t.Fatal(err)
	}
	var out []string
	for _, o := range list.Items {
		data, _ := o.Object["data"].(map[string]any)
		out = append(out, fmt.Sprintf("%s=%s", o.GetName(), data["key"]))
	}
	slices.Sort(out)

	return out
}

func checkRollback(f *fixture) {
	addon := func(version string) v1alpha1.Addon {
		return v1alpha1.Addon{Name: "back", Version: version, Timeout: "6s"}
	}
	one := release(f.t, addon("1.0.0"), 1, namespace("back")+configMap("back", "changes", "1")+configMap("back", "leaves", "1"))
	two := release(f.t, addon("2.0.0"), 1, namespace("back")+configMap("back", "changes", "2")+configMap("back", "new", "1"))
	bad := release(f.t, addon("3.0.0"), 1, namespace("back")+configMap("back", "changes", "3")+deployment("back", "broken", 1))
	f.apply(one)
	a, _, _ := f.applier(-1, f.makeHealthy)
	if _, _, err := a.PlanRollback(f.t.Context(), "back", 0); err == nil || !strings.Contains(err.Error(), "add-on back has no revision before the current one") {
		f.t.Errorf("got %v", err)
	}
	f.apply(two)
	f.apply(two)
	if diff := cmp.Diff([]string{"1 1.0.0", "2 2.0.0 *"}, f.history("back")); diff != "" {
		f.t.Error(diff)
	}
	f.rollBack("back", 0)
	if diff := cmp.Diff([]string{"changes=1", "leaves=1"}, f.configMapsOf("back")); diff != "" {
		f.t.Error(diff)
	}
	if diff := cmp.Diff([]string{"1 1.0.0", "2 2.0.0", "3 1.0.0 <1 *"}, f.history("back")); diff != "" {
		f.t.Error(diff)
	}
	if again, _, err := a.PlanRollback(f.t.Context(), "back", 1); err != nil || !again.IsEmpty() {
		f.t.Errorf("a return to what the cluster has: %+v, %v", again, err)
	}

	// After an apply that failed, the last version that was healthy.
	plan, err := a.Plan(f.t.Context(), "test", []applier.Release{bad})
	if err == nil {
		_, err = a.Apply(f.t.Context(), plan)
	}
	if err == nil || !strings.Contains(err.Error(), "Deployment back/broken is not healthy") {
		f.t.Fatal(err)
	}
	if target := f.rollBack("back", 0); target.Number != 3 {
		f.t.Errorf("after a failure it returned to revision %d", target.Number)
	}
	if i := f.inventory("back"); i.State != applier.Ready || i.Version != "1.0.0" || i.Revision != 3 || i.RollbackTo != 0 {
		f.t.Errorf("%+v", i)
	}
	if got := f.configMapsOf("back"); !slices.Equal(got, []string{"changes=1", "leaves=1"}) {
		f.t.Error(got)
	}
	for number, want := range map[int]string{99: "add-on back has no revision 99", -1: ""} {
		if _, _, err := a.PlanRollback(f.t.Context(), "back", number); want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			f.t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, _, err := a.PlanRollback(f.t.Context(), "none", 0); err == nil || !strings.Contains(err.Error(), "the cluster has no add-on none") {
		f.t.Errorf("got %v", err)
	}
	checkRollbackOfMoved(f, one)
	checkHistoryLimits(f)
}

// checkRollbackOfMoved: a rollback takes no object of another add-on of the channel.
func checkRollbackOfMoved(f *fixture, one applier.Release) {
	other := v1alpha1.Addon{Name: "back-other", Version: "1.0.0"}
	rest := release(f.t, v1alpha1.Addon{Name: "back", Version: "4.0.0"}, 1, namespace("back")+configMap("back", "changes", "4"))
	f.apply(rest, release(f.t, other, 1, configMap("back", "leaves", "4")))
	a, counter, _ := f.applier(-1, nil)
	_, _, err := a.PlanRollback(f.t.Context(), one.Addon.Name, 0)
	if err == nil || !strings.Contains(err.Error(), "ConfigMap back/leaves belongs to add-on back-other") || counter.writes > 0 {
		f.t.Errorf("got %v", err)
	}
}

// checkHistoryLimits: old revisions are deleted, one that is too large is recorded without objects, and none is left after
// the add-on's deletion.
func checkHistoryLimits(f *fixture) {
	for n := range 14 {
		f.apply(release(f.t, v1alpha1.Addon{Name: "long", Version: fmt.Sprintf("%d.0.0", n+1)}, 1, configMap("default", "long", strconv.Itoa(n))))
	}
	got := f.history("long")
	if len(got) != 11 || got[0] != "4 4.0.0" || got[10] != "14 14.0.0 *" {
		f.t.Errorf("%q", got)
	}
	var noise strings.Builder
	state := uint64(1)
	for noise.Len() < 900_000 {
		state = state*6364136223846793005 + 1442695040888963407
		fmt.Fprintf(&noise, "%016x", state)
	}
	large := configMap("default", "large-1", noise.String()) + configMap("default", "large-2", "x"+noise.String()[1000:]) +
		configMap("default", "large-3", strings.ToUpper(noise.String())) + configMap("default", "large-4", "y"+strings.ReplaceAll(noise.String(), "a", "b"))
	f.apply(release(f.t, v1alpha1.Addon{Name: "long", Version: "15.0.0"}, 1, large))
	f.apply(release(f.t, v1alpha1.Addon{Name: "long", Version: "16.0.0"}, 1, configMap("default", "long", "16")))
	if got := f.history("long"); got[len(got)-2] != "15 15.0.0 large" {
		f.t.Errorf("%q", got)
	}
	a, _, _ := f.applier(-1, nil)
	if _, _, err := a.PlanRollback(f.t.Context(), "long", 15); err == nil || !strings.Contains(err.Error(), "were too large to be kept") {
		f.t.Errorf("got %v", err)
	}
	if _, target, err := a.PlanRollback(f.t.Context(), "long", 0); err != nil || target.Number != 14 {
		f.t.Errorf("returns to %d, %v", target.Number, err)
	}
	all, err := a.Inventories(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	deletions, err := a.PlanDeletion(all, []string{"long"})
	if err == nil {
		err = a.Delete(f.t.Context(), deletions[0])
	}
	if err != nil {
		f.t.Fatal(err)
	}
	revisions, err := a.Revisions(f.t.Context(), applier.Inventory{Name: "long", Revision: 99})
	if err != nil || len(revisions) > 0 {
		f.t.Errorf("after its deletion: %+v, %v", revisions, err)
	}
}

// checkRollbackKilled rolls back again and again, killed before or after each write, and runs the same command again.
func checkRollbackKilled(f *fixture) {
	for _, answerLost := range []bool{false, true} {
		checkRollbackKilledAt(f, answerLost)
	}
}

func checkRollbackKilledAt(f *fixture, answerLost bool) {
	before := release(f.t, v1alpha1.Addon{Name: "undo", Version: "1.0.0"}, 1,
		namespace("undo")+configMap("undo", "same", "1")+configMap("undo", "changes", "1")+configMap("undo", "leaves-1", "1")+
			configMap("undo", "leaves-2", "1")+deployment("undo", "web", 1))
	after := release(f.t, v1alpha1.Addon{Name: "undo", Version: "2.0.0"}, 1,
		namespace("undo")+configMap("undo", "same", "1")+configMap("undo", "changes", "2")+configMap("undo", "new-1", "1")+
			configMap("undo", "new-2", "1")+deployment("undo", "web", 2))
	interrupted := 0
	for n := 0; ; n++ {
		f.apply(before)
		f.apply(after)
		a, counter, _ := f.applier(n, f.makeHealthy)
		counter.answerLost = answerLost
		plan, target, err := a.PlanRollback(f.t.Context(), "undo", 0)
		if err != nil || target.Version != "1.0.0" {
			f.t.Fatalf("%+v, %v", target, err)
		}
		_, err = a.Apply(f.t.Context(), plan)
		if !counter.killed {
			if err != nil {
				f.t.Fatal(err)
			}
			break
		}
		interrupted++
		number := 0
		if answerLost { // the last write may have ended the rollback: a number makes the rerun do nothing then
			number = target.Number
		}
		f.rollBack("undo", number)
		want := []string{"changes=1", "leaves-1=1", "leaves-2=1", "same=1"}
		if diff := cmp.Diff(want, f.configMapsOf("undo")); diff != "" {
			f.t.Errorf("killed after %d writes: %s", n, diff)
		}
		if i := f.inventory("undo"); i.State != applier.Ready || i.Version != "1.0.0" || i.RollbackTo != 0 || len(i.Objects) != 6 {
			f.t.Errorf("killed after %d writes: %+v", n, i)
		}
		if history := f.history("undo"); !strings.HasSuffix(history[len(history)-1], "*") || len(history) > 11 {
			f.t.Errorf("killed after %d writes: %q", n, history)
		}
	}
	if interrupted != 10 { // 2 inventories, 2 creations, 2 updates, 2 deletions, a new revision and the deletion of an old one
		f.t.Errorf("%d interruptions, want 10", interrupted)
	}
}
