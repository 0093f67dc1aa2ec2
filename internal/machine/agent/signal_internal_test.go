// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// stack is a CloudFormation that returns the errors in answers one after the other, and then
// success.
type stack struct {
	got     []string
	answers []error
}

func (s *stack) SignalResource(_ context.Context, in *cloudformation.SignalResourceInput, _ ...func(*cloudformation.Options)) (*cloudformation.SignalResourceOutput, error) {
	s.got = append(s.got, strings.Join([]string{*in.StackName, *in.LogicalResourceId, *in.UniqueId, string(in.Status)}, " "))
	if len(s.answers) == 0 {
		return &cloudformation.SignalResourceOutput{}, nil
	}
	err := s.answers[0]
	s.answers = s.answers[1:]
	return nil, err
}

func refusal(message string) error {
	return &smithy.GenericAPIError{Code: "ValidationError", Message: message}
}

// inStack returns an agent of a machine that a stack created. Its clock advances when it waits.
func inStack(t *testing.T, s *stack) (*Agent, *console) {
	t.Helper()
	a := testAgent(t)
	var out console
	a.Report.Open = func() (io.WriteCloser, error) { return &out, nil }
	a.Boot.StackName, a.Boot.SignalResources, a.Signals = "demo", "GroupA,Gate", s
	now := time.Now()
	a.Now = func() time.Time { return now }
	a.Wait = func(_ context.Context, d time.Duration) error { now = now.Add(d); return nil }
	return a, &out
}

func TestSignalIsSentUntilItArrives(t *testing.T) {
	s := &stack{answers: []error{errors.New("no route to host"), nil, refusal("Resource Gate does not exist for stack demo")}}
	a, out := inStack(t, s)
	a.signalResources(t.Context(), "SUCCESS", signalRetryLimit)
	id := " " + a.instance.ID + " SUCCESS"
	want := []string{"demo GroupA" + id, "demo GroupA" + id, "demo Gate" + id, "demo Gate" + id}
	if diff := cmp.Diff(want, s.got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := out.String(); !strings.Contains(got, "no route to host") || !strings.Contains(got, `"stage":"signal","state":"done"`) {
		t.Errorf("reported:\n%s", got)
	}
}

func TestSignalThatNobodyWaitsForIsDone(t *testing.T) {
	s := &stack{answers: []error{
		refusal("Resource GroupA is in CREATE_COMPLETE state and cannot be signaled"),
		refusal("Signal with ID i-0 for resource Gate already exists. Signals may only be updated with a FAILURE status."),
	}}
	a, out := inStack(t, s)
	a.signalResources(t.Context(), "SUCCESS", signalRetryLimit)
	if len(s.got) != 2 || !strings.Contains(out.String(), `"state":"done"`) {
		t.Errorf("sent %v, reported:\n%s", s.got, out.String())
	}
}

func TestSignalGivesUpAfterItsPatience(t *testing.T) {
	s := &stack{}
	for range 1000 {
		s.answers = append(s.answers, refusal("Stack [demo] does not exist"))
	}
	a, out := inStack(t, s)
	a.signalResources(t.Context(), "SUCCESS", signalRetryLimit)
	if n := len(s.got); n < 50 || n > 70 || !strings.Contains(out.String(), `"stage":"signal","state":"failed"`) {
		t.Errorf("sent %d signals, reported:\n%s", n, out.String())
	}
}

// TestPermanentFailureIsSignalled converges machines whose document has another hash, or is
// invalid.
func TestPermanentFailureIsSignalled(t *testing.T) {
	for name, tc := range map[string]struct {
		body  string
		sum   string
		sends int
	}{
		"another hash":            {body: "evil", sum: sum([]byte("good")), sends: 2},
		"no document":             {body: "{}", sum: sum([]byte("{}")), sends: 2},
		"the store is away":       {sum: sum([]byte("good"))},
		"not created by a stack":  {body: "evil", sum: sum([]byte("good")), sends: -1},
		"it has signalled before": {body: "evil", sum: sum([]byte("good")), sends: -2},
	} {
		t.Run(name, func(t *testing.T) {
			s := &stack{}
			a, _ := inStack(t, s)
			a.Metadata = metadata{}
			if _, err := a.Root.Write(File{Path: "/proc/meminfo", Body: []byte("MemTotal: 4096000 kB\n"), Mode: 0o600}); err != nil {
				t.Fatal(err)
			}
			store := &bodies{by: map[string][]byte{}}
			if tc.body != "" {
				store.by["u"] = []byte(tc.body)
			}
			a.Open, a.Boot.Document = store, node.Download{URL: "u", SHA256: tc.sum}
			switch tc.sends {
			case -1:
				a.Boot.StackName, tc.sends = "", 0
			case -2:
				if _, err := a.Root.Write(File{Path: signalMarkerFile, Mode: 0o600}); err != nil {
					t.Fatal(err)
				}
				tc.sends = 0
			}
			ctx, cancel := context.WithCancel(t.Context())
			tries := 0
			// Called between attempts, and within them while the store is unavailable.
			a.Wait = func(context.Context, time.Duration) error {
				if tries++; tries == 5 {
					cancel()
				}
				return ctx.Err()
			}
			if err := a.ConvergeAndMaintain(ctx); err == nil {
				t.Fatal("it converged")
			}
			// A restarted agent does not signal again.
			ctx, cancel = context.WithCancel(t.Context())
			a.failureSignalled, tries = false, 0
			if err := a.ConvergeAndMaintain(ctx); err == nil {
				t.Fatal("it converged")
			}
			cancel()
			if len(s.got) != tc.sends || tc.sends > 0 && !strings.HasSuffix(s.got[0], " FAILURE") {
				t.Errorf("sent %v, want %d failures", s.got, tc.sends)
			}
		})
	}
}

func TestUnsettled(t *testing.T) {
	member := func(slot string) etcd.Member { return etcd.Member{Slot: slot, Healthy: true} }
	three := []string{"a", "b", "c"}
	for name, tc := range map[string]struct {
		slots   []string
		members []etcd.Member
		alone   bool
		want    string
	}{
		"all healthy":  {slots: three, members: []etcd.Member{member("a"), member("b"), member("c")}},
		"one of one":   {slots: []string{"a"}, members: []etcd.Member{member("a")}},
		"no quorum":    {slots: three, members: []etcd.Member{member("a"), member("b"), member("c")}, alone: true, want: "no quorum"},
		"one missing":  {slots: three, members: []etcd.Member{member("a"), member("b")}, want: "no member of slot c"},
		"one learning": {slots: three, members: []etcd.Member{member("a"), member("b"), {Slot: "c", Healthy: true, Learner: true}}, want: "slot c has not caught up yet"},
		"one silent":   {slots: three, members: []etcd.Member{member("a"), {Slot: "b"}, member("c")}, want: "slot b does not answer"},
		"none known":   {slots: three, want: "no member of slot a"},
	} {
		if got := EtcdNotReadyReason(tc.slots, tc.members, !tc.alone); !strings.Contains(got, tc.want) || (got == "") != (tc.want == "") {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

func TestUnwanted(t *testing.T) {
	for message, want := range map[string]bool{
		"Resource A is in CREATE_COMPLETE state and cannot be signaled":                        true,
		"Stack:arn:x is in UPDATE_COMPLETE state and can not be signaled":                      true,
		"Signal with ID i-0 for resource A already exists. Signals may only be updated":        true,
		"Resource A does not exist for stack demo":                                             false,
		"Stack [demo] does not exist":                                                          false,
		"User: x is not authorized to perform: cloudformation:SignalResource on resource: arn": false,
	} {
		if got := IsSignalUnwanted(refusal(message)); got != want {
			t.Errorf("%s: got %v", message, got)
		}
	}
	if IsSignalUnwanted(errors.New("cannot be signaled")) {
		t.Error("an error that is not CloudFormation's is taken for a refusal")
	}
}

// metadata is an instance metadata service.
type metadata struct{}

func (metadata) GetMetadata(_ context.Context, in *imds.GetMetadataInput, _ ...func(*imds.Options)) (*imds.GetMetadataOutput, error) {
	values := map[string]string{"instance-id": "i-me", "local-ipv4": "10.0.0.9", "placement/availability-zone": "z", "instance-type": "t3.large", "local-hostname": "ip-10-0-0-9"}
	return &imds.GetMetadataOutput{Content: io.NopCloser(strings.NewReader(values[in.Path]))}, nil
}
