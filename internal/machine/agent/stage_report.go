// SPDX-License-Identifier: Apache-2.0

// Package agent implements slipway-node, which brings one machine to the state of its node document
// and keeps it there.
//
// The agent runs stages (fetch, verify, prepare, write, start, and others by role). Each stage is
// idempotent and reports its progress on the serial console. Afterwards the agent runs periodic
// tasks: it renews certificates, updates /etc/hosts, maintains the etcd membership, applies
// add-ons, and deletes Nodes of terminated instances. It changes only its own machine; decisions
// about the cluster are made by the operator's side and are in the document.
package agent

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// States of a stage on the console.
const (
	stateRunning = "running"
	stateDone    = "done"
	stateFailed  = "failed"
)

// Reporter writes the progress of stages to the serial console, which the operator can read without
// SSH, and to the log. It omits a report that repeats the previous one. It is safe for concurrent
// use.
type Reporter struct {
	// Open opens the console. It is called for each report, because a console may disappear.
	Open func() (io.WriteCloser, error)
	Log  *slog.Logger
	Now  func() time.Time

	mu   sync.Mutex
	last stageReport
}

type stageReport struct {
	Time  string `json:"time"`
	Stage string `json:"stage"`
	State string `json:"state"`
	Error string `json:"error,omitempty"`
	Hint  string `json:"hint,omitempty"`
}

// Running reports that a stage runs, and the reason if it waits.
func (r *Reporter) Running(stage, waits string) {
	r.writeReport(stageReport{Stage: stage, State: stateRunning, Error: waits})
}

// Done reports that a stage has succeeded.
func (r *Reporter) Done(stage string) { r.writeReport(stageReport{Stage: stage, State: stateDone}) }

// Restored reports that the agent has restored something that somebody else changed. The text says what.
func (r *Reporter) Restored(text string) {
	r.writeReport(stageReport{Stage: "restore", State: stateDone, Error: text})
}

// Failed reports that a stage has failed and will be retried, with the hints of err.
func (r *Reporter) Failed(stage string, err error) {
	l := stageReport{Stage: stage, State: stateFailed, Error: err.Error()}
	l.Hint = strings.Join(diag.Hints(err), "; ")
	var hash HashError
	if errors.As(err, &hash) && l.Hint == "" {
		l.Hint = "check the asset catalogue and the mirror, then run slipway apply"
	}

	r.writeReport(l)
}

func (r *Reporter) writeReport(l stageReport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l == r.last {
		return
	}

	r.last = l
	log := r.Log.Info
	if l.State == stateFailed {
		log = r.Log.Error
	}

	log("stage", slog.String("stage", l.Stage), slog.String("state", l.State), slog.String("error", l.Error))
	l.Time = r.Now().UTC().Format(time.RFC3339)
	body, err := json.Marshal(l)
	if err != nil {
		return
	}

	r.writeLocked([]byte("slipway-node: " + string(body) + "\n"))
}

// WriteLine writes a line, which ends with a line feed, to the console.
func (r *Reporter) WriteLine(line []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writeLocked(line)
}

// writeLocked writes a line with one write, so that lines do not mix. The caller holds mu.
func (r *Reporter) writeLocked(line []byte) {
	console, err := r.Open()
	if err != nil {
		r.Log.Warn("cannot open console", slog.Any("error", err))
		return
	}

	defer func() { _ = console.Close() }()
	if _, err := console.Write(line); err != nil {
		r.Log.Warn("cannot write to console", slog.Any("error", err))
	}
}
