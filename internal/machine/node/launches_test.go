// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/slipway-k8s/slipway/internal/machine/node"
)

func launchList(former node.Launches, userData ...string) node.Launches {
	in := node.LaunchesInput{Cluster: "demo", Former: former, FirstSerial: 100, Current: map[string]node.Pool{}}
	for i, text := range userData {
		in.Current[fmt.Sprintf("nodes%d", i)] = pool(text)
	}
	out, _ := node.NewLaunches(in)
	return out
}

func pool(userData string) node.Pool {
	return node.Pool{Launch: node.Launch{UserData: userData, Image: "ami-1"}}
}

// TestPoolsWaitForARollingUpdate: what machines run changes with a rolling update only, and its limits at once. Machines with the
// former, the current and the next launch may join all the time.
func TestPoolsWaitForARollingUpdate(t *testing.T) {
	first := launchList(node.Launches{}, "a", "b")
	if first.Pools["nodes0"].Launch.UserData != "a" || len(first.Next) != 0 {
		t.Fatalf("the first list is %+v", first)
	}
	changed := pool("c")
	changed.Limits = node.PoolLimits{Machines: 7, Disrupted: "2"}
	second, isChanged := node.NewLaunches(node.LaunchesInput{Cluster: "demo", Former: first, FirstSerial: 100, Current: map[string]node.Pool{"nodes0": changed, "nodes1": pool("b")}})
	if p := second.Pools["nodes0"]; !isChanged || p.Launch.UserData != "a" || p.Limits.Machines != 7 || second.Next["nodes0"].Launch.UserData != "c" || len(second.Next) != 1 {
		t.Fatalf("the second list is %+v", second)
	}
	if _, again := second.Promote([]string{"nodes1", "others"}, 100); len(again) != 0 {
		t.Errorf("%v are promoted", again)
	}
	third, promoted := second.Promote([]string{"nodes0", "nodes1"}, 100)
	if third.Pools["nodes0"].Launch.UserData != "c" || len(third.Next) != 0 || third.Serial != 102 || !slices.Equal(promoted, []string{"nodes0"}) {
		t.Errorf("the third list is %+v after %v", third, promoted)
	}
	if second.Pools["nodes0"].Launch.UserData != "a" || len(second.Next) != 1 {
		t.Error("the promotion has changed the former list")
	}
	if got := third.Groups["nodes0"]; len(got) != 2 || got[0].UserData != "c" || got[1].UserData != "a" {
		t.Errorf("the launches are %+v", got)
	}
	back, _ := node.NewLaunches(node.LaunchesInput{Cluster: "demo", Former: second, FirstSerial: 100, Current: map[string]node.Pool{"nodes0": pool("a"), "nodes1": pool("b")}})
	if len(back.Next) != 0 || back.Pools["nodes0"].Launch.UserData != "a" {
		t.Errorf("a change that was taken back leaves %+v", back)
	}
	if got := third.Images(); !slices.Equal(got, []string{"ami-1"}) {
		t.Errorf("the images are %v", got)
	}
}

func TestLaunches(t *testing.T) {
	first := launchList(node.Launches{}, "a", "b")
	if first.Serial != 100 || len(first.Groups) != 2 {
		t.Errorf("the first list is %+v", first)
	}
	if _, changed := node.NewLaunches(node.LaunchesInput{Cluster: "demo", Former: first, FirstSerial: 500, Current: map[string]node.Pool{
		"nodes0": pool("a"), "nodes1": pool("b"),
	}}); changed {
		t.Error("the same launches are a change")
	}
	second := launchList(first, "c", "b")
	if second.Serial != 101 || second.Groups["nodes0"][0].UserData != "c" || second.Groups["nodes0"][1].UserData != "a" {
		t.Errorf("the second list is %+v", second)
	}
	third := launchList(second, "a")
	if got := third.Groups["nodes0"]; len(got) != 2 || got[0].UserData != "a" || len(third.Groups) != 1 || third.Serial != 102 {
		t.Errorf("the third list is %+v", third)
	}
	for i := range 50 {
		third = launchList(third, strconv.Itoa(i))
	}
	if got := third.Groups["nodes0"]; len(got) != 30 || got[0].UserData != "49" || got[1].UserData != "a" || got[29].UserData != "21" {
		t.Errorf("%d launches are kept", len(got))
	}
	if len(first.Groups["nodes0"]) != 1 {
		t.Error("the former list was changed")
	}
}

func TestFillUserData(t *testing.T) {
	both := node.Launch{UserData: `{"public":"@@PUBLIC@@","internal":"@@INTERNAL@@"} 127.0.0.1`}
	for _, c := range []struct {
		api  node.APIEndpoints
		want string
	}{
		{node.APIEndpoints{Public: "p", Internal: "i"}, `{"public":"p","internal":"i"} 127.0.0.1`},
		{node.APIEndpoints{Public: "127.0.0.1", Internal: "127.0.0.1"}, `{"public":"127.0.0.1","internal":"127.0.0.1"} 127.0.0.1`},
		{node.APIEndpoints{Internal: "i"}, ""},
	} {
		if got, ok := both.FillUserData(c.api); got != c.want || ok != (c.want != "") {
			t.Errorf("%+v: %s %v, want %s", c.api, got, ok, c.want)
		}
	}
}

// TestLaunchesAreSigned: a list of another cluster, with another signature, of another authority or with the signature of another
// purpose is refused.
func TestLaunchesAreSigned(t *testing.T) {
	ca, other := newCA(t), newCA(t)
	body, err := launchList(node.Launches{}, "a").Sign(ca.Key())
	if err != nil {
		t.Fatal(err)
	}
	got, err := node.VerifyLaunches(body, string(ca.CertsPEM()), "demo")
	if err != nil || got.Groups["nodes0"][0].UserData != "a" {
		t.Fatal(got, err)
	}
	revisions, err := revise(node.Revisions{}, "a").Sign(ca.Key())
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		body        []byte
		ca, cluster string
	}{
		"another authority": {body, string(other.CertsPEM()), "demo"},
		"another cluster":   {body, string(ca.CertsPEM()), "prod"},
		"no signature":      {[]byte(`{"launches":"e30="}`), string(ca.CertsPEM()), "demo"},
		"revisions":         {revisions, string(ca.CertsPEM()), "demo"},
		"a part":            {body[:len(body)/2], string(ca.CertsPEM()), "demo"},
		"nothing":           {nil, string(ca.CertsPEM()), "demo"},
	} {
		if got, err := node.VerifyLaunches(c.body, c.ca, c.cluster); err == nil || len(got.Groups) > 0 {
			t.Errorf("%s: accepted %+v", what, got)
		}
	}
}

func FuzzVerifyLaunches(f *testing.F) {
	ca := newCA(f)
	list := launchList(node.Launches{}, "a")
	body, err := list.Sign(ca.Key())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := node.VerifyLaunches(body, string(ca.CertsPEM()), "demo")
		if err == nil && !slices.Equal(got.Groups["nodes0"], list.Groups["nodes0"]) {
			t.Errorf("accepted %+v", got)
		}
	})
}
