// SPDX-License-Identifier: Apache-2.0

package history

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// measuredLoad is the number of processes for each processor up to which the limits of unavailability hold: that of the computer on which
// docs/benchmarks.md measured them, 15 to 25 for two.
const measuredLoad = 12

// LoadOfProcessor returns the average number of processes of the last minute that waited for a processor of this computer, or ran on it; 0
// if that is not known.
func LoadOfProcessor() float64 {
	body, err := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(body), " ")
	load, parseErr := strconv.ParseFloat(first, 64)
	if err != nil || parseErr != nil {
		return 0
	}

	return load / float64(runtime.NumCPU())
}

// LimitUnder returns a limit of unavailability on a computer with this load for each processor: the limit itself up to the load at which it
// was measured, and more in proportion beyond.
func LimitUnder(load float64, limit time.Duration) time.Duration {
	if load <= measuredLoad {
		return limit
	}

	return time.Duration(float64(limit) * load / measuredLoad)
}

// Limit returns the limit of unavailability for a fault for which the design promises goal on the computer of docs/benchmarks.md, on one that
// is slowness times as slow; less than 1 counts as 1. It is [LimitUnder] the load of this computer.
func Limit(goal time.Duration, slowness float64) time.Duration {
	return LimitUnder(LoadOfProcessor(), time.Duration(float64(goal)*max(slowness, 1)))
}
