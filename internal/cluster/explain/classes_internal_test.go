// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"testing"

	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

func TestSettingEffect(t *testing.T) {
	changes := []node.Change{
		{Setting: "apiSANs", Class: node.ClassLive},
		{Setting: "files.kubelet.sha256", Class: node.ClassReplace},
		{Setting: "files.kubelet.url", Class: node.ClassLive},
		{Setting: "files.runc.url", Class: node.ClassLive},
		{Setting: "kubelet.evictionHard.memory.available", Class: node.ClassRestart, Restarts: []string{"kubelet"}},
		{Setting: "trust.etcdClientCA", Class: node.ClassRestart, Restarts: []string{"kube-apiserver", "etcd"}},
	}
	for setting, want := range map[string]string{
		"apiSANs":                               "live",
		"files.kubelet":                         "needs new machines",
		"files.runc":                            "live",
		"kubelet.evictionHard.memory.available": "restarts kubelet",
		"trust.etcdClientCA":                    "restarts etcd, kube-apiserver",
	} {
		if got := settingEffect(setting, changes); got != want {
			t.Errorf("%s: %q, want %q", setting, got, want)
		}
	}
}

func TestFollowedEffect(t *testing.T) {
	of := func(effects ...string) []plan.Setting {
		var out []plan.Setting
		for _, e := range effects {
			out = append(out, plan.Setting{Setting: "x", Effect: e})
		}
		return out
	}
	for _, c := range []struct {
		settings []plan.Setting
		want     string
	}{
		{of("live"), "running machines follow it and restart nothing"},
		{of("restarts kubelet", "live", "restarts containerd, kubelet"), "running machines follow it and restart containerd, kubelet"},
		{of("live", "needs new machines"), ""},
		{of("live", ""), ""}, // not a setting of the node document, such as the agent
		{nil, ""},
	} {
		got, follows := followedEffect(c.settings)
		if got.text != c.want || follows != (c.want != "") {
			t.Errorf("%v: %q", c.settings, got.text)
		}
	}
}
