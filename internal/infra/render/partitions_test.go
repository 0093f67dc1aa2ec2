// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/infra/render/rendertest"
	"github.com/slipway-k8s/slipway/internal/lib/partition"
)

// TestPartitions: the ARNs, service principals and names of endpoints of a cluster without internet access belong to the
// partition of its region, also of a region that no table lists.
func TestPartitions(t *testing.T) {
	names := regexp.MustCompile(`arn:[^"\\ ]+|[a-z0-9.-]+\.amazonaws\.[a-z0-9.-]+|[a-z0-9.-]+\.(gov|uk|eu)\b`)
	for _, region := range []string{"cn-north-1", "us-gov-west-1", "ap-southeast-99", "us-isob-east-1"} {
		all := rendertest.Topologies()
		isolated := all[slices.IndexFunc(all, func(x rendertest.Topology) bool { return x.Name == "isolated" })]
		body := renderings(t, isolated.GraphIn(t, region), isolated.StackGraph(t, region))["template.json"]
		body = strings.ReplaceAll(body, rendertest.Boundary, "") // of the store, not of the region
		found := names.FindAllString(body, -1)
		slices.Sort(found)
		got := strings.Join(slices.Compact(found), "\n") + "\n"

		p := partition.OfRegion(region)
		for line := range strings.Lines(got) {
			if strings.HasPrefix(line, "arn:") && !strings.HasPrefix(line, "arn:"+p.Name+":") {
				t.Errorf("%s: %s is of another partition", region, line)
			}
		}
		file := filepath.Join("testdata", "partition."+region+".txt")
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", region, diff)
		}
	}
}
