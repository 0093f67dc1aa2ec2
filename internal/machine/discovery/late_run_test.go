// SPDX-License-Identifier: Apache-2.0

package discovery_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/machine/discovery"
)

// TestLateRunLeavesNothing: a run that read the machines before they ended, and changes the zone after the records were removed
// from it, leaves no records: they would prevent the deletion of the zone.
func TestLateRunLeavesNothing(t *testing.T) {
	t.Parallel()

	gone := []discovery.Machine{machine("i-1", "a", "10.0.0.1", 1), machine("i-2", "b", "10.0.0.2", 1)}
	for name, event := range map[string]string{"launch": launchEvent, "schedule": `{"detail-type":"Scheduled Event"}`} {
		var log bytes.Buffer
		a := newAccount()
		a.machines = gone
		f := a.function(&log)
		f.Wait = func(context.Context, time.Duration) error { return nil }
		a.meantime = func() {
			a.machines = nil
			a.ended = gone
			if _, err := f.Remove(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := f.Handle(t.Context(), []byte(event)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}

		if len(a.records) > 0 {
			t.Errorf("%s: the zone cannot be deleted: it has %v", name, slices.Sorted(maps.Keys(a.records)))
		}
	}
}

// TestRecordsStayWhileUnknown: a run does not take back what it wrote because EC2, which is eventually consistent, shows no machine
// for a moment, and not what another run wrote.
func TestRecordsStayWhileUnknown(t *testing.T) {
	t.Parallel()

	var log bytes.Buffer
	a := newAccount()
	a.machines = []discovery.Machine{machine("i-1", "a", "10.0.0.1", 1)}
	a.meantime = func() { a.machines = nil }
	if _, err := a.function(&log).Resync(t.Context()); err != nil || len(a.records) != 3 {
		t.Errorf("a machine that is not shown: %v, records %v", err, a.records)
	}

	a = newAccount()
	a.machines = []discovery.Machine{machine("i-1", "a", "10.0.0.1", 1)}
	a.meantime = func() {
		a.ended = a.machines
		a.machines = nil
		a.meantimeAfter = func() { a.put(address("a", "10.0.0.9")) }
	}
	if _, err := a.function(&log).Resync(t.Context()); err != nil {
		t.Fatal(err)
	}

	if want := address("a", "10.0.0.9"); len(a.records) != 1 || !cmp.Equal(a.records[recordKey(want)], want) {
		t.Errorf("another run's record was removed: %v", a.records)
	}
}

// TestRemovalAnswers: the deletion of a custom resource removes the records of the function, and only these, and
// CloudFormation gets an answer. A zone that is gone has no records.
func TestRemovalAnswers(t *testing.T) {
	t.Parallel()

	var answers []map[string]string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var got map[string]string
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil || r.Method != http.MethodPut || r.Header.Get("Content-Type") != "" {
			t.Errorf("%s with the type %q: %v", r.Method, r.Header.Get("Content-Type"), err)
		}

		answers = append(answers, got)
	}))
	defer server.Close()

	a := newAccount()
	foreign := discovery.Record{Name: "note.demo.internal", Type: "A", TTL: 60, Values: []string{"10.9.9.9"}}
	a.put(append(services("a"), address("a", "10.0.0.1"), foreign)...)
	a.machines = []discovery.Machine{machine("i-1", "a", "10.0.0.1", 1)}

	request := `{"RequestType":"Delete","ResponseURL":"` + server.URL + `","StackId":"stack","RequestId":"one","LogicalResourceId":"Records"}`
	for _, failure := range []error{nil, &smithy.GenericAPIError{Code: "NoSuchHostedZone"}, errors.New("throttled")} {
		a.fail = failure
		_, err := a.function(&bytes.Buffer{}).Handle(t.Context(), []byte(request))
		if want := failure != nil && failure.Error() == "throttled"; want != (err != nil) {
			t.Errorf("after %v the function returns %v", failure, err)
		}
	}

	want := map[string]string{
		"Status": "SUCCESS", "Reason": "see the log group of the function", "PhysicalResourceId": "records.demo.internal",
		"StackId": "stack", "RequestId": "one", "LogicalResourceId": "Records",
	}
	failed := maps.Clone(want)
	failed["Status"] = "FAILED"
	failed["Reason"] = "list the records of zone Z1: throttled"
	if diff := cmp.Diff([]map[string]string{want, want, failed}, answers); diff != "" {
		t.Errorf("answers (-want +have):\n%s", diff)
	}

	if diff := cmp.Diff(map[string]discovery.Record{recordKey(foreign): foreign}, a.records); diff != "" {
		t.Errorf("records (-want +have):\n%s", diff)
	}
}
