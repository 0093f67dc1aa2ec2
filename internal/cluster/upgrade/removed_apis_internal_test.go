// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"fmt"
	"testing"
)

const someMetrics = `# HELP apiserver_requested_deprecated_apis [STABLE] Gauge of deprecated APIs that have been requested
# TYPE apiserver_requested_deprecated_apis gauge
apiserver_requested_deprecated_apis{group="",removed_release="",resource="endpoints",subresource="",version="v1"} 1
apiserver_requested_deprecated_apis{group="flowcontrol.apiserver.k8s.io",removed_release="1.32",resource="flowschemas",subresource="",version="v1beta3"} 1
apiserver_requested_deprecated_apis{group="example.k8s.io",removed_release="1.36",resource="things",subresource="status",version="v1beta1"} 1
apiserver_requested_deprecated_apis{group="example.k8s.io",removed_release="1.37",resource="others",subresource="",version="v1beta1"} 1
process_start_time_seconds 1.79522e+09
`

func TestParseRemovedAPIs(t *testing.T) {
	for target, want := range map[Version]string{
		{1, 36, 3}: "[flowschemas.v1beta3.flowcontrol.apiserver.k8s.io (removed in 1.32) things.v1beta1.example.k8s.io (removed in 1.36)]",
		{1, 35, 9}: "[flowschemas.v1beta3.flowcontrol.apiserver.k8s.io (removed in 1.32)]",
		{1, 31, 0}: "[]",
	} {
		if got := fmt.Sprint(parseRemovedAPIs([]byte(someMetrics), target)); got != want {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
	}

	if got := metricValue([]byte(someMetrics), startMetric); got != "1.79522e+09" {
		t.Error(got)
	}
}

func FuzzParseRemovedAPIs(f *testing.F) {
	f.Add([]byte(someMetrics))
	f.Add([]byte("apiserver_requested_deprecated_apis{"))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, api := range parseRemovedAPIs(body, Version{1, 36, 3}) {
			if api.RemovedIn.Minor > 36 {
				t.Error(api)
			}
		}
	})
}
