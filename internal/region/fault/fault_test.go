// SPDX-License-Identifier: Apache-2.0

package fault_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/region/fault"
)

func TestWhichCallsGoWrong(t *testing.T) {
	t.Parallel()
	calls := []fault.Call{
		{Service: "ec2", Action: "DescribeVolumes"},
		{Service: "ec2", Action: "CreateVolume", Mutating: true},
		{Service: "kms", Action: "CreateKey", Mutating: true},
		{Service: "ec2", Action: "CreateVolume", Mutating: true},
		{Service: "ec2", Action: "CreateTags", Mutating: true},
	}
	for name, tc := range map[string]struct {
		rule fault.Rule
		want []int
	}{
		"the first by default":   {fault.Rule{}, []int{0}},
		"the second of a name":   {fault.Rule{Service: "ec2", Action: "CreateVolume", Nth: 2}, []int{3}},
		"a pattern":              {fault.Rule{Action: "Create*", Count: -1}, []int{1, 2, 3, 4}},
		"a service":              {fault.Rule{Service: "kms", Count: -1}, []int{2}},
		"two from the second on": {fault.Rule{Mutating: true, Nth: 2, Count: 2}, []int{2, 3}},
		"another service's name": {fault.Rule{Service: "kms", Action: "CreateVolume", Count: -1}, nil},
		"more than there are":    {fault.Rule{Nth: 9, Count: -1}, nil},
	} {
		e := &fault.Engine{}
		tc.rule.Effect = fault.EffectFail
		if _, err := e.AddRule(tc.rule); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got []int
		for i, c := range calls {
			if len(e.RecordCall(c)) > 0 {
				got = append(got, i)
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if hit := e.ListRules()[0].Hit; hit != len(tc.want) {
			t.Errorf("%s: %d hits are counted, want %d", name, hit, len(tc.want))
		}
	}
}

func TestProvisioning(t *testing.T) {
	t.Parallel()
	e := &fault.Engine{}
	for _, d := range []time.Duration{time.Second, 100 * time.Second} {
		if _, err := e.AddRule(fault.Rule{Effect: fault.EffectProvision, Kind: "nat-gateway", Delay: fault.Duration(d)}); err != nil {
			t.Fatal(err)
		}
	}
	if got := e.ProvisioningDelay("nat-gateway", time.Millisecond); got != 100*time.Second {
		t.Errorf("the newest rule counts: %v", got)
	}
	if got := e.ProvisioningDelay("instance", time.Millisecond); got != time.Millisecond {
		t.Errorf("without a rule: %v", got)
	}
	if got := e.RecordCall(fault.Call{Service: "ec2", Action: "CreateNatGateway"}); len(got) > 0 {
		t.Errorf("no call is affected: %v", got)
	}
}

func TestNoCapacity(t *testing.T) {
	t.Parallel()
	e := &fault.Engine{}
	if _, err := e.AddRule(fault.Rule{Effect: fault.EffectNoCapacity, Kind: "t3.large"}); err != nil {
		t.Fatal(err)
	}
	if !e.LacksCapacity("t3.large") || e.LacksCapacity("t3.medium") || (*fault.Engine)(nil).LacksCapacity("t3.large") {
		t.Error("the capacity of one type is missing, and of no other one")
	}
	if got := e.RecordCall(fault.Call{Service: "ec2", Action: "RunInstances"}); len(got) > 0 {
		t.Errorf("no call is affected: %v", got)
	}
}

func TestBadRules(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		rule fault.Rule
		want []string
	}{
		"all at once":    {fault.Rule{Effect: "explode", Nth: -1, Count: -2, Action: "[", Kind: "x"}, []string{"explode", "nth -1", "count -2", `"["`, "kind"}},
		"no delay":       {fault.Rule{Effect: fault.EffectDelay}, []string{"needs a delay"}},
		"a delay":        {fault.Rule{Effect: fault.EffectFail, Delay: 1}, []string{"delay is valid only with"}},
		"a code":         {fault.Rule{Effect: fault.EffectClose, Code: "X"}, []string{"code is valid only with"}},
		"no type":        {fault.Rule{Effect: fault.EffectNoCapacity}, []string{"needs an instance type as kind"}},
		"no kind":        {fault.Rule{Effect: fault.EffectProvision, Delay: 1}, []string{"nat-gateway"}},
		"a kind's calls": {fault.Rule{Effect: fault.EffectProvision, Delay: 1, Kind: "vpc", Service: "ec2"}, []string{"affects no calls"}},
	} {
		_, err := (&fault.Engine{}).AddRule(tc.rule)
		if err == nil {
			t.Errorf("%s: it is taken", name)
			continue
		}
		for _, want := range tc.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q lacks %q", name, err, want)
			}
		}
	}
}

// TestOnlyTheOwnerAdministers checks that listing, adding, and clearing rules requires the region's
// secret.
func TestOnlyTheOwnerAdministers(t *testing.T) {
	t.Parallel()
	e := &fault.Engine{}
	token := fault.AdminToken("secret")
	ask := func(method, body, auth string) (int, string) {
		r := httptest.NewRequestWithContext(t.Context(), method, "/", strings.NewReader(body))
		r.Header.Set("Authorization", auth)
		w := httptest.NewRecorder()
		e.AdminHandler(token).ServeHTTP(w, r)
		return w.Code, strings.TrimSpace(w.Body.String())
	}
	for _, auth := range []string{"", "Bearer ", "Bearer " + fault.AdminToken("other"), token} {
		if code, _ := ask(http.MethodPost, `{"effect":"fail"}`, auth); code != http.StatusForbidden {
			t.Errorf("%q is let in: %d", auth, code)
		}
	}
	owner := "Bearer " + token
	for _, bad := range []string{`{"effect":"x"}`, `{"effect":"fail","nht":3}`, `{"effect":"delay","delay":"soon"}`, ``} {
		if code, text := ask(http.MethodPost, bad, owner); code != http.StatusBadRequest {
			t.Errorf("%s is taken: %d %s", bad, code, text)
		}
	}
	if n := len(e.ListRules()); n != 0 {
		t.Errorf("%d rules came of refused requests", n)
	}
	if code, text := ask(http.MethodPost, `{"effect":"delay","delay":"2s","action":"CreateVpc","nth":2}`, owner); code != http.StatusCreated {
		t.Errorf("%d %s", code, text)
	}
	want := `[{"id":1,"action":"CreateVpc","nth":2,"effect":"delay","delay":"2s","seen":0,"hit":0}]`
	if _, text := ask(http.MethodGet, "", owner); text != want {
		t.Errorf("the list is %s", text)
	}
	if _, text := ask(http.MethodDelete, "", owner); text != "1" {
		t.Errorf("cleared %s", text)
	}
	if _, text := ask(http.MethodGet, "", owner); text != "[]" {
		t.Errorf("after that there is %s", text)
	}
}
