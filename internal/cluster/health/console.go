// SPDX-License-Identifier: Apache-2.0

package health

import (
	"bytes"
	"encoding/json"
	"strings"
)

// reportPrefix begins each report on a machine's serial console.
const reportPrefix = "slipway-node: {"

// ParseConsole returns the reports found in a machine's console output, in order. Lines that are none, or are cut off,
// are passed over: a console is shared with the kernel and systemd.
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
