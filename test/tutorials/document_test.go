// SPDX-License-Identifier: Apache-2.0

package tutorials_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/test/tutorials"
)

func TestParse(t *testing.T) {
	t.Parallel()
	got := tutorials.Parse("# Title\n\nText:\n\n    make build\n\nText:\n    $ slipway get \\\n        all\n    one\n    …\n\n    $ true\n\nText\n\n" +
		"    timeline:\n      a 1 s\n\n```json\n    $ not a command\n```\n\n```hcl main.tf\na {\n}\n```\n\n    export A=b\n    slipway plan   # exit code 2\n")
	want := []tutorials.Command{
		{Line: 5, Text: "make build"},
		{Line: 8, Text: "slipway get \\\n    all", Output: []string{"one", "…"}},
		{Line: 13, Text: "true"},
		{Line: 24, Text: "cat >main.tf <<'end-of-file'\na {\n}\nend-of-file"},
		{Line: 29, Text: "export A=b"},
		{Line: 30, Text: "slipway plan   # exit code 2"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestMissing(t *testing.T) {
	t.Parallel()
	c := tutorials.Command{Output: []string{
		"  78/82   + load-balancer/api: created [200ms]", "…", "stack slipway-demo: CREATE_COMPLETE", "applied in 1m48.8s; see: slipway validate cluster demo --wait 10m",
		"0:12 waiting: node ip-10-80-16-5.ec2.internal: not ready", "ip-10-80-16-5.ec2.internal   Ready    control-plane   61s   v1.36.3",
		"region us-east-1 runs at http://127.0.0.1:45591 (process 137079, folder …/region)", "~ launch-template/control-plane-a (lt-0f4c9265302edac94)", "+ object/agent/0d4446fa…/slipway-node",
		"  - volume/etcd-a (vol-…)  # the etcd data on it is lost",
	}}
	same := "   3/82   + load-balancer/api: created [1.2s]\nstack slipway-demo: CREATE_COMPLETE\napplied in 2s; see: slipway validate cluster demo --wait 10m\n" +
		"i-0123456789abcdef0.ec2.internal   Ready   control-plane   1s   v1.36.3\nregion us-east-1 runs at http://127.0.0.1:1 (process 2, folder /tmp/x/region)\n" +
		"  ~ launch-template/control-plane-a (lt-00000000302edac94)\n  + object/agent/aaaaaaaabbbbbbbb/slipway-node\n  - volume/etcd-a (vol-0123456789abcdef0)  # the etcd data on it is lost\n"
	if missing := c.Missing(same); len(missing) > 0 {
		t.Errorf("missing %q", missing)
	}
	if missing := c.Missing("stack slipway-demo: CREATE_FAILED\n"); len(missing) != 8 {
		t.Errorf("%d lines are missing: %q", len(missing), missing)
	}
}
