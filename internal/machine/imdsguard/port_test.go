// SPDX-License-Identifier: Apache-2.0

package imdsguard_test

import (
	"context"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/machine/imdsguard"
)

// TestPort: the rules for the port name the cgroup of this process alone, whatever may reach the metadata service. They come once the
// network of the pods is known, and without cgroups those about pods remain.
func TestPort(t *testing.T) {
	const unit = "system.slice/slipway-node.service/"
	for name, c := range map[string]struct {
		files []string
		want  string // the rules of the chain join; none without cgroups
	}{
		"version 2": {
			[]string{"sys/fs/cgroup/cgroup.controllers", "sys/fs/cgroup/" + unit, "sys/fs/cgroup/kubepods/"},
			`socket cgroupv2 level 2 "system.slice/slipway-node.service" accept`,
		},
		"version 1": {
			[]string{
				"sys/fs/cgroup/systemd/cgroup.procs", "sys/fs/cgroup/systemd/" + unit, "sys/fs/cgroup/systemd/kubepods/",
				"sys/fs/cgroup/net_cls/cgroup.procs",
			},
			"meta cgroup 5308418 accept",
		},
		"none": {[]string{"sys/fs/cgroup/systemd/cgroup.procs"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var loads []string
			g := imdsguard.Guard{
				Root:  tree(t, append(c.files, "proc/self/cgroup")...),
				Port:  "3988",
				Load:  func(_ context.Context, rules string) error { loads = append(loads, rules); return nil },
				List:  func(context.Context) (string, error) { return "as loaded", nil },
				Reach: func(context.Context) error { return nil },
			}
			apply := func(pods string) {
				t.Helper()
				err := g.Apply(t.Context(), imdsguard.Allowed{Cgroups: []string{"kubepods"}, PodNetwork: pods})
				if err != nil {
					t.Fatal(err)
				}
			}

			apply("")
			if strings.Contains(strings.Join(loads, ""), "3988") {
				t.Errorf("before the network of the pods is known: %s", loads)
			}

			before := len(loads)
			apply("10.244.0.0/16")
			apply("10.244.0.0/16")
			if len(loads) != before+1 {
				t.Fatalf("%d loads, want one more than %d", len(loads), before)
			}

			rules := loads[before]
			for _, want := range []string{"hook forward", "hook input", "ip daddr != 10.244.0.0/16 tcp dport 3988", "ip saddr 10.244.0.0/16 tcp dport 3988"} {
				if !strings.Contains(rules, want) {
					t.Errorf("there is no %s in %s", want, rules)
				}
			}

			_, chain, found := strings.Cut(rules, "chain join {\n")
			chain, _, _ = strings.Cut(chain, "}")
			if found != (c.want != "") || found && strings.TrimSpace(chain) != c.want+"\n\t\tcounter reject with tcp reset" {
				t.Errorf("the chain is %q", chain)
			}
		})
	}
}

// TestPortOfPodsByLink: where pods have addresses of machines' range, rules name the links of pods and no address range.
func TestPortOfPodsByLink(t *testing.T) {
	var rules string
	g := imdsguard.Guard{
		Root:  tree(t, "sys/fs/cgroup/cgroup.controllers", "sys/fs/cgroup/system.slice/slipway-node.service/", "proc/self/cgroup"),
		Port:  "3988",
		Load:  func(_ context.Context, loaded string) error { rules = loaded; return nil },
		List:  func(context.Context) (string, error) { return "as loaded", nil },
		Reach: func(context.Context) error { return nil },
	}
	if err := g.Apply(t.Context(), imdsguard.Allowed{PodLinks: "eni*"}); err != nil {
		t.Fatal(err)
	}

	for _, want := range []string{
		`oifname != "lo" oifname != "eni*" tcp dport 3988 tcp flags & (syn | ack) == syn jump join`,
		"hook forward priority -10; policy accept;\n\t\toifname != \"eni*\" tcp dport 3988",
		"hook input priority -10; policy accept;\n\t\tiifname \"eni*\" tcp dport 3988",
		"chain join {\n\t\tsocket cgroupv2 level 2 \"system.slice/slipway-node.service\" accept",
	} {
		if !strings.Contains(rules, want) {
			t.Errorf("there is no %s in %s", want, rules)
		}
	}

	if strings.Contains(rules, "ip saddr") || strings.Contains(rules, "ip daddr != ") {
		t.Errorf("the rules have a range of addresses: %s", rules)
	}
}
