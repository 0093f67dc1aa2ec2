// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// consolePrefix is the start of a report on the serial console.
const consolePrefix = "slipway-report: "

// maxConsoleCause is how many bytes of a cause are written to the console. EC2 keeps the last 64 KiB of a
// console, and a line has at most one shortened report.
const maxConsoleCause = 240

// ConsoleLine returns the line for the serial console, with a line feed: the report with only the conditions
// that are not OK, and without disks, certificates and heartbeats.
func ConsoleLine(r Report) ([]byte, error) {
	r.Disks = nil
	r.Certificates = nil
	r.Heard = nil
	failed := []Condition{}

	for _, c := range r.Conditions {
		if c.State != OK {
			c.Cause = clipText(c.Cause)
			c.Next = clipText(c.Next)
			failed = append(failed, c)
		}
	}

	r.Conditions = failed
	r.Kubelet.Error = clipText(r.Kubelet.Error)
	r.Containerd.Error = clipText(r.Containerd.Error)
	if r.Etcd != nil {
		r.Etcd = clipEtcd(*r.Etcd)
	}

	if r.APIServer != nil {
		server := *r.APIServer
		server.Error = clipText(server.Error)
		r.APIServer = &server
	}

	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode report for the console: %w", err)
	}

	return append(append([]byte(consolePrefix), body...), '\n'), nil
}

func clipEtcd(e Etcd) *Etcd {
	e.Error = clipText(e.Error)
	peers := make([]Peer, len(e.Peers))
	for i, p := range e.Peers {
		p.Error = clipText(p.Error)
		peers[i] = p
	}

	e.Peers = peers

	return &e
}

func clipText(s string) string {
	if len(s) <= maxConsoleCause {
		return s
	}

	return string(bytes.ToValidUTF8([]byte(s[:maxConsoleCause]), nil)) + "…"
}

// ParseConsole returns the newest report in a console's output, and whether there is one. It skips other and
// truncated lines.
func ParseConsole(output []byte) (Report, bool) {
	var newest Report
	found := false
	for line := range bytes.Lines(output) {
		_, body, ok := bytes.Cut(line, []byte(consolePrefix))
		if !ok {
			continue
		}

		var r Report
		if json.Unmarshal(bytes.TrimSpace(body), &r) == nil && r.Machine != "" {
			newest = r
			found = true
		}
	}

	return newest, found
}

// ConsoleGate decides when a report is written to the console: on a change, and otherwise rarely, so that
// what is older is not pushed out of the 64 KiB that EC2 keeps. The zero value is ready to use. It is not
// safe for concurrent use.
type ConsoleGate struct {
	last      Report
	lastWrite time.Time
	// spent is how much of the burst is used up, at the time of refilled.
	spent    time.Duration
	refilled time.Time
}

// Limits of the console. A line has about 1 KiB: eight lines at once, then two each minute.
const (
	consolePerLine = 30 * time.Second
	consoleBurst   = 8 * consolePerLine
	consoleRefresh = 10 * time.Minute
)

// Allow reports whether r is to be written at now, and remembers it if so.
func (g *ConsoleGate) Allow(r Report, now time.Time) bool {
	g.spent = max(0, g.spent-now.Sub(g.refilled))
	g.refilled = now

	changed := g.lastWrite.IsZero() || !HaveSameState(g.last, r)
	repeat := now.Sub(g.lastWrite) >= consoleRefresh
	if !changed && !repeat || g.spent+consolePerLine > consoleBurst {
		return false
	}

	g.last = r
	g.lastWrite = now
	g.spent += consolePerLine

	return true
}
