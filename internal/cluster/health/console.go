// SPDX-License-Identifier: Apache-2.0

package health

import (
	"bytes"
	"encoding/json"
	"strings"
)

// reportPrefix is the start of each report on a machine's serial console.
const reportPrefix = "slipway-node: {"

// ParseConsole returns the reports in a machine's console output, in order. It skips other and truncated
// lines: the kernel and systemd write to the same console.
func ParseConsole(output []byte) []StageReport {
	var out []StageReport
	for line := range bytes.Lines(output) {
		text := strings.TrimSpace(string(line))
		at := strings.Index(text, reportPrefix)
		if at < 0 {
			continue
		}

		var r StageReport
		if json.Unmarshal([]byte(text[at+len(reportPrefix)-1:]), &r) == nil && r.Stage != "" {
			out = append(out, r)
		}
	}

	return out
}
