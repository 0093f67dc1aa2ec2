// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	route53types "github.com/aws/aws-sdk-go-v2/service/route53/types"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/region/fault"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// skipIfShort skips a test that waits for many seconds.
func skipIfShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short, since it waits for many seconds")
	}
}

// TestRunLeavesNothing makes a whole run with each topology. It must pass, leave nothing and do what expected.json has.
func TestRunLeavesNothing(t *testing.T) {
	all := map[string]expectedSteps{}
	for _, topology := range []string{topologyHA, topologySingle} {
		l := newLab(t, regiontest.Options{})
		l.env[variableTopology] = topology
		out := l.mustRun(t, exitPassed)
		l.checkEmpty(t, out)
		r, text := l.readReport(t)
		if r.Result != resultPassed || r.Sweep == nil || len(r.Sweep.Scheduled) != 2 {
			t.Errorf("%s: result %s, sweep %+v, want passed and two keys that are deleted later", topology, r.Result, r.Sweep)
		}
		for _, s := range r.Steps {
			want := resultPassed
			if slices.Contains([]string{"validate", "rolling-update", "validate-again"}, s.Name) {
				want = resultSkipped
			}
			if s.Result != want {
				t.Errorf("%s: step %s %s (%s), want %s", topology, s.Name, s.Result, s.Reason, want)
			}
		}
		// The API still lists terminated instances, and keys that are deleted later.
		const index = "it lists no resource of an unknown kind, and "
		if r.Sweep != nil && !strings.HasPrefix(r.Sweep.TagIndex, index) {
			t.Errorf("%s: Resource Groups Tagging API: %s", topology, r.Sweep.TagIndex)
		}
		if r.Cost == nil || r.Cost.UpperBound < r.Cost.Hourly || r.Cost.Hours != 2 {
			t.Errorf("%s: cost %+v", topology, r.Cost)
		}
		for _, secret := range []string{regiontest.AccountID, regiontest.AccessKey} {
			if strings.Contains(text, secret) {
				t.Errorf("%s: the report has %s", topology, secret)
			}
		}
		if !strings.Contains(out, "cost: about") || strings.Index(out, "cost: about") > strings.Index(out, "\napply ") {
			t.Errorf("%s: no cost before apply:\n%s", topology, out)
		}
		all[topology] = summarizeAll(r)
		checkExpected(t, r)
	}
	if *update {
		writeExpected(t, all)
	}
}

// summarizeAll returns what the steps of a run did.
func summarizeAll(r report) expectedSteps {
	out := expectedSteps{}
	for _, s := range r.Steps {
		if sum := summarizeStep(s); len(sum.Calls) > 0 || len(sum.Warnings) > 0 {
			out[s.Name] = sum
		}
	}
	return out
}

// checkExpected checks that each step uses the operations of expected.json. Their numbers depend on how calls
// coincide, so that they may differ.
func checkExpected(t *testing.T, r report) {
	t.Helper()
	if *update {
		return
	}
	want, err := readExpected(r.Environment.Topology)
	if err != nil {
		t.Fatal(err)
	}
	got := summarizeAll(r)
	for _, steps := range []expectedSteps{want, got} {
		for name, s := range steps {
			for operation := range s.Calls {
				s.Calls[operation] = 1
			}
			steps[name] = s
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("differs from expected.json (-want +got); go test ./hack/e2eaws -run TestRunLeavesNothing -update:\n%s", diff)
	}
}

func writeExpected(t *testing.T, all map[string]expectedSteps) {
	t.Helper()
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("expected.json", append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestKilledRunIsSwept kills runs with SIGKILL and sweeps them: in the middle of apply, by the id; between the creation
// of the key of the state store and its alias, by the next run.
func TestKilledRunIsSwept(t *testing.T) {
	l := newLab(t, regiontest.Options{})
	l.actAt("Action=CreateNatGateway", killTree)
	if out, code := l.run(t); code != -1 {
		t.Fatalf("exit code %d, want the end by SIGKILL\n%s", code, out)
	}
	killed := l.runIDs(t)[0]
	if cmp.Equal(l.before, l.region.Inventory(t)) {
		t.Fatal("nothing exists when the run was killed")
	}
	l.checkEmpty(t, l.mustRun(t, exitPassed, "-sweep", killed))

	l.actAt("TrentService.CreateAlias", killTree)
	if out, code := l.run(t); code != -1 {
		t.Fatalf("exit code %d, want the end by SIGKILL\n%s", code, out)
	}
	out := l.mustRun(t, exitPassed)
	if strings.Count(out, ": nothing is left") != 1 {
		t.Errorf("the next run did not sweep the killed one, and only that:\n%s", out)
	}
	l.checkEmpty(t, out)
}

// TestSweepShowsUnknownKinds checks that a resource with the tag of the run, of a kind that the sweep does not know, makes
// the run fail, and that the policies of the state store, of machines and of Karpenter, have the tag.
func TestSweepShowsUnknownKinds(t *testing.T) {
	skipIfShort(t)
	l := newLab(t, regiontest.Options{})
	cfg := l.region.AWSConfig()
	zones := route53.NewFromConfig(cfg)
	var zone *string
	var policies int
	l.actAt("Action=DeleteVpc", func(int) {
		id := l.runIDs(t)[0]
		made, err := zones.CreateHostedZone(t.Context(), &route53.CreateHostedZoneInput{
			Name: aws.String("example.com"), CallerReference: &id,
		})
		if err != nil {
			t.Error(err)
			return
		}
		zone = made.HostedZone.Id
		_, err = zones.ChangeTagsForResource(t.Context(), &route53.ChangeTagsForResourceInput{
			ResourceType: route53types.TagResourceTypeHostedzone,
			ResourceId:   aws.String(strings.TrimPrefix(*zone, "/hostedzone/")),
			AddTags:      []route53types.Tag{{Key: aws.String(runTag), Value: &id}},
		})
		if err != nil {
			t.Error(err)
		}
		a := account{cfg: cfg, endpoint: l.region.URL}
		index := tagIndex{account: a, client: http.DefaultClient, now: time.Now}
		policy := []resourceKind{{arn: "iam:policy"}}
		answer, err := index.findResources(t.Context(), runID(id), policy)
		if err != nil {
			t.Error(err)
		}
		policies = answer.known
	})
	out := l.mustRun(t, exitFailed)
	if policies != 2 {
		t.Errorf("%d policies have the tag of the run, want the two of the state store", policies)
	}
	r, _ := l.readReport(t)
	if r.Sweep == nil || len(r.Sweep.Left) != 1 || !strings.Contains(r.Sweep.Left[0], "hostedzone/") {
		t.Errorf("sweep %+v, want the hosted zone\n%s", r.Sweep, out)
	}
	if _, err := zones.DeleteHostedZone(t.Context(), &route53.DeleteHostedZoneInput{Id: zone}); err != nil {
		t.Fatal(err)
	}
	l.checkEmpty(t, l.mustRun(t, exitPassed, "-sweep", l.runIDs(t)[0]))
}

// TestRunningRunIsNotSwept checks that a run that is alive is left alone, and that a sweep by its id waits for its end.
func TestRunningRunIsNotSwept(t *testing.T) {
	skipIfShort(t)
	l := newLab(t, regiontest.Options{})
	h := harness{
		process:  process{now: time.Now},
		settings: settings{directory: l.env[variableDirectory], region: regiontest.RegionName},
		account:  account{id: regiontest.AccountID, endpoint: l.env["AWS_ENDPOINT_URL"]},
	}
	alive, err := h.createRunDirectory(newRunID(time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	id := string(alive.record.ID)
	command := exec.CommandContext(t.Context(), "sleep", "3") // a command of the run, which outlives it
	command.ExtraFiles = []*os.File{alive.lock}
	if err := command.Start(); err != nil {
		t.Skip("SKIPPED: no program sleep")
	}
	alive.lock.Close()
	out := l.mustRun(t, exitPassed, "-sweep", id)
	if !strings.Contains(out, "run "+id+": waiting for a command") || !strings.Contains(out, "nothing is left") {
		t.Errorf("the sweep did not wait for the run:\n%s", out)
	}
	_ = command.Wait()

	if err := alive.acquireLock(); err != nil {
		t.Fatal(err)
	}
	if err := alive.writeRecord(); err != nil { // not clean again
		t.Fatal(err)
	}
	l.env[variableTimeout] = "1ms" // a new run that does nothing
	if out, _ := l.run(t); !strings.Contains(out, "run "+id+" is still running: it is not swept") {
		t.Errorf("the next run swept one that is alive:\n%s", out)
	}
}

// TestInventoryRemovesEverything kills a run that has created everything. The sweep removes it without slipway and
// without the record of the run, and reports what AWS refuses to delete.
func TestInventoryRemovesEverything(t *testing.T) {
	skipIfShort(t)
	l := newLab(t, regiontest.Options{})
	l.actAt("Action=DeleteAutoScalingGroup", killTree)
	if out, code := l.run(t); code != -1 {
		t.Fatalf("exit code %d, want the end by SIGKILL\n%s", code, out)
	}
	v := newInventory(account{cfg: l.region.AWSConfig(), id: regiontest.AccountID}, runID(l.runIDs(t)[0]))
	if _, err := l.region.Faults.AddRule(fault.Rule{
		Service: "ec2", Action: "DeleteVolume", Count: -1, Effect: fault.EffectFail, Code: "VolumeInUse",
	}); err != nil {
		t.Fatal(err)
	}
	short, stop := context.WithTimeout(t.Context(), 5*time.Second)
	left := v.removeResources(short)
	stop()
	if len(left) == 0 || !strings.Contains(strings.Join(left, "\n"), "VolumeInUse") {
		t.Errorf("left %q, want a volume with its reason", left)
	}
	l.region.Faults.ClearRules()
	if left := v.removeResources(t.Context()); len(left) > 0 {
		t.Errorf("left %q", left)
	}
	l.checkEmpty(t, "")
}

// TestOtherAccountIsRefused checks that nothing is created with credentials of another account or without settings.
func TestOtherAccountIsRefused(t *testing.T) {
	l := newLab(t, regiontest.Options{})
	for _, c := range []struct{ variable, value, want string }{
		{variableAccount, "210987654321", "the credentials belong to account " + regiontest.AccountID},
		{variableAccount, "", variableAccount + ": is not an account id"},
		{variableRegion, "", variableRegion + ": is not set"},
		{variableTimeout, "45", variableTimeout + ` "45": is not a valid time limit`},
	} {
		former := l.env[c.variable]
		l.env[c.variable] = c.value
		if out := l.mustRun(t, exitRefused); !strings.Contains(out, c.want) {
			t.Errorf("%s=%s: %s, want %q", c.variable, c.value, out, c.want)
		}
		l.env[c.variable] = former
	}
	if out := l.mustRun(t, exitRefused, "-sweep", "prod"); !strings.Contains(out, "is not the id of a run") {
		t.Errorf("-sweep prod: %s", out)
	}
	if diff := cmp.Diff(map[string]int{"sts:GetCallerIdentity": 1}, l.region.CallCounts()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// TestTimeLimitDeletes checks that a run whose time is over deletes everything: its NAT gateway takes an hour.
func TestTimeLimitDeletes(t *testing.T) {
	skipIfShort(t)
	l := newLab(t, regiontest.Options{Faults: []fault.Rule{
		{Effect: fault.EffectProvision, Kind: "nat-gateway", Delay: fault.Duration(time.Hour)},
	}})
	l.env[variableTimeout] = "20s" // the steps before the apply take several seconds on a busy computer
	out := l.mustRun(t, exitFailed)
	l.checkEmpty(t, out)
	r, _ := l.readReport(t)
	if s := stepNamed(r, "apply"); s.Result != resultFailed || !strings.Contains(s.Reason, errTimeLimit.Error()) {
		t.Errorf("apply: %s (%s), want the time limit\n%s", s.Result, s.Reason, out)
	}
	if s := stepNamed(r, "delete"); s.Result != resultPassed {
		t.Errorf("delete: %s (%s)\n%s", s.Result, s.Reason, out)
	}
}

// TestSignalDeletes checks that a run that is interrupted deletes everything.
func TestSignalDeletes(t *testing.T) {
	skipIfShort(t)
	l := newLab(t, regiontest.Options{})
	l.actAt("Action=CreateNatGateway", func(pid int) { _ = syscall.Kill(pid, syscall.SIGTERM) })
	out := l.mustRun(t, exitFailed)
	l.checkEmpty(t, out)
	if r, _ := l.readReport(t); stepNamed(r, "apply").Result != resultFailed || stepNamed(r, "delete").Result != resultPassed {
		t.Errorf("apply did not fail, or delete did:\n%s", out)
	}
}
