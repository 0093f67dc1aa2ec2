// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/client-go/kubernetes"
)

// RemovedAPI is an API that clients requested and that a version of Kubernetes does not have any more.
type RemovedAPI struct {
	// Resource is the API, such as flowschemas.v1beta3.flowcontrol.apiserver.k8s.io.
	Resource string
	// RemovedIn is the minor version that does not have it any more.
	RemovedIn Version
}

// String returns the API with the version that removed it.
func (r RemovedAPI) String() string {
	return fmt.Sprintf("%s (removed in %d.%d)", r.Resource, r.RemovedIn.Major, r.RemovedIn.Minor)
}

// deprecatedMetric is set by an API server for each deprecated API that was requested since it started.
const deprecatedMetric = "apiserver_requested_deprecated_apis"

// startMetric tells the processes of several API servers apart.
const startMetric = "process_start_time_seconds"

// newClientFunc returns a client with a connection of its own.
type newClientFunc func(context.Context) (kubernetes.Interface, error)

// maxMetricReads limits how often metrics are read behind the load balancer, for each API server.
const maxMetricReads = 4

// findRemovedAPIs asks the API servers for the APIs that clients requested and that target has not. Each server knows
// only its own requests, and the load balancer chooses the server, so that metrics are read by several connections
// until each of them answered. asked is the number of servers that did.
func findRemovedAPIs(
	ctx context.Context,
	newClient newClientFunc,
	servers int,
	target Version,
) (apis []RemovedAPI, asked int, err error) {
	seen := map[string]bool{}
	for range maxMetricReads * servers {
		client, err := newClient(ctx)
		if err != nil {
			return nil, 0, err
		}

		body, err := client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
		if err != nil {
			return nil, 0, fmt.Errorf("read the metrics of kube-apiserver: %w", err)
		}

		apis = append(apis, parseRemovedAPIs(body, target)...)
		seen[metricValue(body, startMetric)] = true
		if len(seen) >= servers {
			break
		}
	}

	slices.SortFunc(apis, func(a, b RemovedAPI) int { return strings.Compare(a.Resource, b.Resource) })

	return slices.Compact(apis), len(seen), nil
}

// metricValue returns the value of a metric without labels, as text.
func metricValue(body []byte, name string) string {
	lines := bufio.NewScanner(bytes.NewReader(body))
	lines.Buffer(nil, len(body)+1)
	for lines.Scan() {
		if value, found := strings.CutPrefix(lines.Text(), name+" "); found {
			return value
		}
	}

	return ""
}

// parseRemovedAPIs returns the requested APIs in the metrics of one API server that target does not have.
func parseRemovedAPIs(body []byte, target Version) []RemovedAPI {
	label := regexp.MustCompile(`([a-z_]+)="([^"]*)"`)
	var out []RemovedAPI
	lines := bufio.NewScanner(bytes.NewReader(body))
	lines.Buffer(nil, len(body)+1)
	for lines.Scan() {
		labels, found := strings.CutPrefix(lines.Text(), deprecatedMetric+"{")
		if !found {
			continue
		}

		values := map[string]string{}
		for _, m := range label.FindAllStringSubmatch(labels, -1) {
			values[m[1]] = m[2]
		}

		removedIn, err := ParseVersion(values["removed_release"])
		if err != nil || removedIn.minorsAhead(target) > 0 {
			continue // no release has removed it, or only a later one
		}

		parts := []string{values["resource"], values["version"], values["group"]}
		parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
		out = append(out, RemovedAPI{Resource: strings.Join(parts, "."), RemovedIn: removedIn})
	}

	return out
}
