// SPDX-License-Identifier: Apache-2.0

package discovery_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/slipway-k8s/slipway/internal/machine/discovery"
)

// account stands for EC2 and Route 53. It is not safe for concurrent use.
type account struct {
	machines []discovery.Machine
	volumes  map[string]string // the instance that has a slot's volume, by slot
	records  map[string]discovery.Record
	changes  int                 // batches that were made
	ended    []discovery.Machine // that do not run any more, but are shown
	fail     error               // returned by every call
	meantime func()              // runs once before the next batch
	// meantimeAfter runs once after the next batch.
	meantimeAfter func()
}

func newAccount() *account {
	return &account{volumes: map[string]string{}, records: map[string]discovery.Record{}}
}

func recordKey(r discovery.Record) string { return r.Name + " " + r.Type }

func (a *account) DescribeInstances(_ context.Context, in *ec2.DescribeInstancesInput, _ ...func(*ec2.Options)) (*ec2.DescribeInstancesOutput, error) {
	if a.fail != nil {
		return nil, a.fail
	}

	shown := a.shown(in)

	// Two pages, to see that all are read.
	half := len(shown) / 2
	page := shown[half:]
	out := &ec2.DescribeInstancesOutput{}
	if in.NextToken == nil {
		page = shown[:half]
		out.NextToken = aws.String("next")
	}

	for _, m := range page {
		out.Reservations = append(out.Reservations, ec2types.Reservation{Instances: []ec2types.Instance{{
			InstanceId:       aws.String(m.ID),
			PrivateIpAddress: aws.String(m.Address),
			LaunchTime:       aws.Time(m.Launched),
			Tags:             []ec2types.Tag{{Key: aws.String("slipway.dev/etcd-slot"), Value: aws.String(m.Slot)}},
		}}})
	}

	return out, nil
}

// shown returns the machines that have the states and ids of the request's filters.
func (a *account) shown(in *ec2.DescribeInstancesInput) []discovery.Machine {
	var states, ids []string
	for _, f := range in.Filters {
		switch aws.ToString(f.Name) {
		case "instance-state-name":
			states = f.Values
		case "instance-id":
			ids = f.Values
		}
	}

	var out []discovery.Machine
	if slices.Contains(states, "running") {
		out = append(out, a.machines...)
	}

	if slices.Contains(states, "terminated") {
		out = append(out, a.ended...)
	}

	return slices.DeleteFunc(out, func(m discovery.Machine) bool { return ids != nil && !slices.Contains(ids, m.ID) })
}

func (a *account) DescribeVolumes(context.Context, *ec2.DescribeVolumesInput, ...func(*ec2.Options)) (*ec2.DescribeVolumesOutput, error) {
	out := &ec2.DescribeVolumesOutput{}
	for slot, id := range a.volumes {
		out.Volumes = append(out.Volumes, ec2types.Volume{
			Tags:        []ec2types.Tag{{Key: aws.String("slipway.dev/etcd-slot"), Value: &slot}},
			Attachments: []ec2types.VolumeAttachment{{InstanceId: &id, State: ec2types.VolumeAttachmentStateAttached}},
		})
	}

	return out, a.fail
}

func (a *account) ListResourceRecordSets(_ context.Context, in *route53.ListResourceRecordSetsInput, _ ...func(*route53.Options)) (*route53.ListResourceRecordSetsOutput, error) {
	out := &route53.ListResourceRecordSetsOutput{}
	start := aws.ToString(in.StartRecordName) + " " + string(in.StartRecordType)
	for _, key := range slices.Sorted(maps.Keys(a.records)) {
		if in.StartRecordName != nil && key < start {
			continue
		}

		r := a.records[key]
		if len(out.ResourceRecordSets) == 2 { // a small page
			out.IsTruncated = true
			out.NextRecordName = &r.Name
			out.NextRecordType = r53types.RRType(r.Type)

			break
		}

		set := r53types.ResourceRecordSet{
			Name: aws.String(r.Name + "."),
			Type: r53types.RRType(r.Type),
			TTL:  &r.TTL,
		}
		for _, v := range r.Values {
			set.ResourceRecords = append(set.ResourceRecords, r53types.ResourceRecord{Value: &v})
		}

		out.ResourceRecordSets = append(out.ResourceRecordSets, set)
	}

	return out, a.fail
}

func (a *account) ChangeResourceRecordSets(_ context.Context, in *route53.ChangeResourceRecordSetsInput, _ ...func(*route53.Options)) (*route53.ChangeResourceRecordSetsOutput, error) {
	if meantime := a.meantime; meantime != nil {
		a.meantime = nil
		meantime()
	}

	after := maps.Clone(a.records)
	for _, c := range in.ChangeBatch.Changes {
		r := discovery.Record{
			Name: aws.ToString(c.ResourceRecordSet.Name),
			Type: string(c.ResourceRecordSet.Type),
			TTL:  aws.ToInt64(c.ResourceRecordSet.TTL),
		}
		for _, v := range c.ResourceRecordSet.ResourceRecords {
			r.Values = append(r.Values, aws.ToString(v.Value))
		}

		if c.Action == r53types.ChangeActionUpsert {
			after[recordKey(r)] = r
			continue
		}

		if !cmp.Equal(after[recordKey(r)], r) {
			return nil, &smithy.GenericAPIError{Code: "InvalidChangeBatch", Message: "the record is not there"}
		}

		delete(after, recordKey(r))
	}

	a.records = after
	a.changes++

	if meantime := a.meantimeAfter; meantime != nil {
		a.meantimeAfter = nil
		meantime()
	}

	return &route53.ChangeResourceRecordSetsOutput{}, nil
}

func (a *account) function(log *bytes.Buffer) discovery.Function {
	return discovery.Function{
		Settings:  discovery.Settings{Cluster: "demo", ClusterID: "0123", Zone: "Z1"},
		Instances: a,
		Records:   a,
		HTTP:      http.DefaultClient,
		Log:       slog.New(slog.NewTextHandler(log, nil)),
	}
}

func (a *account) put(records ...discovery.Record) {
	for _, r := range records {
		a.records[recordKey(r)] = r
	}
}

func TestHandleIsIdempotent(t *testing.T) {
	t.Parallel()

	var log bytes.Buffer
	a := newAccount()
	a.machines = []discovery.Machine{machine("i-1", "a", "10.0.0.1", 1), machine("i-2", "b", "10.0.0.2", 1), machine("i-3", "c", "10.0.0.3", 1)}
	for i, want := range []discovery.Result{{Machines: 3, Changes: 5}, {Machines: 3}} {
		if have, err := a.function(&log).Handle(t.Context(), []byte(launchEvent)); err != nil || have != want {
			t.Errorf("run %d: %+v, %v; want %+v", i, have, err, want)
		}
	}

	if a.changes != 1 || len(a.records) != 5 {
		t.Errorf("%d batches made %d records, want 1 and 5", a.changes, len(a.records))
	}

	if want := `event="EC2 Instance Launch Successful" group=control-plane-a.demo instance=i-1 machines=3 changes=5`; !strings.Contains(log.String(), want) {
		t.Errorf("the log lacks %s:\n%s", want, &log)
	}
}

// TestHandleWaitsForWhatHappened: EC2 shows a launch or a termination only some time after Auto Scaling's event, which can
// be the last one for a long time.
func TestHandleWaitsForWhatHappened(t *testing.T) {
	t.Parallel()

	other := machine("i-2", "b", "10.0.0.2", 1)
	both := []discovery.Machine{machine("i-1", "a", "10.0.0.1", 1), other}
	for name, c := range map[string]struct {
		event         string
		before, after []discovery.Machine
	}{
		"launch":      {launchEvent, []discovery.Machine{other}, both},
		"termination": {launchNotification, both, []discovery.Machine{other}},
	} {
		a := newAccount()
		a.machines = c.before
		f := a.function(&bytes.Buffer{})
		pauses := 0
		f.Wait = func(context.Context, time.Duration) error {
			if pauses++; pauses == 3 {
				a.machines = c.after
			}

			return nil
		}

		have, err := f.Handle(t.Context(), []byte(c.event))
		if err != nil || have.Machines != len(c.after) || pauses != 3 {
			t.Errorf("%s: %+v, %v after %d pauses; want %d machines after 3", name, have, err, pauses, len(c.after))
		}

		if have := len(a.records); have != len(c.after)+2 {
			t.Errorf("%s: %d records for %d machines and 2 services", name, have, len(c.after))
		}
	}
}

// TestHandleDoesNotWaitForever: a machine that was launched may be gone before the function looks.
func TestHandleDoesNotWaitForever(t *testing.T) {
	t.Parallel()

	var log bytes.Buffer
	a := newAccount()
	a.machines = []discovery.Machine{machine("i-2", "b", "10.0.0.2", 1)}
	f := a.function(&log)
	waited := time.Duration(0)
	f.Wait = func(_ context.Context, d time.Duration) error {
		waited += d
		return nil
	}

	have, err := f.Handle(t.Context(), []byte(launchEvent))
	if err != nil || have.Machines != 1 || waited < 10*time.Second || waited > 30*time.Second {
		t.Errorf("%+v, %v after %s; want one machine after 10 to 30 s, since the function has 60", have, err, waited)
	}

	if want := "EC2 does not show"; !strings.Contains(log.String(), want) {
		t.Errorf("the log lacks %q:\n%s", want, &log)
	}
}

func TestHandleComparesForAnUnknownEvent(t *testing.T) {
	t.Parallel()

	var log bytes.Buffer
	a := newAccount()
	a.machines = []discovery.Machine{machine("i-1", "a", "10.0.0.1", 1)}
	if have, err := a.function(&log).Handle(t.Context(), []byte(`{}`)); err != nil || have.Changes != 3 {
		t.Errorf("%+v, %v; want 3 changes", have, err)
	}

	if !strings.Contains(log.String(), "level=WARN") {
		t.Errorf("the log lacks a warning:\n%s", &log)
	}
}

func TestHandleReturnsErrors(t *testing.T) {
	t.Parallel()

	var log bytes.Buffer
	a := newAccount()
	a.fail = errors.New("throttled")
	_, err := a.function(&log).Handle(t.Context(), []byte(launchEvent))
	if want := "list the machines of the control plane of cluster demo: throttled"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}

	if !strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("the log lacks the error:\n%s", &log)
	}
}

// TestVolumeDecides: a slot has two machines while one takes it over, and the older one still has the volume.
func TestVolumeDecides(t *testing.T) {
	t.Parallel()

	a := newAccount()
	a.machines = []discovery.Machine{machine("i-1", "a", "10.0.0.1", 1), machine("i-2", "a", "10.0.0.2", 2)}
	a.volumes["a"] = "i-1"
	if _, err := a.function(&bytes.Buffer{}).Resync(t.Context()); err != nil {
		t.Fatal(err)
	}

	if have := a.records["etcd-a.demo.internal A"].Values; !slices.Equal(have, []string{"10.0.0.1"}) {
		t.Errorf("addresses %v, want 10.0.0.1", have)
	}
}

// TestResyncGivesUp: a run ends with an error if the records differ after every change.
func TestResyncGivesUp(t *testing.T) {
	t.Parallel()

	a := newAccount()
	a.machines = []discovery.Machine{machine("i-1", "a", "10.0.0.1", 1)}

	n := 0
	var interfere func()
	interfere = func() {
		n++
		a.machines[0].Address = fmt.Sprintf("10.0.1.%d", n)
		a.meantime = interfere
	}
	a.meantime = interfere

	_, err := a.function(&bytes.Buffer{}).Resync(t.Context())
	if want := "the records of zone Z1 differ again after 5 changes of them"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestParseSettings(t *testing.T) {
	t.Parallel()

	given := map[string]string{"SLIPWAY_CLUSTER": "demo"}
	_, err := discovery.ParseSettings(func(name string) string { return given[name] })
	want := "environment variable SLIPWAY_CLUSTER_ID is not set\nenvironment variable SLIPWAY_ZONE is not set"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}

	maps.Copy(given, map[string]string{"SLIPWAY_CLUSTER_ID": "0123", "SLIPWAY_ZONE": "Z1"})
	have, err := discovery.ParseSettings(func(name string) string { return given[name] })
	if want := (discovery.Settings{Cluster: "demo", ClusterID: "0123", Zone: "Z1"}); err != nil || have != want {
		t.Errorf("settings %+v, %v; want %+v", have, err, want)
	}
}

// TestRecordsConverge: whatever happens to machines, records and events, and whenever two runs meet, the last run leaves
// the records of the machines that run. Records of others are never touched, and while no machine runs nothing changes.
func TestRecordsConverge(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := newAccount()
		foreign := discovery.Record{Name: "note.demo.internal", Type: "A", TTL: 60, Values: []string{"10.9.9.9"}}
		a.put(foreign)

		launched := 0
		slot := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"})
		disturb := func() {
			switch rapid.IntRange(0, 3).Draw(t, "disturbance") {
			case 0:
				launched++
				a.machines = append(a.machines, discovery.Machine{
					ID:       fmt.Sprintf("i-%d", launched),
					Slot:     slot.Draw(t, "slot"),
					Address:  fmt.Sprintf("10.0.%d.%d", launched/250, launched%250),
					Launched: time.Unix(int64(launched), 0),
				})
			case 1:
				if n := len(a.machines); n > 0 {
					i := rapid.IntRange(0, n-1).Draw(t, "terminated")
					a.machines = slices.Delete(slices.Clone(a.machines), i, i+1)
				}
			case 2:
				a.put(address(slot.Draw(t, "slot"), "10.8.8.8"))
			default:
				delete(a.records, "_etcd-server-ssl._tcp.demo.internal SRV")
			}
		}
		run := func() {
			if _, err := a.function(&bytes.Buffer{}).Resync(t.Context()); err != nil {
				t.Fatal(err)
			}
		}

		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			disturb()

			switch rapid.IntRange(0, 2).Draw(t, "run") {
			case 0: // the event is lost
			case 1:
				run()
			default: // another run and another change between the comparison and the change
				a.meantime = func() { disturb(); run() }
				run()
				a.meantime = nil
			}
		}

		before := maps.Clone(a.records)
		run()

		want := map[string]discovery.Record{recordKey(foreign): foreign}
		for _, c := range discovery.PlanChanges("demo", a.machines, nil) {
			want[recordKey(c.Record)] = c.Record
		}

		if len(a.machines) == 0 {
			want = before
		}

		if diff := cmp.Diff(want, a.records); diff != "" {
			t.Fatalf("records (-want +have):\n%s", diff)
		}
	})
}

// TestNewRightsAreAwaited: a run that lacks its rights is repeated for a while, as just after the creation of the role.
func TestNewRightsAreAwaited(t *testing.T) {
	t.Parallel()
	denied := &smithy.GenericAPIError{Code: "AccessDenied", Message: "not yet"}
	for waits, want := range map[int]string{2: "", 100: "AccessDenied"} {
		a := newAccount()
		a.machines = []discovery.Machine{{ID: "i-1", Slot: "a", Address: "10.0.0.1"}}
		a.fail = denied
		f := a.function(&bytes.Buffer{})
		waited := 0
		f.Wait = func(context.Context, time.Duration) error {
			if waited++; waited == waits {
				a.fail = nil
			}
			return nil
		}
		result, err := f.Handle(t.Context(), json.RawMessage(`{"tf":{"action":"create"}}`))
		if want == "" && (err != nil || result.Changes == 0) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("after %d of %d waits: %+v %v", waited, waits, result, err)
		}
	}
}
