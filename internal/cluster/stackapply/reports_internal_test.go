// SPDX-License-Identifier: Apache-2.0

package stackapply

import (
	"testing"

	"github.com/slipway-k8s/slipway/internal/cluster/health"
)

func TestWorstReport(t *testing.T) {
	at := func(stage, state, err string) health.StageReport {
		return health.StageReport{Stage: stage, State: state, Error: err}
	}
	for name, tc := range map[string]struct {
		reports []health.StageReport
		want    string
	}{
		"nothing was said":      {},
		"it waits":              {[]health.StageReport{at("boot", "done", ""), at("etcd", "running", "no quorum")}, "stage etcd running: no quorum"},
		"it is well":            {[]health.StageReport{at("ready", "done", ""), at("signal", "running", ""), at("signal", "done", "")}, ""},
		"it got over a failure": {[]health.StageReport{at("files", "failed", "no route"), at("files", "done", ""), at("ready", "done", ""), at("signal", "done", "")}, ""},
		"its failure was told":  {[]health.StageReport{at("boot", "done", ""), at("verify", "failed", "another hash"), at("signal", "running", ""), at("signal", "done", "")}, "stage verify failed: another hash"},
		"it tries again":        {[]health.StageReport{at("verify", "failed", "another hash"), at("signal", "done", ""), at("verify", "running", "")}, "stage verify failed: another hash"},
		"nobody heard it":       {[]health.StageReport{at("ready", "done", ""), at("signal", "failed", "no route")}, "stage signal failed: no route"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := summarizeWorst(tc.reports); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
