// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"net/http"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// member returns a recent report of slot s by machine i-s, with the peers that it does not reach and those that it does.
func member(slot string, etcd report.Etcd, lost, reached string) memberReport {
	for _, s := range lost {
		etcd.Peers = append(etcd.Peers, report.Peer{Slot: string(s), Error: "connection refused"})
	}

	for _, s := range reached {
		etcd.Peers = append(etcd.Peers, report.Peer{Slot: string(s)})
	}

	return memberReport{machine: "i-" + slot, slot: slot, etcd: etcd}
}

// TestMemberStates: only a recent report tells that a member is lost.
func TestMemberStates(t *testing.T) {
	healthy := report.Etcd{Quorum: true}
	down := report.Etcd{Error: "connection refused"}
	for name, c := range map[string]struct {
		reports []memberReport
		want    rollout.MemberState // of slot a
	}{
		"no report":                          {nil, rollout.MemberUnknown},
		"healthy":                            {[]memberReport{member("a", healthy, "", "bc")}, rollout.MemberHealthy},
		"lost its power a moment ago":        {[]memberReport{member("a", healthy, "", "bc"), member("b", healthy, "a", "c"), member("c", healthy, "a", "b")}, rollout.MemberUnknown},
		"healthy, and missed by one":         {[]memberReport{member("a", healthy, "", "bc"), member("b", healthy, "a", "c"), member("c", healthy, "", "ab")}, rollout.MemberUnknown},
		"healthy, and missed by a learner":   {[]memberReport{member("a", healthy, "", "b"), member("b", report.Etcd{Quorum: true, Learner: true}, "a", "")}, rollout.MemberHealthy},
		"an alarm of the cluster":            {[]memberReport{member("a", report.Etcd{Quorum: true, Alarms: []string{"NOSPACE"}}, "", "")}, rollout.MemberHealthy},
		"a learner":                          {[]memberReport{member("a", report.Etcd{Quorum: true, Learner: true}, "", "bc"), member("b", healthy, "", "ac")}, rollout.MemberUnknown},
		"does not answer":                    {[]memberReport{member("a", down, "", "bc"), member("b", healthy, "a", "c")}, rollout.MemberLost},
		"does not answer its agent only":     {[]memberReport{member("a", down, "", ""), member("b", healthy, "", "ac")}, rollout.MemberUnknown},
		"a silent agent whose member serves": {[]memberReport{member("b", healthy, "", "ac"), member("c", healthy, "b", "a")}, rollout.MemberUnknown},
		"a silent agent of a lost member":    {[]memberReport{member("b", healthy, "a", "c"), member("c", healthy, "a", "b")}, rollout.MemberLost},
		"reached by one":                     {[]memberReport{member("b", healthy, "a", "c"), member("c", healthy, "", "ab")}, rollout.MemberUnknown},
		"lost for one that has no quorum":    {[]memberReport{member("b", down, "ac", "")}, rollout.MemberUnknown},
	} {
		facts := memberFacts{reports: c.reports}
		if got := facts.stateOf("i-a", "a"); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestReportsAreRead: a recent report of a lease tells the member's state and the alarms of etcd.
func TestReportsAreRead(t *testing.T) {
	f := newFakeCluster(t, 3, 0)
	o, err := f.updater(Request{}).observer.observe(t.Context())
	if err != nil || o.Machines[0].Member != rollout.MemberHealthy || len(o.Alarms) > 0 {
		t.Errorf("%+v, %v", o.Machines[0], err)
	}

	late := f.updater(Request{}).observer
	late.now = func() time.Time { return time.Now().Add(reportAge + time.Minute) }
	if o, err = late.observe(t.Context()); err != nil || o.Machines[0].Member != rollout.MemberUnknown {
		t.Errorf("%+v, %v", o.Machines[0], err)
	}
}

// TestClusterClock: reports are judged by the clock of the API servers, also if the operator's is another one.
func TestClusterClock(t *testing.T) {
	local := time.Date(2026, 11, 22, 12, 0, 0, 500, time.UTC)
	clock := clusterClock{local: func() time.Time { return local }}
	for _, c := range []struct {
		date string
		want time.Duration
	}{
		{"", 0},
		{"Sun, 22 Nov 2026 12:00:01 GMT", 0}, // less than is noticed
		{"Sun, 22 Nov 2026 11:58:00 GMT", -2 * time.Minute},
		{"yesterday", -2 * time.Minute},
		{"Sun, 22 Nov 2026 12:05:00 GMT", 5 * time.Minute},
		{"Sun, 22 Nov 2026 12:00:00 GMT", 0},
	} {
		clock.observe(&http.Response{Header: http.Header{"Date": {c.date}}})
		if got := clock.now().Sub(local).Round(time.Second); got != c.want {
			t.Errorf("after %q: %s, want %s", c.date, got, c.want)
		}
	}
}
