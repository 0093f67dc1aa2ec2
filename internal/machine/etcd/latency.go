// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// MetricsURL is where the machine's own member serves its metrics.
const MetricsURL = "http://127.0.0.1:2381/metrics"

const (
	// syncMetric counts how long writes of the log to the disk took, by upper bound.
	syncMetric = `etcd_disk_wal_fsync_duration_seconds_bucket{le="`
	// leastSyncs is the number of writes below which nothing is said about the disk.
	leastSyncs = 100
)

// SyncCounts is how many writes of etcd's log to the disk took at most how long, since the member started. It is sorted.
type SyncCounts []SyncCount

// SyncCount is one bucket of SyncCounts.
type SyncCount struct {
	// Bound is the longest time of the writes in the bucket; the last bucket has the greatest duration.
	Bound time.Duration
	// Count of the writes that took at most Bound.
	Count uint64
}

// ReadSyncCounts reads the counts from the metrics of a member.
func ReadSyncCounts(ctx context.Context, client *http.Client, url string) (SyncCounts, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("read etcd's metrics: %w", err)
	}

	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read etcd's metrics: %w", err)
	}

	defer func() { _ = resp.Body.Close() }()

	return ParseSyncCounts(resp.Body)
}

// ParseSyncCounts reads the counts from metrics in Prometheus' text format. It returns nil if they are not there.
func ParseSyncCounts(metrics io.Reader) (SyncCounts, error) {
	var out SyncCounts
	lines := bufio.NewScanner(metrics)
	for lines.Scan() {
		text, found := strings.CutPrefix(lines.Text(), syncMetric)
		if !found {
			continue
		}

		bound, count, _ := strings.Cut(text, `"} `)
		seconds, err := strconv.ParseFloat(bound, 64)
		if err != nil {
			return nil, fmt.Errorf("read etcd's metrics: %q is not a duration", bound)
		}

		number, err := strconv.ParseFloat(strings.TrimSpace(count), 64)
		if err != nil || number < 0 {
			return nil, fmt.Errorf("read etcd's metrics: %q is not a count", count)
		}

		out = append(out, SyncCount{Bound: newBound(seconds), Count: uint64(number)})
	}

	slices.SortFunc(out, func(a, b SyncCount) int { return cmp.Compare(a.Bound, b.Bound) })
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read etcd's metrics: %w", err)
	}

	return out, nil
}

// newBound returns a bound in seconds as a duration. The last bucket has no bound.
func newBound(seconds float64) time.Duration {
	if seconds > time.Hour.Seconds() {
		return math.MaxInt64
	}

	return time.Duration(seconds * float64(time.Second))
}

// SlowestPercent returns a time that at most 1% of the writes between two counts exceeded. It returns 0 if
// there were too few writes, or if the member has started in between.
func (later SyncCounts) SlowestPercent(earlier SyncCounts) time.Duration {
	if len(later) == 0 || len(later) != len(earlier) {
		return 0
	}

	last := len(later) - 1
	if later[last].Count < earlier[last].Count+leastSyncs {
		return 0
	}

	all := later[last].Count - earlier[last].Count
	for i := range later {
		if later[i].Count < earlier[i].Count {
			return 0
		}

		if (later[i].Count-earlier[i].Count)*100 >= all*99 {
			return later[i].Bound
		}
	}

	return 0
}
